#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts/soak --generate and --trace."""

import argparse
import os
import signal
import sys
import time

sys.dont_write_bytecode = True  # nothing but sources beside the scripts
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "scripts"))
from soaklib import account, failurerates, failuretrace, fold, replay, report  # noqa: E402

DAY = 86400.0
START = time.monotonic()


def duration(text):
    try:
        return failuretrace.parse_time(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def rate(text):
    """'0.05%' or '0.0005'"""
    number = text.rstrip("%")
    try:
        value = float(number) / (100 if number != text else 1)
    except ValueError:
        value = -1
    if not 0 <= value <= 100:
        raise argparse.ArgumentTypeError(f"'{text}' is no rate like 0.057%")
    return value


def count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def arguments(argv):
    kinds = "\n".join(f"  {kind.name:<14} {kind.what}" for kind in failuretrace.KINDS.values())
    parser = argparse.ArgumentParser(prog="scripts/soak", formatter_class=argparse.RawDescriptionHelpFormatter,
                                     description="Makes a failure trace from published rates, or replays one under checked traffic.",
                                     epilog=failuretrace.__doc__.split("\n", 2)[2] + "\nkinds:\n" + kinds)  # fmt: skip
    parser.add_argument("--trace", metavar="FILE", help="replay this one; with --generate: write it")
    parser.add_argument("--generate", action="store_true", help="make a trace: to --trace FILE, or print it")
    made = parser.add_argument_group("--generate")
    made.add_argument("--days", type=float, default=54.0, help="how long (54)")
    made.add_argument("--hosts", type=count, default=2048, help="of the cluster (2048)")
    made.add_argument("--rails", type=count, default=8, help="NICs of a host, each on its rail (8)")
    made.add_argument("--gpus", type=count, default=8, help="of a host (8)")
    made.add_argument("--hosts-per-switch", type=count, default=128, help="of a rail (128)")
    made.add_argument("--rates", choices=("hpn", "llama3"), default="hpn", help="whose (hpn); the trace names the sources")
    made.add_argument("--links", type=rate, metavar="RATE", help="of links that fail in a month, instead")
    made.add_argument("--switches", type=rate, metavar="RATE", help="of switches that fail in a month, instead")
    made.add_argument("--flaps", type=rate, default=0.0005, metavar="RATE", help="flaps of a link in a month; assumed (0.05%%)")
    made.add_argument("--silent", type=rate, default=0.1, metavar="PART", help="of the failures, those that no port notices; assumed (10%%)")
    made.add_argument("--repair-link", type=duration, default=4 * 3600.0, metavar="TIME", help="mean; assumed (4h)")
    made.add_argument("--repair-switch", type=duration, default=2 * 3600.0, metavar="TIME", help="mean; assumed (2h)")
    made.add_argument("--repair-nic", type=duration, default=4 * 3600.0, metavar="TIME", help="mean; assumed (4h)")
    made.add_argument("--flap", type=duration, default=10.0, metavar="TIME", help="how long a link flaps; mean, assumed (10s)")
    made.add_argument("--network-only", action="store_true", help="leave out GPUs, hosts and software")
    made.add_argument("--seed", type=int, default=1, help="the same seed, the same trace (1)")
    played = parser.add_argument_group("--trace")
    played.add_argument("--accelerate", type=float, default=100000.0, metavar="N", help="divide the time between two changes by it (100000)")
    played.add_argument("--settle", type=float, default=800.0, metavar="MS", help="... but not below this (800): silence takes three heartbeats to notice")
    played.add_argument("--fabric-rails", type=count, default=4, metavar="N", help="of the simulated fabric (4)")
    played.add_argument("--restart", type=duration, default=3600.0, metavar="TIME", help="what a restart costs, lost work included (1h)")
    played.add_argument("--rides-out", type=float, default=34.0, metavar="S", help="without the plugin, failures shorter than this cost a pause only: NCCL's hardware retries (34)")
    played.add_argument("--sample", type=int, default=3, metavar="N", help="failures of each kind that are tried without failover (3); 0: none, as if each were deadly at once")
    played.add_argument("--slack", type=float, default=1.0, help="for slow machines, as of ha-drill (1)")
    played.add_argument("--out", metavar="DIR", default=os.path.join(ROOT, "build", "soak"), help="where the report goes (build/soak)")
    played.add_argument("--show-script", action="store_true", help="print ha-drill's scripts and do nothing")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if not options.trace and not options.generate:
        parser.error("--generate, --trace FILE, or both")
    if not 2 <= options.fabric_rails <= 16 or options.rails > failuretrace.MAX_RAILS or options.hosts < 2:
        parser.error("a fabric for a replay has 2 to 16 rails; a cluster at least 2 hosts and at most 16 rails")
    if options.accelerate < 1 or options.settle < 50 or options.days <= 0 or options.silent > 1 or options.sample < 0:
        parser.error("--accelerate is at least 1, --settle at least 50 ms, --days more than 0, --silent at most 100%, --sample at least 0")
    return options


def model_of(o):
    return failurerates.Model(
        hosts=o.hosts, rails=o.rails, gpus_per_host=o.gpus, hosts_per_switch=o.hosts_per_switch, profile=o.rates, links_per_month=o.links,
        switches_per_month=o.switches, flaps_per_month=o.flaps, silent=o.silent, repair_link_s=o.repair_link, repair_switch_s=o.repair_switch,
        repair_nic_s=o.repair_nic, flap_s=o.flap, others=not o.network_only,
    )  # fmt: skip


def generate(options):
    model = model_of(options)
    trace = failurerates.generate(model, options.days, options.seed)
    text = failuretrace.write(trace, model.comments(options.days, options.seed))
    failuretrace.parse(text)  # what is written can be read
    if not options.trace:
        sys.stdout.write(text)
        return
    with open(options.trace, "w", encoding="utf-8") as file:
        file.write(text)
    print(f"{options.trace}: {len(trace.failures)} failures in {options.days:g} days")


def play(options):
    with open(options.trace, encoding="utf-8") as file:
        trace = failuretrace.parse(file.read(), options.trace)
    runs, homeless = fold.fold(trace, replay.HOSTS, options.fabric_rails, options.accelerate, options.settle)
    if options.show_script:
        for number, run in enumerate(runs):
            print(f"# run {number + 1}\n{run.script()}", end="")
        return True

    def say(text):
        print(f"[{time.monotonic() - START:4.0f}s] {text}", flush=True)

    drill = replay.Drill(options.build, options.slack, say)
    os.makedirs(options.out, exist_ok=True)
    rows, totals = replay.with_plugin(drill, runs, options.fabric_rails, options.out)
    deadly = [row["failure"] for row in rows if not account.rides_out(row["failure"], options.rides_out)]
    without = replay.without_plugin(drill, deadly, options.fabric_rails, options.sample, 8000.0)
    result = report.Result(trace, options.trace, options, rows, totals, homeless, without)
    print("\n" + result.text() + "\n")
    for name in result.write(options.out):
        print(name)
    return not result.complaints()


def stop(number, _):
    sys.exit(128 + number)


def main(argv):
    options = arguments(argv)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    try:
        if options.generate:
            generate(options)
            return 0
        return 0 if play(options) else 1
    except (failuretrace.TraceError, replay.ReplayError, OSError) as error:
        print(f"scripts/soak: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
