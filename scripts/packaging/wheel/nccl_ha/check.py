# SPDX-License-Identifier: Apache-2.0
"""Would this host be protected? Asks the tools, and judges nothing itself: nccl-net-check whether NCCL could use the
plugin, nccl-ha what the environment comes to, and nccl-ha again whether the connections of two processes of
nccl-net-perf are protected while they talk to each other over all devices of this host."""
import ctypes
import json
import os
import re
import resource
import subprocess
import tempfile
import time

from nccl_ha import job, plugin, tool

PROTECTED, UNPROTECTED, NOT_LOOKED_AT = 0, 1, 2
STANDBYS_WITHIN_S = 8  # paths in reserve come up behind traffic
LAUNCHERS = re.compile("^(SLURM|OMPI|PMIX?|PALS|MPI)_")


class Report:
    def __init__(self):
        self.why_not = []

    def say(self, what, text, reason=None):
        """A line; `reason` is why the host is not protected."""
        print(f"{what:<14}{text}", flush=True)
        if reason:
            self.why_not.append(reason)


def own_environment():
    """Of our own two processes: with the plugin, and part of no launcher's job."""
    environ = {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}
    environ.update(NCCL_NET_PLUGIN=plugin())
    return environ


def ask(*command):
    return subprocess.run(command, env=own_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, universal_newlines=True, errors="replace")


def first_line(text):
    return next((line.strip() for line in text.splitlines() if line.strip()), "it said nothing")


def loader_finds(value):
    """Whether what NCCL makes of the variable can be opened."""
    first = value.split(",")[0]
    for name in (first, f"libnccl-net-{first}.so"):
        try:
            ctypes.CDLL(name)
            return True
        except OSError:
            pass
    return False


def look_at_environment(report):
    found, net = os.environ.get("NCCL_NET_PLUGIN"), os.environ.get("NCCL_NET")
    wrong = None
    if found and not job.names_ours(found):
        wrong = f"NCCL_NET_PLUGIN is '{found}', another plugin"
    elif found and not loader_finds(found):
        wrong = f"NCCL_NET_PLUGIN is '{found}', which the loader does not find"
    elif net and net.upper() != "HA":
        wrong = f"NCCL_NET is '{net}', so NCCL takes another network"
    if wrong:
        report.say("environment", wrong, wrong)
    else:
        report.say("environment", f"NCCL_NET_PLUGIN is {found or 'not set: `python -m nccl_ha run` sets it'}")


def look_at_limits(report):
    soft, hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if hard == resource.RLIM_INFINITY:
        report.say("locked memory", "unlimited" + ("" if soft == hard else " once `run` raises the limit"))
    else:
        report.say("locked memory", f"at most {hard >> 10} KiB: `ulimit -l unlimited` is what jobs need")


def look_at_variables(report):
    said = ask(tool("nccl-ha"), "config", "--changed")
    bad = said.returncode != 0
    report.say("variables", first_line(said.stdout) if bad else "those that are set can be used",
               "a variable cannot be used as it is set: `nccl-ha config` names it" if bad else None)


def look_at_contract(report):
    """How many devices the plugin has, or None."""
    with tempfile.NamedTemporaryFile(suffix=".json") as answers:
        said = ask(tool("nccl-net-check"), "--plugin", plugin(), "--api", "newest", "--rule", "vtable", "--rule", "init",
                   "--rule", "every-device", "--json", answers.name)
        rules = json.load(answers)["results"] if said.returncode in (0, 1) else []
    broken = [rule for rule in rules if rule["outcome"] == "FAIL"]
    if not rules or broken:
        text = broken[0]["seen"] if broken else first_line(said.stdout)
        report.say("NCCL", f"could not use the plugin here: {text}", f"NCCL could not use the plugin here: {text}")
        return None
    devices = re.search(r"(\d+) devices", next(rule["seen"] for rule in rules if rule["rule"] == "init"))
    report.say("NCCL", f"can use the plugin, on each of {devices.group(1)} devices")
    return int(devices.group(1))


def children_of(parent):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                if int(stat.read().rpartition(")")[2].split()[1]) == parent:
                    found.append(name)
        except OSError:
            continue  # it has ended
    return found


def status_of(pids):
    said = ask(tool("nccl-ha"), "status", "--json", *[f"--pid={pid}" for pid in pids])
    try:
        return json.loads(said.stdout)
    except ValueError:
        return None


def talk(devices):
    """(what nccl-ha says of two processes that talk to each other, what those said)."""
    with tempfile.TemporaryFile("w+") as output:
        perf = subprocess.Popen([tool("nccl-net-perf"), "--plugin", plugin(), "--ranks", "2", "--op", "sendrecv", "-b", "64K",
                                 "-e", "64K", "-C", str(devices), "--pause", "20", "--seconds", str(STANDBYS_WITHIN_S + 10)],
                                env=own_environment(), stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        until, status = time.monotonic() + STANDBYS_WITHIN_S, None
        try:
            while perf.poll() is None and time.monotonic() < until:
                pids = children_of(perf.pid)
                status = status_of(pids) if pids else status
                counts = status["summary"] if status else {"connections": 0}
                if counts["connections"] and counts["protected"] == counts["connections"]:
                    break
                time.sleep(0.2)
        finally:
            perf.terminate()
            perf.wait()
        output.seek(0)
        return status, output.read()


def look_at_traffic(report, devices):
    status, said = talk(devices)
    if not status or not status["summary"]["connections"]:
        text = f"two processes of this host cannot talk: {first_line(said)}"
        report.say("traffic", text, text)
        return
    ports = {}
    for process in status["processes"]:
        for port in process["ports"]:
            ports[port["port"]] = port["state"]
    report.say("ports", ", ".join(f"{name} {state}" for name, state in sorted(ports.items())))
    counts = status["summary"]
    text = f"{counts['protected']} of {counts['connections']} connections between two processes of this host are protected"
    bare = sorted({group["port"] for process in status["processes"] for group in process["groups"] if not group["protected"]})
    if bare:
        report.say("traffic", text, f"connections over {', '.join(bare)} have no second path")
    else:
        report.say("traffic", text)


def check():
    report = Report()
    report.say("plugin", plugin())
    look_at_environment(report)
    look_at_limits(report)
    look_at_variables(report)
    devices = look_at_contract(report)
    if devices:
        look_at_traffic(report, devices)
    if report.why_not:
        report.say("verdict", "NOT PROTECTED: " + "; ".join(report.why_not))
        return UNPROTECTED
    report.say("verdict", "protected, as far as one host can tell")
    return PROTECTED
