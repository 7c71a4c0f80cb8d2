# SPDX-License-Identifier: Apache-2.0
"""Any bytes as what comes from the other half of scripts/acceptance: it is refused with one kind of error
that says why, or read; nothing else is raised, and nothing is waited for that does not come.

    fuzz_acceptlib.py [--runs N] [--seed N] [--minutes N] [--corpus DIRECTORY] [FILE...]

An input is a byte that says who hears it and the bytes. One that fails is written to crash-fuzz_acceptlib.
"""

import argparse
import json
import os
import pathlib
import random
import socket
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
from acceptlib import wire  # noqa: E402

TOKEN = "token"
NONCE = bytes(16)
MAX = 4096

SEEDS = [
    b'\x00@ha {"id": 1, "result": {"a": [1, 2]}}\n',
    b'\x00banner\n@ha {"id": 1, "error": "it is broken"}\n',
    b'\x00@ha {"id": 1}\n',
    b"\x00@ha [1]\n",
    b"\x00@ha " + b"[" * 3000 + b"\n",
    b'\x01@ha {"id": 1, "op": "echo", "a": 1}\n@ha {"id": 2, "op": "none"}\n',
    b'\x01@ha {"op": ["echo"], "id": {}}\n@ha null\n',
    b'\x01@ha {"id": 1, "op": "echo", "\\ud800": 1}\n',
    b'\x02{"id": 1, "op": "echo"}',
    b"\x03@ha " + b"0" * 32 + b"\n@ha 00 hello\n",
    b"\x03@ha " + b"\xff" * 32 + b"\n",
    b"\x03GET / HTTP/1.1\r\n\r\n",
]


def pair(said):
    """Two ends of a socket, on the other of which this was said, and no more will be."""
    ours, theirs = socket.socketpair()
    theirs.sendall(said)
    theirs.shutdown(socket.SHUT_WR)
    return ours, theirs


def stream(sock):
    return wire.Stream(sock.fileno(), sock.fileno())


def to_conductor(said):
    ours, theirs = pair(said)
    with ours, theirs:
        wire.Caller(stream(ours)).call("status", answer_s=5)


def answers(theirs):
    """Whatever a node answers can be read."""
    theirs.setblocking(False)
    try:
        heard = theirs.recv(1 << 20)
    except BlockingIOError:
        return
    for line in heard.splitlines():
        assert line.startswith(wire.MARK), line
        answer = json.loads(line[len(wire.MARK) :])
        assert "result" in answer or "error" in answer, answer


def to_node(said):
    ours, theirs = pair(said)
    with ours, theirs:
        try:
            wire.serve(stream(ours), {"echo": lambda **more: more})
        finally:
            answers(theirs)


def sealed(said):
    """As who knows the token says it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        line = said.replace(b"\n", b" ")
        wire.Sealed(stream(theirs), TOKEN, NONCE, "conductor", "node").send(line)
        theirs.shutdown(socket.SHUT_WR)
        got = wire.Sealed(stream(ours), TOKEN, NONCE, "node", "conductor").receive(5)
        assert got == line, (got, line)


def to_listener(said):
    ours, theirs = pair(said)
    with theirs:
        try:
            wire.of_socket(ours, TOKEN, "node", "conductor")
            raise AssertionError("a stranger was let in")
        finally:
            ours.close()


HEARERS = [to_conductor, to_node, sealed, to_listener]


def run(data):
    if not data:
        return
    try:
        HEARERS[data[0] % len(HEARERS)](data[1:])
    except wire.NodeError as error:
        assert str(error)


# ---- inputs -----------------------------------------------------------------------------------------


def mutate(chance, data, others):
    data = bytearray(data)
    for _ in range(chance.randint(1, 6)):
        at = chance.randint(0, len(data))
        how = chance.randrange(5)
        if how == 0 and data:
            data[at % len(data)] ^= 1 << chance.randrange(8)
        elif how == 1 and data:
            data[at % len(data)] = chance.choice(b'\n@"{}[]:, 0\\\xff')
        elif how == 2:
            del data[at : at + chance.randint(1, 20)]
        elif how == 3:
            data[at:at] = chance.choice(others)[: chance.randint(1, 60)]
        else:
            data[at:at] = bytes([chance.choice(b'[{"9 a')]) * chance.randint(1, 300)
    return bytes(data[:MAX])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--minutes", type=float, help="instead of --runs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", type=pathlib.Path)
    parser.add_argument("files", nargs="*", type=pathlib.Path)
    args = parser.parse_args()
    inputs = SEEDS + [path.read_bytes() for path in sorted(args.corpus.iterdir())] if args.corpus else SEEDS
    if args.files:
        inputs = [path.read_bytes() for path in args.files]
        args.runs = len(inputs)
    chance = random.Random(args.seed)
    until = time.monotonic() + 60 * args.minutes if args.minutes else None
    done = 0
    while time.monotonic() < until if until else done < args.runs:
        data = inputs[done] if done < len(inputs) else mutate(chance, chance.choice(inputs), inputs)
        try:
            run(data)
        except Exception:
            pathlib.Path("crash-fuzz_acceptlib").write_bytes(data)
            traceback.print_exc()
            print(f"{data!r}\nfuzz: run again with {os.getcwd()}/crash-fuzz_acceptlib", file=sys.stderr)
            return 1
        done += 1
    print(f"{done} inputs from seed {args.seed}: all well")
    return 0


if __name__ == "__main__":
    sys.exit(main())
