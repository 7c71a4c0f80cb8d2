# SPDX-License-Identifier: Apache-2.0
"""Replaying a trace: ha-drill on each run, and what it says of the pauses; and the same failures, one by one, on a
job without failover."""

import json
import os
import statistics
import subprocess
import tempfile

from . import fold

HOSTS = 2  # of ha-drill's fabric
EARLY_MS = 50.0  # a pause begins with the last completion before the fault


class ReplayError(Exception):
    """ha-drill could not do its work."""


# ---- one run ----------------------------------------------------------------------------------------------


class Drill:
    """ha-drill of a build folder."""

    def __init__(self, build, slack, say):
        self.program, self.slack, self.say = os.path.join(build, "bin", "ha-drill"), slack, say
        if not os.access(self.program, os.X_OK):
            raise ReplayError(f"no {self.program}: build first")

    def run(self, script, rails, env, survive, out=None):
        """The result as ha-drill wrote it."""
        with tempfile.TemporaryDirectory(prefix="nccl-ha-soak.") as folder:
            paths = [os.path.join(folder, name) for name in ("script", "result.json")]
            with open(paths[0], "w", encoding="utf-8") as file:
                file.write(script)
            command = [self.program, "--script", paths[0], "--rails", str(rails), "--json", paths[1], "--slack", str(self.slack)]
            command += ([] if survive else ["--open"]) + (["--out", out] if out else [])
            done = run_to_its_end(command, {**os.environ, **env})
            try:
                with open(paths[1], encoding="utf-8") as file:
                    return json.load(file), done
            except (OSError, ValueError):
                raise ReplayError(f"ha-drill left no result:\n{done}") from None


def run_to_its_end(command, env):
    """What it printed. Interrupted, it is told so and takes its fabric down."""
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)
    try:
        return child.communicate()[0]
    except BaseException:
        child.terminate()
        child.communicate()
        raise


# ---- with the plugin -----------------------------------------------------------------------------------------


def own_steps(run, result):
    """{id of a Placed: its steps of the result}. ha-drill has them in the order of time, equals as written."""
    planned = [(at, placed) for placed in run.placed for at, _ in fold.steps(placed)]
    # As the script says it: to a tenth of a millisecond.
    planned.sort(key=lambda step: round(step[0], 1))
    found = {}
    for (_, placed), step in zip(planned, result["steps"]):
        found.setdefault(id(placed), []).append(step)
    return found


def fired(steps, result):
    """Whether all steps of a failure were done, and ha-drill had no complaint that one of them did nothing."""
    idle = [text for text in result["complaints"] if "proves nothing" in text or "did not take" in text]
    return all(step["at_ms"] is not None and not any(f"'{step['text']}'" in text for text in idle) for step in steps)


def pauses_ms(run, result):
    """{id of a Placed: the longest time in which a rank completed nothing}. A pause belongs to the failure whose
    step, breaking or mending, came last before it."""
    steps = sorted(((step["at_ms"], key) for key, own in own_steps(run, result).items() for step in own if step["at_ms"] is not None))
    longest = {id(placed): 0.0 for placed in run.placed}
    for stall in result["stalls"]:
        before = [key for at, key in steps if at <= stall["at_ms"] + EARLY_MS]
        if before:
            longest[before[-1]] = max(longest[before[-1]], stall["ms"])
    return longest


def with_plugin(drill, runs, rails, out=None):
    """(rows, totals): a row per failure."""
    rows, totals = [], {"wrong": 0, "checked": 0, "bytes": 0, "switches": 0, "replayed": 0, "runs": len(runs), "died": 0,
                        "seconds": 0.0, "paused_s": 0.0, "complaints": []}  # fmt: skip
    for number, run in enumerate(runs):
        drill.say(f"run {number + 1} of {len(runs)} with the plugin: {len(run.placed)} failures, {run.placed[-1].end_ms / 1000:.0f} s")
        result, printed = drill.run(run.script(), rails, {}, True, out if number == 0 else None)
        died = result["error_ms"] is not None or result["status"] != 0
        steps, pauses = own_steps(run, result), pauses_ms(run, result)
        for placed in run.placed:
            rows.append({"failure": placed.failure, "ports": placed.ports, "run": number, "fired": fired(steps[id(placed)], result),
                         "pause_ms": pauses[id(placed)], "killed": died and placed is last_before(run, result["error_ms"])})  # fmt: skip
        totals["wrong"] += result["wrong"] or 0
        totals["checked"] += result["checked"]
        totals["bytes"] += result["bytes"]
        totals["switches"] += len(result["switches"])
        totals["replayed"] += result["replayed_messages"]
        totals["died"] += died
        totals["seconds"] += result["ended_ms"] / 1000
        totals["paused_s"] += paused_s(result)
        if not result["passed"]:
            totals["complaints"] += [f"run {number + 1}: {text}" for text in result["complaints"]]
            drill.say(printed)
    return rows, totals


def paused_s(result):
    """How long rank 0 moved nothing, all pauses together."""
    return sum(stall["ms"] for stall in result["stalls"] if stall["rank"] == 0) / 1000


def last_before(run, error_ms):
    started = [placed for placed in run.placed if error_ms is None or placed.at_ms <= error_ms]
    return started[-1] if started else None


# Without failover a job is as patient as with NCCL's own transport, 34 s and more; nobody has to wait for that here.
ALONE = {"HA_NCCL_ENABLE_BACKUP": "0", "HA_NCCL_QP_TIMEOUT": "14", "HA_NCCL_RTO_MS": "1000"}


# ---- without it ------------------------------------------------------------------------------------------------


def without_plugin(drill, failures, rails, sample, hold_ms):
    """{kind: {"tried", "died", "error_ms"}}: the first `sample` failures of each kind that hardware cannot ride
    out, each on a job of its own with failover off."""
    found = {}
    for failure in failures:
        entry = found.setdefault(failure.kind, {"tried": 0, "died": 0, "error_ms": [], "wrong": 0})
        if entry["tried"] >= sample:
            continue
        drill.say(f"without failover: {failure.kind}")
        result, _ = drill.run(fold.alone(failure, HOSTS, rails, hold_ms).script(), rails, ALONE, False)
        if not any(step["at_ms"] is not None for step in result["steps"]):
            raise ReplayError(f"without failover the job ended before the {failure.kind}: {'; '.join(result['complaints'])}")
        entry["tried"] += 1
        entry["wrong"] += result["wrong"] or 0
        if result["error_ms"] is not None:
            entry["died"] += 1
            entry["error_ms"].append(result["error_ms"] - fold.LEAD_MS)
    for entry in found.values():
        entry["median_error_ms"] = statistics.median(entry["error_ms"]) if entry["error_ms"] else None
    return found
