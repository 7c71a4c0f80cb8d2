# SPDX-License-Identifier: Apache-2.0
"""What there is on this node: the machine, its RDMA devices and interfaces, and the programs that the
acceptance needs. Everything is read, nothing is changed, and what cannot be read is None."""

import ctypes
import glob
import json
import os
import platform
import re
import resource
import shutil
import subprocess

QUICK_S = 15
TOOLS = ("ip", "mlxlink", "mstlink", "ib_write_bw", "ibv_devinfo", "nvidia-smi", "all_reduce_perf", "nccl-ha", "simverbs")
PEERMEM = ("kernel/mm/memory_peers/nv_mem", "kernel/mm/memory_peers/nv_mem_nc", "module/nvidia_peermem")


def read(*path):
    try:
        with open(os.path.join(*path), encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None


def number(text):
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def output(argv):
    """What a program printed, or None."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=QUICK_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def sysfs():
    """Of RDMA devices: a simulated fabric has a tree of its own."""
    return os.environ.get("SYSFS_PATH") or "/sys"


# ---- RDMA devices -------------------------------------------------------------------------------------


def gids(port):
    found = []
    for path in glob.glob(os.path.join(port, "gids", "*")):
        index = os.path.basename(path)
        gid = read(path)
        if gid and gid.strip("0:"):
            kind = read(port, "gid_attrs", "types", index)
            found.append({"index": int(index), "gid": gid, "type": kind, "netdev": read(port, "gid_attrs", "ndevs", index)})
    return sorted(found, key=lambda entry: entry["index"])


def netdevs_of_device(device):
    """Interfaces on the same PCI function, and those that GIDs belong to."""
    names = {os.path.basename(path) for path in glob.glob(os.path.join(device, "device", "net", "*"))}
    parent = read(device, "parent")  # of a software device
    return names | ({parent} if parent else set())


def active_mtu(text, port):
    """From what ibv_devinfo says of one device."""
    match = re.search(rf"^\s*port:\s+{port}\b.*?active_mtu:\s+(\d+)", text or "", re.MULTILINE | re.DOTALL)
    return int(match[1]) if match else None


def port_facts(device, path, devinfo):
    state, physical = read(path, "state"), read(path, "phys_state")
    apm = read(path, "apm_enable")
    table = gids(path)
    return {
        "port": int(os.path.basename(path)),
        "state": state.split(":")[-1].strip() if state else None,
        "physical": physical.split(":")[-1].strip() if physical else None,
        "rate": read(path, "rate"),
        "gbps": float(rate[0]) if (rate := re.findall(r"^[\d.]+", read(path, "rate") or "")) else None,
        "link_layer": read(path, "link_layer"),
        "lid": read(path, "lid"),
        "mtu": active_mtu(devinfo, os.path.basename(path)),
        "apm": None if apm is None else apm not in ("0", "N"),
        "gids": table,
        "netdevs": sorted(netdevs_of_device(device) | {entry["netdev"] for entry in table if entry["netdev"]}),
    }


def device_facts(path):
    pci = os.path.realpath(os.path.join(path, "device"))
    name = os.path.basename(path)
    devinfo = output(["ibv_devinfo", "-d", name])
    ports = [port_facts(path, port, devinfo) for port in sorted(glob.glob(os.path.join(path, "ports", "*")))]
    return {
        "name": name,
        "firmware": read(path, "fw_ver"),
        "model": read(path, "hca_type") or read(path, "board_id"),
        "board": read(path, "board_id"),
        "guid": read(path, "sys_image_guid") or read(path, "node_guid"),
        "pci": pci if "/devices/pci" in pci else None,
        "numa": number(read(path, "device", "numa_node")),
        "ports": ports,
    }


def device_order(name):
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def devices():
    found = glob.glob(os.path.join(sysfs(), "class", "infiniband", "*"))
    return [device_facts(path) for path in sorted(found, key=lambda path: device_order(os.path.basename(path)))]


# ---- interfaces ----------------------------------------------------------------------------------------


def interface_facts(name, addresses):
    folder = os.path.join("/sys/class/net", name)
    driver = os.path.join(folder, "device", "driver")
    linked = {kind: sorted(os.path.basename(path).split("_", 1)[1] for path in glob.glob(os.path.join(folder, f"{kind}_*")))
              for kind in ("upper", "lower")}  # fmt: skip
    return {
        "name": name,
        "state": read(folder, "operstate"),
        "mtu": number(read(folder, "mtu")),
        "mac": read(folder, "address"),
        "gbps": mbps / 1000 if (mbps := number(read(folder, "speed"))) and mbps > 0 else None,
        "driver": os.path.basename(os.path.realpath(driver)) if os.path.exists(driver) else None,
        "upper": linked["upper"],
        "lower": linked["lower"],
        "addresses": addresses.get(name, []),
    }


def interfaces():
    addresses = {}
    for entry in json.loads(output(["ip", "-j", "addr"]) or "[]"):
        for info in entry.get("addr_info", []):
            addresses.setdefault(entry.get("ifname"), []).append(f"{info.get('local')}/{info.get('prefixlen')}")
    names = sorted(os.path.basename(path) for path in glob.glob("/sys/class/net/*"))
    return [interface_facts(name, addresses) for name in names if name != "bonding_masters"]


def default_routes():
    """Interfaces of default routes."""
    routes = json.loads(output(["ip", "-j", "route", "show", "default"]) or "[]")
    return sorted({route["dev"] for route in routes if "dev" in route})


def route_to(address):
    """The interface by which packets to this address leave, or None."""
    routes = json.loads(output(["ip", "-j", "route", "get", address]) or "[]")
    return routes[0].get("dev") if routes else None


# ---- software -------------------------------------------------------------------------------------------


def verbs_library():
    """The libibverbs that a program gets here, and its version."""
    try:
        ctypes.CDLL("libibverbs.so.1")
    except OSError as error:
        return {"path": None, "version": None, "error": str(error)}
    maps = read("/proc/self/maps") or ""
    match = re.search(r"(\S*/libibverbs\.so[^\s]*)$", maps, re.MULTILINE)
    path = os.path.realpath(match[1]) if match else None
    version = re.search(r"\.so\.1\.\d+\.([\d.]+)$", path or "")
    return {"path": path, "version": version[1] if version else None, "error": None}


def nccl_library():
    """libnccl where programs find it, and as Python packages bring it."""
    places = [os.path.join(folder, "libnccl.so.2") for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    listed = re.findall(r"libnccl\.so\.2 .*=> (\S+)", output(["ldconfig", "-p"]) or output(["/sbin/ldconfig", "-p"]) or "")
    packaged = glob.glob("/usr/lib/python3*/**/nvidia/nccl/lib/libnccl.so.2", recursive=False)
    packaged += glob.glob("/usr/local/lib/python3*/*-packages/nvidia/nccl/lib/libnccl.so.2")
    for path in [*places, *listed, *packaged]:
        if os.path.exists(path):
            return {"path": path, "version": nccl_version(path)}
    return None


def nccl_version(path):
    """Asked in another process: the library brings threads along."""
    code = "import ctypes,sys; v=ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(v)); print(v.value)"
    value = number((output(["python3", "-c", code, path]) or "").strip())
    if not value:
        return None
    # 2.9 and later: XYYZZ, before: XYZZ
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}" if value >= 20000 else str(value)


def limit(kind):
    soft, _ = resource.getrlimit(kind)
    return None if soft == resource.RLIM_INFINITY else soft  # None: no limit


def may_be_root():
    """'root', 'sudo' if it asks for no password, or None."""
    if os.geteuid() == 0:
        return "root"
    return "sudo" if shutil.which("sudo") and output(["sudo", "-n", "true"]) is not None else None


def shm():
    try:
        usage = os.statvfs("/dev/shm")
    except OSError:
        return None
    return {"size": usage.f_frsize * usage.f_blocks, "free": usage.f_frsize * usage.f_bavail}


def gather():
    """All of it, as plain data."""
    gpus = re.findall(r"^GPU \d+: (.*?) \(UUID", output(["nvidia-smi", "-L"]) or "", re.MULTILINE)
    distribution = re.search(r'^PRETTY_NAME="?([^"\n]*)', read("/etc/os-release") or "", re.MULTILINE)
    return {
        "host": platform.node(),
        "boot": read("/proc/sys/kernel/random/boot_id"),
        "kernel": platform.release(),
        "distribution": distribution[1] if distribution else None,
        "processors": os.cpu_count(),
        "verbs": verbs_library(),
        "nccl": nccl_library(),
        "devices": devices(),
        "interfaces": interfaces(),
        "default_routes": default_routes(),
        "gpus": gpus,
        "nvidia_driver": (re.search(r"\s(\d+\.\d+[\d.]*)\s", read("/proc/driver/nvidia/version") or "") or [None, None])[1],
        # With these two the kernel can hand GPU memory to a NIC as a dmabuf.
        "open_driver": "Open Kernel Module" in (read("/proc/driver/nvidia/version") or ""),
        "peermem": next((name for name in PEERMEM if os.path.exists(os.path.join("/sys", name))), None),
        "memlock": limit(resource.RLIMIT_MEMLOCK),
        "descriptors": limit(resource.RLIMIT_NOFILE),
        "shm": shm(),
        "root": may_be_root(),
        "tools": {name: shutil.which(name) for name in TOOLS},
        "fabric": os.environ.get("SIMVERBS_FABRIC"),
        "fabric_host": number(os.environ.get("SIMVERBS_HOST")),
        "ssh": os.environ.get("SSH_CONNECTION"),
        "variables": {k: v for k, v in sorted(os.environ.items()) if re.match(r"(HA_)?NCCL_", k)},
    }
