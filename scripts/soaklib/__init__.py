# SPDX-License-Identifier: Apache-2.0
"""A soak that is driven by a failure trace: what scripts/soak --trace and --generate are made of."""
