# SPDX-License-Identifier: Apache-2.0
"""The guest's kernel and its initramfs, made once and kept in the build folder.

The kernel is a distribution's own: its package is downloaded and unpacked into a folder, never installed.
It boots as an uncompressed vmlinux, which takes half the time of the compressed one under emulation. The
initramfs has busybox, the modules in the order to load them, and guest/init."""

import fcntl
import glob
import hashlib
import json
import lzma
import os
import re
import shutil
import struct
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# What a guest needs beyond what these need themselves. crc32_generic is what rdma_rxe asks for by name.
MODULES = [
    "virtio_pci", "virtio_console", "9pnet_virtio", "9p", "virtio_net", "virtio_rng",
    "crc32_generic", "rdma_rxe", "rdma_ucm", "sch_netem", "veth",
]  # fmt: skip

# The packages that name the newest kernel, the first that exists here: Debian, Ubuntu.
META_PACKAGES = ["linux-image-amd64", "linux-image-generic"]
DOWNLOAD_LIMIT_S = 300


class ImageError(Exception):
    """No image can be made here; the text says why and what to do."""


def run(argv, **options):
    """Output of a command; ImageError with the end of what it said if it fails."""
    # An ordinary user's PATH lacks the folders of depmod and modprobe.
    env = {**os.environ, "LC_ALL": "C", "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False, env=env, **options)  # fmt: skip
    except FileNotFoundError:
        raise ImageError(f"{argv[0]} is not installed") from None
    except subprocess.TimeoutExpired as error:
        raise ImageError(f"{' '.join(argv)}: not done after {error.timeout} s") from None
    if done.returncode != 0:
        end = (done.stderr or done.stdout).decode(errors="replace").strip()[-800:]
        raise ImageError(f"{' '.join(argv)}: status {done.returncode}: {end}")
    return done.stdout


def recipe():
    """Changes when an image that was made before must be made again."""
    what = hashlib.sha256()
    for path in [os.path.join(HERE, "image.py"), os.path.join(HERE, "guest", "init"), busybox()]:
        with open(path, "rb") as file:
            what.update(file.read())
    return what.hexdigest()


def busybox():
    """Static, as nothing else is there when it starts."""
    path = shutil.which("busybox")
    if path is None:
        raise ImageError("busybox is not installed (package busybox-static)")
    return path


# ---- the kernel's packages ------------------------------------------------------------------------


class Apt:
    """apt-get and apt-cache, with package lists of our own where the system has none: an ordinary user
    cannot fetch those of the system."""

    def __init__(self, folder):
        self.options = []
        self.own_lists = os.path.join(folder, "apt")

    def use_own_lists(self):
        for part in ["lists/partial", "cache/archives/partial"]:
            os.makedirs(os.path.join(self.own_lists, part), exist_ok=True)
        self.options = ["-o", f"Dir::State::Lists={self.own_lists}/lists", "-o", f"Dir::Cache={self.own_lists}/cache"]
        self.get("update")

    def get(self, *words, cwd=None):
        # Without "_apt" a download into a private folder is no reason for a warning.
        run(["apt-get", "-q", *self.options, "-o", "APT::Sandbox::User=", "-o", "Acquire::Retries=3", *words],
            cwd=cwd, timeout=DOWNLOAD_LIMIT_S)  # fmt: skip

    def depends(self, package):
        """The packages that this one depends on, or None if there is no such package."""
        try:
            text = run(["apt-cache", *self.options, "depends", "--no-recommends", "--no-suggests", "--no-conflicts",
                        "--no-breaks", "--no-replaces", "--no-enhances", package]).decode()  # fmt: skip
        except ImageError:
            return None
        return re.findall(r"^ *\|?Depends: ([^<\s]+)$", text, re.MULTILINE)

    def exists(self, package):
        return self.depends(package) is not None


def kernel_packages(apt):
    """The packages with the newest kernel and its modules, or [] if the lists do not say."""
    for meta in META_PACKAGES:
        images = [name for name in apt.depends(meta) or [] if re.fullmatch(r"linux-image-\d.*", name)]
        if not images:
            continue
        version = images[0][len("linux-image-") :]
        # Ubuntu has the modules apart, and rdma_rxe in a second package until some release.
        more = [f"linux-modules-{version}", f"linux-modules-extra-{version}"]
        return [images[0]] + [name for name in more if apt.exists(name)]
    return []


def download(folder):
    """The kernel's packages as files below folder/debs, from the network unless they are there."""
    debs = os.path.join(folder, "debs")
    kept = sorted(glob.glob(os.path.join(debs, "*.deb")))
    if kept:
        return kept
    if shutil.which("apt-get") is None:
        raise ImageError("the guest's kernel is a package of Debian or Ubuntu, and there is no apt-get here")
    apt = Apt(folder)
    fetched = tempfile.mkdtemp(prefix="debs.", dir=folder)
    try:
        names = kernel_packages(apt)
        try:
            if not names:
                raise ImageError("the package lists of the system name no kernel")
            apt.get("download", *names, cwd=fetched)
        except ImageError as first:
            # Lists that are missing or too old to fetch by.
            apt.use_own_lists()
            names = kernel_packages(apt)
            if not names:
                raise ImageError(f"none of {', '.join(META_PACKAGES)} can be fetched; is there a network? {first}") from None
            apt.get("download", *names, cwd=fetched)
        os.rename(fetched, debs)
    finally:
        shutil.rmtree(fetched, ignore_errors=True)
        shutil.rmtree(apt.own_lists, ignore_errors=True)
    return sorted(glob.glob(os.path.join(debs, "*.deb")))


# ---- the kernel -----------------------------------------------------------------------------------


def payload(bzimage):
    """The compressed vmlinux of a kernel as it is installed, by its header (boot protocol 2.08)."""
    if bzimage[0x202:0x206] != b"HdrS":
        raise ImageError("the kernel's package holds no x86 kernel")
    setup = (bzimage[0x1F1] + 1) * 512
    offset, length = struct.unpack_from("<II", bzimage, 0x248)
    return bzimage[setup + offset : setup + offset + length]


def decompress(data, what):
    """By the magic at its beginning. What is not compressed stays as it is."""
    if data.startswith(b"\xfd7zXZ\x00"):
        # The kernel appends the length of the result, which is no part of the stream.
        return lzma.LZMADecompressor().decompress(data)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        if shutil.which("zstd") is None:
            raise ImageError(f"{what} is compressed with zstd, which is not installed (package zstd)")
        # What follows the stream makes zstd end with an error after the whole result.
        done = subprocess.run(["zstd", "-dcq"], input=data, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              check=False)  # fmt: skip
        if not done.stdout:
            raise ImageError(f"zstd cannot decompress {what}")
        return done.stdout
    if data.startswith(b"\x7fELF"):
        return data
    raise ImageError(f"{what} is compressed in a way that is not known here")


def boots_directly(vmlinux):
    """Whether QEMU can start this ELF file: it needs the note that names the entry for that (PVH)."""
    if not vmlinux.startswith(b"\x7fELF"):
        return False
    start, entry_size, entries = struct.unpack_from("<Q", vmlinux, 32)[0], *struct.unpack_from("<HH", vmlinux, 54)
    for i in range(entries):
        kind, _, offset, _, _, size = struct.unpack_from("<IIQQQQ", vmlinux, start + i * entry_size)
        while kind == 4 and size >= 12:
            name_len, value_len, note = struct.unpack_from("<III", vmlinux, offset)
            if note == 18 and vmlinux[offset + 12 : offset + 15] == b"Xen":
                return True
            step = 12 + (name_len + 3) // 4 * 4 + (value_len + 3) // 4 * 4
            offset, size = offset + step, size - step
    return False


def modules_in_order(tree, release):
    """The files of MODULES and of what they need, in the order to load them."""
    run(["depmod", "-b", tree, release])
    order = []
    for name in MODULES:
        show = ["modprobe", "-C", "/dev/null", "-d", tree, "-S", release, "--show-depends", name]
        for line in run(show).decode().splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in order:
                order.append(words[1])
    return order


# ---- the initramfs --------------------------------------------------------------------------------


def cpio_entry(name, mode, data=b"", device=(0, 0)):
    """One entry of an archive in the format of "cpio -H newc", owned by root whoever makes it."""
    fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, device[0], device[1], len(name) + 1, 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
    return head + b"\0" * (-len(head) % 4) + data + b"\0" * (-len(data) % 4)


def initramfs(modules):
    """The archive; modules are pairs of a name and a content."""
    with open(busybox(), "rb") as file:
        shell = file.read()
    with open(os.path.join(HERE, "guest", "init"), "rb") as file:
        init = file.read()
    entries = [cpio_entry(name, 0o040755) for name in ["bin", "dev", "proc", "sys", "root", "lab", "tree", "modules"]]
    entries.append(cpio_entry("dev/console", 0o020600, device=(5, 1)))
    entries.append(cpio_entry("bin/busybox", 0o100755, shell))
    entries.append(cpio_entry("init", 0o100755, init))
    entries.append(cpio_entry("modules/order", 0o100644, "".join(f"{name}\n" for name, _ in modules).encode()))
    entries += [cpio_entry(f"modules/{name}", 0o100644, content) for name, content in modules]
    return b"".join(entries) + cpio_entry("TRAILER!!!", 0)


# ---- the image ------------------------------------------------------------------------------------


class Image:
    """What QEMU boots."""

    def __init__(self, folder, about):
        self.folder = folder
        self.kernel = os.path.join(folder, "kernel")
        self.initramfs = os.path.join(folder, "initramfs")
        self.release = about["release"]
        self.fingerprint = about["recipe"]


def is_whole(folder, wanted):
    """What is known of the image in this folder, or None if it is stale or not whole."""
    try:
        with open(os.path.join(folder, "about.json"), encoding="utf-8") as file:
            about = json.load(file)
        sizes = {name: os.path.getsize(os.path.join(folder, name)) for name in ["kernel", "initramfs"]}
    except (OSError, ValueError):
        return None
    return about if about.get("recipe") == wanted and about.get("sizes") == sizes else None


def write(folder, name, data):
    with open(os.path.join(folder, name), "wb") as file:
        file.write(data)
    return len(data)


def make(debs, folder, wanted):
    """Into a folder of its own, which takes the place of the old one when it is whole."""
    work = tempfile.mkdtemp(prefix="image.", dir=os.path.dirname(folder))
    try:
        tree = os.path.join(work, "tree")
        for deb in debs:
            run(["dpkg-deb", "-x", deb, tree])
        if not os.path.isdir(f"{tree}/lib") and os.path.isdir(f"{tree}/usr/lib"):
            os.symlink("usr/lib", f"{tree}/lib")
        kernels = glob.glob(f"{tree}/boot/vmlinuz-*")
        if len(kernels) != 1:
            raise ImageError(f"the kernel's packages hold {len(kernels)} kernels")
        release = os.path.basename(kernels[0])[len("vmlinuz-") :]
        with open(kernels[0], "rb") as file:
            bzimage = file.read()
        vmlinux = decompress(payload(bzimage), "the kernel")
        modules = []
        for path in modules_in_order(tree, release):
            with open(path, "rb") as file:
                modules.append((re.sub(r"\.ko.*", ".ko", os.path.basename(path)), decompress(file.read(), path)))
        shutil.rmtree(tree)
        sizes = {
            "kernel": write(work, "kernel", vmlinux if boots_directly(vmlinux) else bzimage),
            "initramfs": write(work, "initramfs", initramfs(modules)),
        }
        about = {"recipe": wanted, "release": release, "sizes": sizes}
        write(work, "about.json", json.dumps(about).encode())
        shutil.rmtree(folder, ignore_errors=True)
        os.rename(work, folder)
        return about
    finally:
        shutil.rmtree(work, ignore_errors=True)


def get(folder, say=print):
    """The image of this build folder, made if it is missing or stale. One process at a time."""
    os.makedirs(folder, exist_ok=True)
    wanted, place = recipe(), os.path.join(folder, "image")
    with open(os.path.join(folder, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        about = is_whole(place, wanted)
        if about is None:
            for left in glob.glob(os.path.join(folder, "image.*")) + glob.glob(os.path.join(folder, "debs.*")):
                shutil.rmtree(left, ignore_errors=True)
            about = make_from_packages(folder, place, wanted, say)
    return Image(place, about)


def make_from_packages(folder, place, wanted, say):
    """Packages that were kept and of which no image can be made are fetched again."""
    kept = glob.glob(os.path.join(folder, "debs", "*.deb"))
    if kept:
        say("making the guest's image")
        try:
            return make(kept, place, wanted)
        except ImageError as error:
            say(f"not from the packages that were kept: {error}")
            shutil.rmtree(os.path.join(folder, "debs"))
    say("fetching a kernel for the guest")
    debs = download(folder)
    say("making the guest's image")
    return make(debs, place, wanted)
