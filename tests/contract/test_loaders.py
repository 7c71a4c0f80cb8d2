# SPDX-License-Identifier: Apache-2.0
"""Whether NCCL and RCCL would load this plugin: with the names that docs/operations.md gives, and where an image has set
NCCL_NET_PLUGIN already. net_loader.c stands for them."""

import os
import re
import shlex
import subprocess
import tempfile
import unittest

BUILD = os.environ["BUILD"]
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOADER = os.path.join(BUILD, "tests", "contract", "net_loader")
SIMVERBS = os.path.join(BUILD, "bin", "simverbs")
PRESETS = ["spcx", "ncclnet", "none", "libnccl-net-other.so"]  # what images are known to set, and what they may


class Loaders(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="nccl-ha-test.")
        os.symlink(os.path.join(BUILD, "libnccl-net-ha.so"), os.path.join(cls.folder.name, "libnccl-net-ha.so"))
        # Somebody else's, which has its place in images: it loads, and its name is another.
        for name in "spcx", "ncclnet", "other":
            os.symlink(os.path.join(BUILD, "tests", "contract", "libnccl-net-ref.so"),
                       os.path.join(cls.folder.name, f"libnccl-net-{name}.so"))  # fmt: skip
        cls.fabric = f"loaders-{os.getpid()}"
        subprocess.run([SIMVERBS, "up", cls.fabric, "--hosts", "2", "--rails", "2"], check=True, timeout=60)

    @classmethod
    def tearDownClass(cls):
        subprocess.run([SIMVERBS, "down", cls.fabric], check=True, timeout=60)
        cls.folder.cleanup()

    def load(self, loader, plugin=None, before=""):
        """What the loader prints; None: it goes on without a plugin. `before`: lines of a shell, after which it starts."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("NCCL_", "HA_NCCL_"))}
        environment["LD_LIBRARY_PATH"] = self.folder.name + ":" + environment.get("LD_LIBRARY_PATH", "")
        if plugin is not None:
            environment["NCCL_NET_PLUGIN"] = plugin
        command = shlex.join([SIMVERBS, "run", self.fabric, "0", "--", LOADER, loader])
        done = subprocess.run(["bash", "-c", f"{before}\n{command}"], env=environment, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=60, check=False)  # fmt: skip
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return done.stdout.decode().strip() if done.returncode == 0 else None

    def test_nccl_takes_it_by_its_name_and_rccl_by_the_name_of_its_file(self):
        path = os.path.join(BUILD, "libnccl-net-ha.so")
        self.assertRegex(self.load("nccl-2.27", "ha"), r"^nccl-2\.27 takes v10: 2 devices, pointers 0x[0-9a-f]+$")
        for loader, table in ("rccl-2.21.5", "v8"), ("rccl-2.29", "v12"):
            for name in "libnccl-net-ha.so", path:
                self.assertRegex(self.load(loader, name), rf"^{re.escape(loader)} takes {table}: 2 devices")
            # Theirs is another name, so that this is not found: as docs/operations.md says.
            self.assertIsNone(self.load(loader, "ha"))
            self.assertIsNone(self.load(loader))

    def test_with_a_link_of_rccls_name_its_short_name_will_do(self):
        link = os.path.join(self.folder.name, "librccl-net-ha.so")
        os.symlink("libnccl-net-ha.so", link)
        try:
            for loader in "rccl-2.21.5", "rccl-2.29":
                self.assertIsNotNone(self.load(loader, "ha"))
        finally:
            os.unlink(link)

    def test_what_an_image_has_set_is_overridden_as_documented(self):
        with open(os.path.join(ROOT, "docs", "operations.md"), encoding="utf-8") as file:
            documented = re.findall(r"^    (export NCCL_NET_PLUGIN=ha.*)$", file.read(), re.MULTILINE)
        self.assertGreaterEqual(len(documented), 2)
        for preset in PRESETS:
            self.assertIsNone(self.load("nccl-2.27", preset), preset)  # or there is nothing to override
            for line in documented:
                self.assertRegex(self.load("nccl-2.27", preset, before=line), "takes v10: 2 devices", (preset, line))

    def test_before_another_in_a_list_it_is_taken_and_behind_one_that_works_it_is_not(self):
        self.assertIsNotNone(self.load("nccl-2.27", "ha,spcx"))
        self.assertIsNotNone(self.load("nccl-2.27", "no-such-plugin,ha"))

    def test_our_own_tools_do_not_care_what_is_set(self):
        environment = {**os.environ, "NCCL_NET_PLUGIN": "spcx", "NCCL_NET": "IB"}
        done = subprocess.run([os.path.join(BUILD, "bin", "nccl-net-check"), "--plugin", "ha", "--simverbs", "2x2", "--rule", "init"],
                              env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, check=False)  # fmt: skip
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn(b"libnccl-net-ha.so", done.stdout)


if __name__ == "__main__":
    unittest.main()
