# SPDX-License-Identifier: Apache-2.0
"""A link that is down for a while, and comes up again whatever happens to who asked for it.

The holder is a process in a session of its own that ignores signals. It takes the link down when it is told
to and brings it up again when it is told to, when its input ends (who asked for it is gone, killed
perhaps), or when its time is over, whatever comes first. There is no other way by which a link comes up
again here, so that this one is taken every time.

    python3 hold.py '{"down": [ARGV…], "up": [ARGV…], "limit_s": N}'

Input: "down", then "up". Output: a line of JSON after each."""

import json
import os
import select
import signal
import subprocess
import sys
import time

COMMAND_LIMIT_S = 20
TRIES = 20  # of what must be undone
PAUSE_S = 0.5


class HoldError(Exception):
    """The link could not be taken down, or not be brought up again."""


# ---- who asks ----------------------------------------------------------------------------------------


class Hold:
    """Pair with release(), which may be called twice."""

    def __init__(self, down, up, limit_s):
        self.plan = {"down": down, "up": up, "limit_s": limit_s}
        command = [sys.executable, "-B", os.path.abspath(__file__), json.dumps(self.plan)]
        self.holder = subprocess.Popen(
            command, bufsize=0, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
        )
        self.released = None
        self.listen(COMMAND_LIMIT_S)  # it is there, and ignores signals

    def listen(self, limit_s):
        ready, _, _ = select.select([self.holder.stdout], [], [], limit_s)
        line = self.holder.stdout.readline() if ready else b""
        if not line:
            raise HoldError("the process that holds the link is gone or does not answer")
        answer = json.loads(line)
        if answer.get("error"):
            raise HoldError(answer["error"])
        return answer

    def say(self, word):
        try:
            self.holder.stdin.write(word.encode() + b"\n")
        except OSError:
            pass  # it says in vain what became of it: listen() notices

    def down(self):
        """CLOCK_MONOTONIC before and after."""
        self.say("down")
        return self.listen(COMMAND_LIMIT_S * len(self.plan["down"]) + 5)["at_ns"]

    def release(self):
        """CLOCK_MONOTONIC before and after. HoldError: the link may still be down."""
        if self.released:
            return self.released
        try:
            self.say("up")
            self.released = self.listen(TRIES * (COMMAND_LIMIT_S + PAUSE_S) * len(self.plan["up"]) + 5)["at_ns"]
        except HoldError:
            # Somebody killed even the holder.
            self.released = undo(self.plan["up"])
        finally:
            self.holder.stdin.close()
            self.holder.wait()
            self.holder.stdout.close()
        return self.released


# ---- the holder --------------------------------------------------------------------------------------


def run(argv):
    """What went wrong, or None."""
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=COMMAND_LIMIT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(argv)}: {error}"
    if done.returncode == 0:
        return None
    return f"{' '.join(argv)}: status {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"


def do(commands):
    before = time.monotonic_ns()
    for argv in commands:
        wrong = run(argv)
        if wrong:
            raise HoldError(wrong)
    return before, time.monotonic_ns()


def undo(commands):
    """Every command until it succeeds, and the others also when one never does."""
    before, wrong = time.monotonic_ns(), []
    for argv in commands:
        for _ in range(TRIES):
            last = run(argv)
            if not last:
                break
            time.sleep(PAUSE_S)
        else:
            wrong.append(last)
    if wrong:
        raise HoldError("; ".join(wrong))
    return before, time.monotonic_ns()


def tell(**answer):
    try:
        print(json.dumps(answer), flush=True)
    except OSError:
        pass  # nobody listens any more


def wait_for(word, until):
    """Until the word comes, the input ends or the time is over. Returns whether it was the word."""
    while True:
        ready, _, _ = select.select([0], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return False
        line = os.read(0, 100)
        if not line or word in line.decode(errors="replace").split():
            return bool(line)


def main(argv):
    plan = json.loads(argv[1])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    tell(ready=True)
    if not wait_for("down", time.monotonic() + 3600):
        return 0
    try:
        tell(at_ns=do(plan["down"]))
        wait_for("up", time.monotonic() + plan["limit_s"])
    except HoldError as error:
        tell(error=str(error))  # what it did may be half done: undone all the same
    try:
        tell(at_ns=undo(plan["up"]))
    except HoldError as error:
        tell(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
