# SPDX-License-Identifier: Apache-2.0
"""What tests of these scripts share: one as a module, for tests of its parts; a GPU to be seen; and what it has left running."""

import importlib.machinery
import importlib.util
import os
import sys

SCRIPTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "scripts")


def load_script(name):
    sys.path.insert(0, SCRIPTS)
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader(name.replace("-", "_"), os.path.join(SCRIPTS, name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


MPS = """#!/usr/bin/env bash
if [ "${{1:-}}" = -d ]; then said=begin; else read -r said; fi
echo "mps $said $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY" >>"$FAKE_JOURNAL"
exit {status}
"""


def one_gpu(folder, mps=True, status=0):
    """An environment with one GPU to be seen, and MPS's control program, which notes in $FAKE_JOURNAL what it is told."""
    os.makedirs(folder, exist_ok=True)
    if mps:
        path = os.path.join(folder, "nvidia-cuda-mps-control")
        with open(path, "w", encoding="utf-8") as file:
            file.write(MPS.format(status=status))
        os.chmod(path, 0o755)
    return {"CUDA_VISIBLE_DEVICES": "0", "PATH": folder + ":" + os.environ["PATH"]}


def processes_with(setting):
    """Those that have it in their environment, NAME=VALUE: what a script has started."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as file:
                if setting in file.read():
                    found.append(pid)
        except OSError:
            pass
    return found
