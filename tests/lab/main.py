#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts/lab."""

import argparse
import os
import signal
import sys
import time

import image
import machine
import shell
import topology

TREE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SKIP = 77


def arguments(argv):
    """What follows "--" is a command for `shell`."""
    argv, command = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, None)
    parser = argparse.ArgumentParser(
        prog="scripts/lab",
        usage="%(prog)s [one|two] [OPTION...] [DRILL...]\n       %(prog)s [one|two] shell [-- COMMAND...]",
        description="Drills with the kernel's own RDMA stack, in virtual machines; docs/testing.md.",
    )
    parser.add_argument("--build", default=os.path.join(TREE, "build"), help="the build folder (build)")
    parser.add_argument("-v", "--verbose", action="store_true", help="say what is done")
    parser.add_argument("words", nargs="*", metavar="WORD", help=argparse.SUPPRESS)
    options = parser.parse_intermixed_args(argv)
    options.lab = "one"
    if options.words[:1] and options.words[0] in ("one", "two"):
        options.lab = options.words.pop(0)
    options.command = command
    if command is not None and options.words != ["shell"]:
        parser.error('only "shell" takes a command')
    return options


def boot(name, options):
    """A lab that is up."""
    began = time.monotonic()
    build = os.path.abspath(options.build)
    cache = os.path.join(build, "lab")

    def say(text):
        if options.verbose:
            print(f"[{time.monotonic() - began:5.1f}] {text}", file=sys.stderr, flush=True)

    machine.find_qemu()
    picture = image.get(cache, say)
    kvm = machine.kvm_works(picture, cache)
    say(f"kernel {picture.release}, {'KVM' if kvm else 'software emulation'}")
    lab = topology.Lab(name, picture, build, TREE, kvm=kvm, say=say)
    say(f"lab {name} is up")
    return lab


def stop(number, _):
    """Ends the program in the ordinary way, so that the lab goes down with it."""
    sys.exit(128 + number)


def main(argv):
    options = arguments(argv)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if options.words == ["shell"]:
            with boot(options.lab, options) as lab:
                return shell.run(lab, options.command)
        sys.exit("scripts/lab: no drills yet: use shell")
    except machine.NoMachine as reason:
        print(f"SKIP: {reason}")
        return SKIP
    except (machine.LabError, image.ImageError) as error:
        print(f"scripts/lab: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
