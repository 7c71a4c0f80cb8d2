#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts/lab."""

import argparse
import os
import shutil
import signal
import sys
import time

import acceptance
import conduct
import drills
import image
import inc
import judge
import machine
import probe_between
import probe_kernel
import roce
import roce_speed
import shell
import standstill
import table
import topology

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join(TREE, "docs", "simverbs.md")
SKIP = 77
LABS_TO_GIVE_UP = 2  # in a round, because of their machines


def arguments(argv):
    """What follows "--" is a command for `shell`."""
    argv, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, None)
    parser = argparse.ArgumentParser(
        prog="scripts/lab",
        usage="%(prog)s [one|two] [OPTION...] [DRILL...]\n       %(prog)s [one|two|three] shell [-- COMMAND...]\n"
        "       %(prog)s [one|two] probe\n       %(prog)s two roce\n       %(prog)s three inc\n       %(prog)s one roce-speed\n       %(prog)s [one|two] acceptance [-- OPTION...]\n       %(prog)s image",
        description="Drills with the kernel's own RDMA stack, in virtual machines; docs/testing.md.",
    )
    parser.add_argument("--build", default=os.path.join(TREE, "build"), help="the build folder (build)")
    parser.add_argument("--plugin", metavar="FILE", help="another plugin than the build folder's, below that folder")
    parser.add_argument("--list", action="store_true", help="list the drills")
    parser.add_argument("--short", action="store_true", help="only the drills of the lab's short form, which repeats nothing")
    parser.add_argument("--repeat", type=int, default=1, metavar="N", help="everything N times, a new lab each time")
    parser.add_argument("--json", metavar="FILE", help="write every row of every round")
    parser.add_argument("--keep", metavar="DIR", help="keep logs, event logs and reports")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is done")
    parser.add_argument("words", nargs="*", metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args(argv)
    options.build = os.path.abspath(options.build)
    options.plugin = os.path.abspath(options.plugin or os.path.join(options.build, "libnccl-net-ha.so"))
    if os.path.commonpath((options.plugin, options.build)) != options.build:
        parser.error(f"--plugin: {options.plugin} is not below {options.build}, which is what a guest sees")
    options.lab = "one"
    if options.words[:1] and options.words[0] in ("one", "two", "three"):
        options.lab = options.words.pop(0)
    options.command = command
    if command is not None and options.words not in (["shell"], ["acceptance"]):
        parser.error('only "shell" takes a command, and "acceptance" options')
    if options.lab == "three" and options.words not in (["inc"], ["shell"]):
        parser.error("lab three has inc and shell")
    if options.words not in (["shell"], ["image"], ["probe"], ["roce"], ["roce-speed"], ["acceptance"], ["inc"]):
        choose(parser, options)
    elif options.words == ["inc"] and options.lab != "three":
        parser.error("inc runs in lab three")
    elif options.words == ["roce"] and options.lab != "two":
        parser.error("roce runs in lab two")
    elif options.words == ["roce-speed"] and options.lab != "one":
        parser.error("roce-speed runs in lab one")
    return options


def choose(parser, options):
    """The drills that are asked for, in the table's order."""
    here = [drill for drill in drills.DRILLS if options.lab in (drill.short if options.short else drill.labs)]
    unknown = set(options.words) - {drill.name for drill in here}
    if unknown:
        parser.error(f"lab {options.lab} has no drill called {', '.join(sorted(unknown))}: see --list")
    options.drills = [drill for drill in here if drill.name in options.words or not options.words]


def sayer(options):
    """Says with -v what is done, and when."""
    began = time.monotonic()

    def say(text):
        if options.verbose:
            print(f"[{time.monotonic() - began:5.1f}] {text}", file=sys.stderr, flush=True)

    return say


def prepare(options, say):
    """What every boot needs, and the first makes: the image, and whether KVM works."""
    machine.find_qemu()
    cache = os.path.join(options.build, "lab")
    picture = image.get(cache, say)
    kvm = machine.kvm_works(picture, cache)
    say(f"kernel {picture.release}, {'KVM' if kvm else 'software emulation'}")
    return picture, kvm


def boot(name, options):
    """A lab that is up."""
    say = sayer(options)
    picture, kvm = prepare(options, say)
    lab = topology.Lab(name, picture, options.build, TREE, kvm=kvm, say=say)
    say(f"lab {name} is up")
    return lab


def round_of(options, say):
    """All drills once, in a lab of their own. Returns rows."""
    rows, left, given_up = [], list(options.drills), 0
    while left:
        with boot(options.lab, options) as lab:
            try:
                rows += conduct.run_drills(lab, options.build, options.plugin, left, say)
            except conduct.StuckCards as error:
                given_up += 1
                if given_up > LABS_TO_GIVE_UP:
                    raise machine.LabError(f"{error}, in {given_up} labs") from None
                rows += error.rows
                print(f"lab {options.lab} given up: {error}; what it was at is done again in a new one", flush=True)
            finally:
                if options.keep:
                    shutil.copytree(lab.folder.path, os.path.join(options.keep, str(time.time_ns())))
    return rows


def run_drills(options):
    """Prints a table. Returns whether all drills passed."""

    def say(text):
        if options.verbose:
            print(text, file=sys.stderr, flush=True)

    rounds, slow = [], 0
    for number in range(options.repeat):
        began_ns = time.monotonic_ns()
        stolen = standstill.Record(began_ns, machine.stolen_ns())
        rounds.append(round_of(options, say))
        print(table.of_rows(rounds[-1]))
        print(table.of_events(rounds[-1]))
        if complaint := judge.complaint_of(rounds[-1]):
            slow += 1
            print(f"FAILED: {complaint}")
        ended_ns = time.monotonic_ns()
        stolen.read(ended_ns, machine.stolen_ns())
        took_s, lost_s = (ended_ns - began_ns) / 1e9, stolen.lost_ns(began_ns, ended_ns) / 1e9
        print(f"lab {options.lab}, round {number + 1} of {options.repeat}: {took_s:.0f} s, {lost_s / took_s:.1%} of them "
              "without a processor that another machine had\n", flush=True)  # fmt: skip
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            file.write(table.as_json(rounds) + "\n")
    if options.repeat > 1:
        rows = [row for rows in rounds for row in rows]
        print(table.of_rounds(rounds))
        print(table.of_events(rows))
    failed = [row for rows in rounds for row in rows if row.complaints]
    too_slow = f", {slow} of {options.repeat} rounds beyond the limit for links that go down" if slow else ""
    print(f"{sum(map(len, rounds)) - len(failed)} drills passed, {len(failed)} failed{too_slow}")
    return not failed and not slow


def stop(number, _):
    """Ends the program in the ordinary way, so that the lab goes down with it."""
    sys.exit(128 + number)


def main(argv):
    options = arguments(argv)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if options.words == ["image"]:
            prepare(options, sayer(options))
            return 0
        if options.words == ["shell"]:
            with boot(options.lab, options) as lab:
                return shell.run(lab, options.command)
        if options.words == ["probe"]:
            with boot(options.lab, options) as lab:
                if options.lab == "two":
                    return 0 if probe_between.check(lab, options.build, options.plugin, TABLE) else 1
                release = lab.host("a").run(["uname", "-r"]).out.strip()
                return 0 if probe_kernel.check(lab, options.build, release) else 1
        if options.words == ["roce"]:
            with boot(options.lab, options) as lab:
                return 0 if roce.check(lab, options.build, options.plugin, options.short) else 1
        if options.words == ["inc"]:
            with boot("three", options) as lab:
                return 0 if inc.check(lab, options.build, options.plugin) else 1
        if options.words == ["roce-speed"]:
            with boot(options.lab, options) as lab:
                return 0 if roce_speed.check(lab, options.build) else 1
        if options.words == ["acceptance"]:
            with boot(options.lab, options) as lab:
                return 0 if acceptance.check(lab, TREE, options.build, options.command or ()) else 1
        if options.list:
            print(table.of_drills(options.drills, options.lab))
            return 0
        return 0 if run_drills(options) else 1
    except machine.NoMachine as reason:
        print(f"SKIP: {reason}")
        return SKIP
    except (machine.LabError, image.ImageError, probe_kernel.ProbeError) as error:
        print(f"scripts/lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
