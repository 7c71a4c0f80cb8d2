# SPDX-License-Identifier: Apache-2.0
"""What scripts/acceptance is made of."""
