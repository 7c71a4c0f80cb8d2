#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A build folder that was configured before a header or a package was installed notices when it is, and when it goes."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))

# What CMakeLists.txt checks for: a header with it, and one without.
CHECKED = {
    "HA_HAVE_SDT": ("sys/sdt.h", "#define DTRACE_PROBE(provider, name)\n", '#error "not installed"\n'),
    "HA_HAVE_ACTIVE_SPEED_EX": (
        "infiniband/verbs.h", "struct ibv_port_attr { int active_speed_ex; };\n", "struct ibv_port_attr { int lid; };\n"),
}  # fmt: skip


def run(*command, **environment):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                          timeout=100, text=True, env={**os.environ, **environment})  # fmt: skip
    assert done.returncode == 0, f"{shlex.join(command)}: status {done.returncode}\n{done.stdout}"
    return done.stdout


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


class Checks(WithFolder):
    """This project's CMakeLists.txt, configured again and again in one folder."""

    def configure(self, which):
        """What files are compiled with when the compiler finds our headers before the system's."""
        build = os.path.join(self.folder, "build")
        run("cmake", "-S", ROOT, "-B", build, "-G", "Ninja", "-DHA_BUILD_TESTS=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON",
            CPATH=os.path.join(self.folder, which))  # fmt: skip
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
            cached = {line.split(":")[0] for line in file if line.startswith("HA_HAVE_")}
        self.assertEqual(cached, set(CHECKED), "CMakeLists.txt checks for what this test does not know")
        with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
            text = file.read()
        return {name for name in CHECKED if f"-D{name}" in text}

    def test_a_header_that_comes_and_goes(self):
        for header, with_it, without_it in CHECKED.values():
            self.write(os.path.join("with", header), with_it)
            self.write(os.path.join("without", header), without_it)
        self.assertEqual(self.configure("without"), set())
        self.assertEqual(self.configure("with"), set(CHECKED))
        self.assertEqual(self.configure("without"), set())


class Scripts(WithFolder):
    """scripts/lib.sh with a project and a table of packages that are the test's."""

    def setUp(self):
        super().setUp()
        self.write("CMakeLists.txt", "cmake_minimum_required(VERSION 3.20)\nproject(nothing LANGUAGES NONE)\n"
                   'file(APPEND ${CMAKE_SOURCE_DIR}/configured "x")\n')  # fmt: skip
        self.write("include/some.h", "#define SOME 1\n")
        os.makedirs(os.path.join(self.folder, "scripts"))
        for name in ("scripts/lib.sh", "CMakePresets.json"):
            shutil.copy(os.path.join(ROOT, name), os.path.join(self.folder, name))

    def configured(self):
        """How often it has been configured, when it has been built once more."""
        run("bash", "-c", """
            source "$0/scripts/lib.sh"
            ha_packages() {
                echo "build|tool|tool|test -e $HA_ROOT/tool|a program"
                echo "extra|some-dev|some-devel|header some.h|a header"
            }
            build_preset release""", self.folder, CPATH=os.path.join(self.folder, "include"))  # fmt: skip
        with open(os.path.join(self.folder, "configured"), encoding="utf-8") as file:
            return len(file.read())

    def test_configures_again_when_what_is_here_changes(self):
        self.assertEqual(self.configured(), 1)
        self.assertEqual(self.configured(), 1, "nothing has changed")
        self.write("tool", "")
        self.assertEqual(self.configured(), 2, "a program has come")
        self.write("include/some.h", "#define SOME 2\n")
        self.assertEqual(self.configured(), 3, "a header is another one")
        os.remove(os.path.join(self.folder, "include/some.h"))
        self.assertEqual(self.configured(), 4, "a header has gone")
        self.assertEqual(self.configured(), 4, "nothing has changed")


if __name__ == "__main__":
    if not shutil.which("cmake") or not shutil.which("ninja"):
        sys.exit("cmake and ninja are needed")
    unittest.main()
