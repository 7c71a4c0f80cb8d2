# SPDX-License-Identifier: Apache-2.0
"""A project in a folder of its own that compiles nothing, with our scripts/test in it."""

import os
import shutil
import signal
import subprocess
import tempfile
import unittest

ROOT = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


class Project(unittest.TestCase):
    """Of it a test gives the CMakeLists.txt and the presets' names. FOLDER, which every process of a run has in its
    environment, is the folder around the tree."""

    PROJECT = ""
    PRESETS = ()

    def setUp(self):
        if not shutil.which("git"):
            self.skipTest("git is not installed")
        self.folder = tempfile.mkdtemp(prefix="nccl-ha-project.")
        self.addCleanup(shutil.rmtree, self.folder)
        self.addCleanup(self.crash)
        self.tree = os.path.join(self.folder, "tree")
        os.makedirs(os.path.join(self.tree, "scripts"))
        for script in "test", "lib.sh":
            shutil.copy(os.path.join(ROOT, "scripts", script), os.path.join(self.tree, "scripts"))
        presets = ",\n".join('{ "name": "%s", "generator": "Ninja", "binaryDir": "${sourceDir}/%s" }' %
                             (name, "build" if name == "release" else "build-" + name) for name in self.PRESETS)
        self.write("CMakeLists.txt", self.PROJECT)
        self.write("CMakePresets.json", '{ "version": 3, "configurePresets": [ %s ] }\n' % presets)
        self.write(".gitignore", "/build*/\n")
        self.environment = {name: value for name, value in os.environ.items() if name != "HA_TEST_RUN"}
        self.environment.update(FOLDER=self.folder, HA_INSTALL="no", TMPDIR=self.folder)
        self.git("init", "--quiet")
        self.commit()

    def write(self, name, text):
        with open(os.path.join(self.tree, name), "w", encoding="utf-8") as file:
            file.write(text)

    def git(self, *command):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid", *command], cwd=self.tree, check=True,
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60)

    def commit(self):
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", "a tree")

    def touch(self, name):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8"):
            pass

    def start(self, *arguments):
        return subprocess.Popen([os.path.join(self.tree, "scripts", "test"), "--only", ",".join(self.PRESETS), *arguments],
                                env=self.environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True)

    def finished(self, *arguments):
        with self.start(*arguments) as run:
            text, _ = run.communicate(timeout=180)
        return run.returncode, text

    def processes(self):
        """Those of a run."""
        for entry in os.listdir("/proc"):
            try:
                with open(f"/proc/{entry}/environ", "rb") as file:
                    if f"FOLDER={self.folder}".encode() in file.read().split(b"\0"):
                        yield int(entry)
            except (OSError, ValueError):
                pass

    def crash(self):
        """Everything of a run dies at once, and tidies nothing up."""
        for process in self.processes():
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        for name in os.listdir("/dev/shm"):
            if name.startswith("nccl-ha-test.") and name in self.fabrics:
                shutil.rmtree(os.path.join("/dev/shm", name), ignore_errors=True)

    fabrics = ()
