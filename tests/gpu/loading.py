# SPDX-License-Identifier: Apache-2.0
"""A program of scripts/ as a module, for tests of its parts."""

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
