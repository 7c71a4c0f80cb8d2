# SPDX-License-Identifier: Apache-2.0
"""The probe of verbs on two devices of the RoCE wire, at the ends of a pair of virtual interfaces: simverbs answers
over real packets as it does on a fabric of its own, or as the kernel does."""

import os
import subprocess
import sys
import threading

import namespaces

HERE = os.path.dirname(os.path.abspath(__file__))
LAB = os.path.join(HERE, "..", "..", "lab")
sys.path.insert(0, LAB)
import probe_answers  # noqa: E402

BUILD = os.environ["BUILD"]
RECORD = os.path.join(LAB, "probe", "kernel-6.1.answers")
TABLE = os.path.join(HERE, "..", "..", "..", "docs", "simverbs.md")
LIMIT_S = 150
ENDS = {"a0": ("10.98.0.1", "52:54:00:98:00:01"), "b0": ("10.98.0.2", "52:54:00:98:00:02")}


def shell(script):
    subprocess.run(["sh", "-ec", script], check=True)


def introduce():
    """Both ends are in one namespace, where nobody asks for the other's address."""
    for name, (_, _), (address, mac) in (("a0", *ENDS.values()), ("b0", *reversed(ENDS.values()))):
        shell(f"ip neigh replace {address} lladdr {mac} dev {name} nud permanent")


def set_up():
    """Without IPv6: addresses that come and go with the link are events, too."""
    (a, mac_a), (b, mac_b) = ENDS.values()
    shell(f"""ip link set lo up
        ip link add a0 mtu 4200 address {mac_a} type veth peer name b0 mtu 4200 address {mac_b}
        ip link set a0 addrgenmode none
        ip link set b0 addrgenmode none
        ip addr add {a}/24 dev a0
        ip addr add {b}/24 dev b0
        ip link set a0 up
        ip link set b0 up""")
    introduce()


def silence(verb, how):
    for name in ENDS:
        shell(f"tc qdisc {verb} dev {name} root {how}")


def do(what):
    """What the probe asks its driver for."""
    if what == "link up":
        shell("ip link set a0 up")
        introduce()
    elif what == "link down":
        shell("ip link set a0 down")
    elif what == "silence on":
        silence("replace", "pfifo limit 0")
    elif what == "silence off":
        silence("del", "")
    else:
        sys.exit(f"the probe asks for '{what}', which nobody here can do")


def ask(*group):
    env = {**os.environ, "LD_LIBRARY_PATH": os.path.join(BUILD, "simverbs"), "SIMVERBS_ROCE": "a0,b0",
           "SIMVERBS_ROCE_MODE": "packet"}  # fmt: skip
    process = subprocess.Popen([os.path.join(BUILD, "tests", "lab", "probe", "lab-probe"), "sv_a0", "sv_b0", *group],
                               env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)  # fmt: skip
    watchdog = threading.Timer(LIMIT_S, process.kill)
    watchdog.start()
    lines = []
    for line in process.stdout:
        line = line.rstrip("\n")
        if line.startswith("! "):
            do(line[2:])
            process.stdin.write("done\n")
        else:
            lines.append(line)
    status = process.wait()
    watchdog.cancel()
    if status:
        sys.exit(f"the probe ended with status {status} after: {lines[-1:]}")
    return lines


def main():
    set_up()
    ours = probe_answers.parse(ask())
    kernel = probe_answers.read(RECORD)
    with open(TABLE, encoding="utf-8") as file:
        listed = probe_answers.parse_table(file.read())
    faults = []
    for name in sorted(set(ours) | set(kernel)):
        right = {kernel.get(name), listed.get(name, (None,))[0]}
        if ours.get(name) not in right:
            faults.append(f"{name}: {ours.get(name)}, and not {' or '.join(map(str, right - {None}))}")
    print(f"{len(ours)} answers, {sum(ours[name] == kernel.get(name) for name in ours)} of them the kernel's, {len(faults)} faults")
    print("\n".join(faults))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    namespaces.go_inside()
    main()
