#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""make.py BUILD OUT: the wheel of what was built in BUILD, into the folder OUT; prints its path.
make.py --look FILE...: whether these files may be in it.

Runs on a distribution's python3-build, python3-setuptools and python3-wheel, and fetches nothing."""
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
GLIBC = (2, 34)  # of the platform's name: the oldest that everything in the wheel runs with
PLATFORM = "manylinux_%d_%d_%s" % (*GLIBC, platform.machine())
# What a host has: its C library, and of the host's RDMA only what the plugin and a switch are for.
LIBRARIES = {"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}
OF_RDMA = {"libnccl-net-ha.so", "nccl-ha-switchd"}
LOADER = re.compile(r"ld-linux[-\w.]*\.so\.\d")


def said_by(*command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, universal_newlines=True, **more).stdout


def objections(path):
    """Why a file would not run where the wheel may be installed."""
    dynamic, symbols = said_by("readelf", "-Wd", path), said_by("readelf", "-W", "--dyn-syms", path)
    for name, version in re.findall(r"UND (\S+)@GLIBC_([\d.]+)", symbols):
        if tuple(map(int, version.split("."))) > GLIBC:
            yield f"{name} is of glibc {version}"
    for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
        of_rdma = needed == "libibverbs.so.1" and os.path.basename(path) in OF_RDMA
        if needed not in LIBRARIES and not LOADER.match(needed) and not of_rdma:
            yield f"it needs {needed}"
    if re.search(r"\((RPATH|RUNPATH)\)", dynamic):
        yield "it has a run path"


def look(paths):
    """Says what is in the way of each file. True: nothing."""
    found = [f"{os.path.basename(path)}: {text}" for path in paths for text in objections(path)]
    for line in found:
        print(line, file=sys.stderr)
    if found:
        print("build the wheel where the C library is no newer than 2.36, as on Debian 12 or Ubuntu 22.04", file=sys.stderr)
    return not found


def cached(build, name):
    with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as cache:
        return re.search(rf"^{name}:\w+=(.*)$", cache.read(), re.M).group(1)


def release():
    with open(os.path.join(ROOT, "CMakeLists.txt"), encoding="utf-8") as text:
        return re.search(r"^project\(nccl-ha VERSION ([\d.]+)", text.read(), re.M).group(1)


def lay_out(build, stage):
    """The package as it will be installed: bin/ and lib…/ as cmake installs them, so that programs find the libraries.
    Returns the programs and libraries."""
    installed, package = os.path.join(stage, "installed"), os.path.join(stage, "nccl_ha")
    shutil.copytree(os.path.join(HERE, "nccl_ha"), package, ignore=shutil.ignore_patterns("__pycache__"))
    for component in ("plugin", "tools", "simverbs"):
        said_by("cmake", "--install", build, "--strip", "--prefix", installed, "--component", component)
    # The same program without what needs a library that not every host has.
    alone = os.path.join(installed, "bin", "nccl-ha")
    shutil.copy(os.path.join(build, "wheel", "nccl-ha"), alone)
    said_by("strip", alone)
    files = []
    for folder in ("bin", cached(build, "CMAKE_INSTALL_LIBDIR")):
        shutil.copytree(os.path.join(installed, folder), os.path.join(package, folder), symlinks=False)
        files += [os.path.join(at, name) for at, _, names in os.walk(os.path.join(package, folder)) for name in names]
    shutil.rmtree(installed)
    shutil.copy(os.path.join(build, "nccl-ha-wheel.spdx.json"), package)
    for path in (os.path.join(HERE, "pyproject.toml"), os.path.join(HERE, "setup.py"), os.path.join(HERE, "README.md"),
                 os.path.join(ROOT, "LICENSE"), os.path.join(ROOT, "scripts", "packaging", "copyright")):
        shutil.copy(path, stage)
    return files


def epoch():
    """The time that the wheel carries, by the rule of the other packages."""
    text = said_by("cmake", f"-DCPACK_HA_ROOT={ROOT}", "-P", os.path.join(HERE, "epoch.cmake"), stderr=subprocess.STDOUT)
    return text.strip()


def make(build, out):
    os.umask(0o022)
    with tempfile.TemporaryDirectory() as stage:
        files = lay_out(build, stage)
        if not look(files):
            return 1
        for at, folders, names in os.walk(stage):
            for name in folders + names:
                path = os.path.join(at, name)
                os.chmod(path, 0o755 if os.path.isdir(path) or path in files else 0o644)
        environ = dict(os.environ, HA_WHEEL_VERSION=release(), HA_WHEEL_PLATFORM=PLATFORM, SOURCE_DATE_EPOCH=epoch(),
                       PYTHONHASHSEED="0", PYTHONDONTWRITEBYTECODE="1")
        done = subprocess.run([sys.executable, "-I", "-m", "build", "--wheel", "--no-isolation", "--outdir", out, stage],
                              env=environ, stdout=sys.stderr)
    if done.returncode == 0:
        print(os.path.join(out, f"nccl_ha-{release()}-py3-none-{PLATFORM}.whl"))
    return done.returncode


if __name__ == "__main__":
    if sys.argv[1:2] == ["--look"] and len(sys.argv) > 2:
        sys.exit(0 if look(sys.argv[2:]) else 1)
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(make(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])))
