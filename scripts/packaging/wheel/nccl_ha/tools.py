# SPDX-License-Identifier: Apache-2.0
"""The programs by their own names, where the environment's programs are."""
import os
import sys

from nccl_ha import tool


def _become(name):
    os.execv(tool(name), [name] + sys.argv[1:])


def nccl_ha():
    _become("nccl-ha")


def nccl_ha_agent():
    _become("nccl-ha-agent")


def nccl_ha_ctrld():
    _become("nccl-ha-ctrld")


def nccl_ha_switchd():
    _become("nccl-ha-switchd")


def nccl_net_check():
    _become("nccl-net-check")


def nccl_net_perf():
    _become("nccl-net-perf")


def simverbs():
    _become("simverbs")
