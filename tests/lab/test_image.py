#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The guest's image, as far as it can be tested without a guest: which packages are taken, what is made
of a kernel, when a kept image is made again."""

import json
import lzma
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import image


class FakeApt:
    """Package lists: a name and what it depends on."""

    def __init__(self, packages):
        self.packages = packages

    def depends(self, name):
        return self.packages.get(name)

    def exists(self, name):
        return name in self.packages


class Packages(unittest.TestCase):
    def test_debian_has_the_modules_with_the_kernel(self):
        apt = FakeApt({"linux-image-amd64": ["linux-image-6.1.0-9-amd64"], "linux-image-6.1.0-9-amd64": []})
        self.assertEqual(image.kernel_packages(apt), ["linux-image-6.1.0-9-amd64"])

    def test_ubuntu_has_two_more_packages_of_modules(self):
        version = "5.15.0-9-generic"
        apt = FakeApt({"linux-image-generic": [f"linux-image-{version}", f"linux-modules-extra-{version}", "linux-firmware"],
                       f"linux-modules-{version}": [], f"linux-modules-extra-{version}": []})  # fmt: skip
        self.assertEqual(image.kernel_packages(apt),
                         [f"linux-image-{version}", f"linux-modules-{version}", f"linux-modules-extra-{version}"])  # fmt: skip

    def test_newer_ubuntu_has_one(self):
        apt = FakeApt({"linux-image-generic": ["linux-image-7.0.0-9-generic"], "linux-modules-7.0.0-9-generic": []})
        self.assertEqual(image.kernel_packages(apt), ["linux-image-7.0.0-9-generic", "linux-modules-7.0.0-9-generic"])

    def test_lists_that_name_no_kernel(self):
        self.assertEqual(image.kernel_packages(FakeApt({"bash": []})), [])

    def test_what_apt_prints(self):
        text = b"linux-image-amd64\n  Depends: linux-image-6.1.0-9-amd64\n |Depends: one\n  Depends: <virtual>\n    other\n"
        with mock.patch.object(image, "run", return_value=text):
            self.assertEqual(image.Apt("/nowhere").depends("linux-image-amd64"), ["linux-image-6.1.0-9-amd64", "one"])

    def test_system_without_lists_gets_its_own(self):
        """What an ordinary user can do about package lists that are missing."""
        folder = tempfile.mkdtemp(prefix="nccl-ha-labtest.")
        called = []

        def get(apt, *words, cwd=None):
            called.append((words[0], bool(apt.options)))
            if words[0] == "download":
                with open(os.path.join(cwd, "kernel.deb"), "wb"):
                    pass

        def depends(apt, name):
            return {"linux-image-amd64": ["linux-image-6.1.0-9-amd64"]}.get(name) if apt.options else None

        try:
            with mock.patch.object(image.Apt, "get", get), mock.patch.object(image.Apt, "depends", depends), \
                    mock.patch.object(shutil, "which", lambda name: name):  # fmt: skip
                debs = image.download(folder)
                self.assertEqual(called, [("update", True), ("download", True)])
                self.assertEqual(image.download(folder), debs, "the second time there is nothing to fetch")
            self.assertEqual(os.listdir(folder), ["debs"])
            self.assertEqual(len(called), 2)
        finally:
            shutil.rmtree(folder)


def bzimage(compressed):
    """A kernel as it is installed, with this inside."""
    setup = bytearray(3 * 512)
    setup[0x1F1] = 2
    setup[0x202:0x206] = b"HdrS"
    struct.pack_into("<II", setup, 0x248, 100, len(compressed))
    return bytes(setup) + b"\xcc" * 100 + compressed + b"\xcc" * 50


def elf(note_type):
    """A 64-bit ELF file whose second header of a segment is that of two notes; the second of this type."""
    notes = struct.pack("<III4s4s", 4, 4, 1, b"GNU\0", b"....") + struct.pack("<III4s8s", 4, 8, note_type, b"Xen\0", b"entry...")
    head = b"\x7fELF".ljust(32, b"\0") + struct.pack("<Q", 64) + b"\0" * 14 + struct.pack("<HH", 56, 2) + b"\0" * 6
    headers = struct.pack("<IIQQQQQQ", 1, 0, 0, 0, 0, 0, 0, 0)
    headers += struct.pack("<IIQQQQQQ", 4, 0, 64 + 112, 0, 0, len(notes), 0, 4)
    return head + headers + notes


class Kernel(unittest.TestCase):
    def test_xz(self):
        data = os.urandom(5000)
        packed = lzma.compress(data) + struct.pack("<I", len(data))  # as the kernel's build does it
        self.assertEqual(image.decompress(image.payload(bzimage(packed)), "it"), data)

    def test_zstd(self):
        data = os.urandom(5000)
        packed = subprocess.run(["zstd", "-qc"], input=data, stdout=subprocess.PIPE, check=True).stdout
        packed += struct.pack("<I", len(data))
        self.assertEqual(image.decompress(image.payload(bzimage(packed)), "it"), data)

    def test_zstd_that_is_cut_off(self):
        with self.assertRaisesRegex(image.ImageError, "it"):
            image.decompress(b"\x28\xb5\x2f\xfd\0\0", "it")

    def test_what_is_no_kernel(self):
        with self.assertRaisesRegex(image.ImageError, "no x86 kernel"):
            image.payload(b"\0" * 4096)
        with self.assertRaisesRegex(image.ImageError, "it is compressed in a way"):
            image.decompress(b"LZO?", "it")

    def test_boots_directly_only_with_an_entry_for_that(self):
        self.assertTrue(image.boots_directly(elf(18)))
        self.assertFalse(image.boots_directly(elf(17)))
        self.assertFalse(image.boots_directly(b"MZ" + b"\0" * 100))


class Initramfs(unittest.TestCase):
    def test_an_archive_that_others_read(self):
        folder = tempfile.mkdtemp(prefix="nccl-ha-labtest.")
        try:
            with mock.patch.object(image, "cpio_entry", wraps=image.cpio_entry) as entry:
                archive = image.initramfs([("one.ko", b"first"), ("two.ko", b"second!")])
            self.assertGreater(entry.call_count, 8)
            listed = subprocess.run(["busybox", "cpio", "-t"], input=archive, stdout=subprocess.PIPE,
                                    stderr=subprocess.DEVNULL, check=True).stdout.decode().split()  # fmt: skip
            self.assertLessEqual({"init", "bin/busybox", "dev/console", "modules/one.ko"}, set(listed))
            subprocess.run(["busybox", "cpio", "-id", "modules/*"], input=archive, cwd=folder, check=True,
                           stderr=subprocess.DEVNULL)  # fmt: skip
            with open(os.path.join(folder, "modules", "order"), encoding="utf-8") as file:
                self.assertEqual(file.read(), "one.ko\ntwo.ko\n")
            with open(os.path.join(folder, "modules", "two.ko"), "rb") as file:
                self.assertEqual(file.read(), b"second!")
        finally:
            shutil.rmtree(folder)


class Kept(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="nccl-ha-labtest.")
        self.made = 0
        os.mkdir(os.path.join(self.folder, "debs"))
        image.write(os.path.join(self.folder, "debs"), "kernel.deb", b"")
        for name, fake in [("make", self.make), ("recipe", lambda: "today's")]:
            patch = mock.patch.object(image, name, fake)
            patch.start()
            self.addCleanup(patch.stop)
        self.addCleanup(shutil.rmtree, self.folder)

    def make(self, _debs, folder, wanted):
        self.made += 1
        os.makedirs(folder, exist_ok=True)
        sizes = {name: image.write(folder, name, b"x" * 100) for name in ["kernel", "initramfs"]}
        about = {"recipe": wanted, "release": "1.0", "sizes": sizes}
        image.write(folder, "about.json", json.dumps(about).encode())
        return about

    def get(self):
        return image.get(self.folder, lambda text: None)

    def test_is_made_once(self):
        self.assertEqual(self.get().release, self.get().release)
        self.assertEqual(self.made, 1)

    def test_is_made_again_by_another_recipe(self):
        self.get()
        with mock.patch.object(image, "recipe", lambda: "tomorrow's"):
            self.assertEqual(self.get().fingerprint, "tomorrow's")
        self.assertEqual(self.made, 2)

    def test_is_made_again_when_it_is_damaged(self):
        place = os.path.join(self.folder, "image")
        for spoil in [lambda: image.write(place, "kernel", b"short"), lambda: image.write(place, "about.json", b"{"),
                      lambda: os.unlink(os.path.join(place, "initramfs"))]:  # fmt: skip
            before = self.made
            self.get()
            spoil()
            self.get()
            self.assertEqual(self.made - before, 1 + (before == 0))

    def test_packages_of_which_none_can_be_made_are_fetched_again(self):
        tried = []

        def make(debs, folder, wanted):
            tried.append([os.path.basename(deb) for deb in debs])
            if "kernel.deb" in tried[-1]:
                raise image.ImageError("damaged")
            return self.make(debs, folder, wanted)

        with mock.patch.object(image, "make", make), mock.patch.object(image, "download", lambda folder: ["new.deb"]):
            self.get()
        self.assertEqual(tried, [["kernel.deb"], ["new.deb"]])

    def test_what_an_interrupted_call_left_is_removed(self):
        os.mkdir(os.path.join(self.folder, "image.left"))
        self.get()
        self.assertFalse(os.path.exists(os.path.join(self.folder, "image.left")))


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
