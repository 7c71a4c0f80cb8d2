# SPDX-License-Identifier: Apache-2.0
"""The plugin nccl-ha for NCCL, and its tools, as files of this package."""
import glob
import os

_HERE = os.path.dirname(os.path.abspath(__file__))


def plugin():
    """Absolute path of the plugin: what NCCL_NET_PLUGIN is to be."""
    return glob.glob(os.path.join(_HERE, "lib*", "**", "libnccl-net-ha.so"), recursive=True)[0]


def tool(name):
    """Absolute path of a program: nccl-ha, nccl-ha-agent, nccl-ha-ctrld, nccl-ha-switchd, nccl-net-check, nccl-net-perf or simverbs."""
    return os.path.join(_HERE, "bin", name)
