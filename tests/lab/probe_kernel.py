# SPDX-License-Identifier: Apache-2.0
"""Runs the probe of verbs on the kernel's soft-RoCE devices, in a lab of one guest.

Devices a0 and b0 are the two ends of a pair of virtual interfaces. The probe asks for what it wants
broken on its output, which the guest writes into the shared folder; the answer goes into a pipe."""

import os
import time

import probe_answers

RECORDS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "probe")
LIMIT_S = 120
RAIL = 0


class ProbeError(Exception):
    """The probe did not come to its end."""


class Driver:
    """Breaks and mends what the probe asks for."""

    def __init__(self, lab):
        self.lab = lab

    def do(self, what):
        if what in ("link down", "link up"):
            self.lab.host("a").link(RAIL, what.split()[1])
        elif what == "silence on":
            self.traffic_control("replace", "netem loss 100%")
        elif what == "silence off":
            self.traffic_control("del", "")
        else:
            raise ProbeError(f"the probe asks for '{what}', which nobody here can do")

    def traffic_control(self, verb, how):
        """Both ends with one process: starting one takes long in an emulated guest."""
        lines = "".join(f"qdisc {verb} dev {name}{RAIL} root {how}\n" for name in ("a", "b"))
        self.lab.host("a").guest.run(f"tc -batch - <<'END'\n{lines}END")


def ask(guest, command, env, driver):
    """The lines of a probe in a guest."""
    pipe = "/run/probe.answers"
    guest.run(["mkfifo", pipe])
    process = guest.start_process(command, env, stdin=pipe)
    try:
        return converse(process, lambda: guest.run(f"echo done >{pipe}"), driver)
    finally:
        if process.poll() is None:
            process.kill()
        guest.run(["rm", pipe])


def converse(process, answer, driver):
    lines = []
    deadline = time.monotonic() + LIMIT_S
    with open(process.out, encoding="utf-8") as out:
        while True:
            ended = process.poll() is not None
            line = out.readline()
            while line.endswith("\n"):
                line = line[:-1]
                if line.startswith("! "):
                    driver.do(line[2:])
                    answer()
                else:
                    lines.append(line)
                line = out.readline()
            out.seek(out.tell() - len(line))  # not written to its end yet
            if ended:
                break
            if time.monotonic() > deadline:
                raise ProbeError(f"not at its end after {LIMIT_S} s; its last line: {lines[-1:]}")
            time.sleep(0.02)
    if process.status:
        with open(process.err, encoding="utf-8") as err:
            said = err.read().strip()
        raise ProbeError(f"status {process.status} after {lines[-1:]}: {said}")
    return lines


def check(lab, build, release):
    """Asks everything and prints the answers. Returns whether they are the recorded ones.

    The record is what simverbs is compared with in every run of the tests. It holds for one series of
    kernels; for another the answers are only shown."""
    probe = os.path.join(build, "tests", "lab", "probe", "lab-probe")
    lines = ask(lab.host("a").guest, [probe, "a0", "b0"], None, Driver(lab))
    print("\n".join([f"# Linux {release}, rdma_rxe", *lines]))
    answers = probe_answers.parse(lines)
    series = ".".join(release.split(".")[:2])
    record = os.path.join(RECORDS, f"kernel-{series}.answers")
    if not os.path.exists(record):
        print(f"# there is no record of Linux {series}: nothing to compare with")
        return True
    faults = probe_answers.changes(probe_answers.read(record), answers)
    for fault in faults:
        print(f"# {fault}")
    print(f"# {len(answers)} answers, {len(faults)} not as recorded for Linux {series}")
    return not faults
