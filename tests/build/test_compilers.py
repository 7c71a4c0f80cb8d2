#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""scripts/lib.sh configures with the compiler that is installed, where the presets name another one. CMake is a stand-in."""

import json
import os
import subprocess
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

SCRIPT = """
source "$1"
has() { [ "$1" = clang-14 ]; }
cmake() { if [ "$1" = --version ]; then echo "cmake version 3.25.1"; else echo "cmake $*"; fi; }
preset_dir() { echo /nonexistent; }
configure_preset "$2"
"""


def configured(preset):
    """What CMake is told where clang is only installed as clang-14."""
    return subprocess.run(["bash", "-c", SCRIPT, "bash", os.path.join(ROOT, "scripts", "lib.sh"), preset], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, timeout=60, check=True, text=True).stdout  # fmt: skip


class Compilers(unittest.TestCase):
    def setUp(self):
        with open(os.path.join(ROOT, "CMakePresets.json"), encoding="utf-8") as file:
            self.presets = {preset["name"]: preset for preset in json.load(file)["configurePresets"] if not preset.get("hidden")}

    def compiler(self, name):
        preset = self.presets[name]
        inherited = preset.get("inherits", [])
        for parent in [inherited] if isinstance(inherited, str) else inherited:
            if parent in self.presets and self.compiler(parent):
                return self.compiler(parent)
        return preset.get("cacheVariables", {}).get("CMAKE_C_COMPILER")

    def test_every_preset_of_clang_takes_clang_14(self):
        of_clang = [name for name in self.presets if self.compiler(name) == "clang"]
        self.assertGreaterEqual(len(of_clang), 2)
        for name in of_clang:
            self.assertIn("-DCMAKE_C_COMPILER=clang-14", configured(name), name)

    def test_others_are_left_to_the_presets(self):
        self.assertEqual(configured("release"), "cmake --preset release\n")


if __name__ == "__main__":
    unittest.main()
