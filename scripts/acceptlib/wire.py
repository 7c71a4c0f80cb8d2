# SPDX-License-Identifier: Apache-2.0
"""How the conductor of the acceptance talks to a node: one request, one answer, a line of JSON each, over
the standard streams of whatever starts the node's half, or over TCP.

Over TCP each line carries a code that only who knows the token can make, over all that was said before: a
stranger on the port cannot have anything done. What is said can be read by who listens on the way."""

import hashlib
import hmac
import json
import os
import re
import secrets
import select
import shlex
import signal
import socket
import subprocess
import time

MARK = b"@ha "  # lines without it are banners of a launcher
PROTOCOL = 1
LINE_MAX = 64 << 20
STRANGERS_LINE_MAX = 4 << 10  # of who has not proved yet that it knows the token


class NodeError(Exception):
    """A node that cannot be reached, or could not do what it was asked to."""


# ---- lines ------------------------------------------------------------------------------------------


class Stream:
    """Two file descriptors. Pair with close()."""

    def __init__(self, read_fd, write_fd, on_close=lambda: None):
        self.read_fd, self.write_fd, self.on_close = read_fd, write_fd, on_close
        self.buffer = b""
        self.banners = []
        self.line_max = LINE_MAX

    def send(self, line):
        data = MARK + line + b"\n"
        while data:
            data = data[os.write(self.write_fd, data) :]

    def receive(self, limit_s=None):
        """The next line, or None at the end. NodeError when it takes longer than limit_s."""
        until = None if limit_s is None else time.monotonic() + limit_s
        while True:
            while b"\n" in self.buffer:
                line, self.buffer = self.buffer.split(b"\n", 1)
                if len(line) > self.line_max:
                    raise NodeError("a line that is too long came in")
                if line.startswith(MARK):
                    return line[len(MARK) :]
                self.banners = [*self.banners, line.decode(errors="replace")][-20:]
            if len(self.buffer) > self.line_max:
                raise NodeError("a line without an end came in")
            left = None if until is None else max(0.0, until - time.monotonic())
            ready, _, _ = select.select([self.read_fd], [], [], left)
            if not ready:
                raise NodeError(f"no answer within {limit_s:.0f} s")
            data = os.read(self.read_fd, 1 << 16)
            if not data:
                return None
            self.buffer += data

    def close(self):
        self.on_close()


class Sealed:
    """A stream whose lines carry a code each. Both ends start with `nonce`, made of both their parts."""

    def __init__(self, stream, token, nonce, ours, theirs):
        self.stream, self.key = stream, hashlib.sha256(token.encode() + nonce).digest()
        self.sent, self.received = [ours, 0], [theirs, 0]

    @property
    def banners(self):
        return self.stream.banners

    def code(self, counter, line):
        counter[1] += 1
        return hmac.new(self.key, f"{counter[0]} {counter[1]} ".encode() + line, "sha256").hexdigest().encode()

    def send(self, line):
        self.stream.send(self.code(self.sent, line) + b" " + line)

    def receive(self, limit_s=None):
        got = self.stream.receive(limit_s)
        if got is None:
            return None
        code, _, line = got.partition(b" ")
        if not hmac.compare_digest(code, self.code(self.received, line)):
            raise NodeError("a line with a wrong code came in: are the token and the job key (HA_NCCL_JOB_KEY_FILE) the same at both ends?")
        return line

    def close(self):
        self.stream.close()


def to_object(line):
    """A line as an object of JSON. NodeError when it is none."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise NodeError("a line that makes no sense came in: has the other half the same version?")
    return value


# ---- calls ------------------------------------------------------------------------------------------


class Caller:
    """The conductor's end."""

    def __init__(self, stream):
        self.stream = stream
        self.number = 0

    def call(self, op, answer_s=60, **more):
        self.number += 1
        request = {"id": self.number, "op": op, **more}
        try:
            self.stream.send(json.dumps(request).encode())
            line = self.stream.receive(answer_s)
        except OSError:
            line = None
        if line is None:
            said = "; ".join(self.stream.banners[-5:])
            raise NodeError(f"{op}: the node's half has ended{': ' + said if said else ''}")
        answer = to_object(line)
        if answer.get("id") != self.number or not ("result" in answer or "error" in answer):
            raise NodeError(f"{op}: an answer to something else came in")
        if "error" in answer:
            raise NodeError(answer["error"])
        return answer["result"]

    def close(self):
        self.stream.close()


def serve(stream, handlers):
    """The node's end: until the conductor goes away."""
    while True:
        line = stream.receive()
        if line is None:
            return
        request = to_object(line)
        number, op = request.pop("id", None), request.pop("op", None)
        try:
            if op not in handlers:
                raise NodeError(f"this half knows no '{op}': both nodes need the same version of the script")
            answer = {"id": number, "result": handlers[op](**request)}
        except (NodeError, OSError, ValueError, TypeError, subprocess.SubprocessError) as error:
            answer = {"id": number, "error": f"{op}: {error}"}
        stream.send(json.dumps(answer).encode())


# ---- ways to a node ---------------------------------------------------------------------------------


def through(command):
    """The node's half as a child of this command (ssh, srun, …), on its standard streams."""
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)

    def close():
        # It ends by itself when its input does, having put everything back; a launcher may need a push.
        child.stdin.close()
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                os.killpg(child.pid, number)
            try:
                child.wait(timeout=20)
                break
            except subprocess.TimeoutExpired:
                pass
        child.stdout.close()

    return Stream(child.stdout.fileno(), child.stdin.fileno(), close)


def ssh_command(host, argv, options=()):
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", *options, host, shlex.join(argv)]


def parse_place(text):
    """HOST:PORT, with [ADDRESS]:PORT for IPv6."""
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"'{text}' is not HOST:PORT")
    return host.strip("[]"), int(port)


def of_socket(sock, token, ours, theirs):
    """Both ends tell each other half of a nonce; the codes prove the rest."""
    stream = Stream(sock.fileno(), sock.fileno(), sock.close)
    stream.line_max = STRANGERS_LINE_MAX
    mine = secrets.token_bytes(16)
    stream.send(mine.hex().encode())
    line = stream.receive(10)
    if line is None or not re.fullmatch(b"[0-9a-f]{32}", line):
        raise NodeError("the other end is no half of this script")
    other = bytes.fromhex(line.decode())
    sealed = Sealed(stream, token, b"".join(sorted((mine, other))), ours, theirs)
    sealed.send(b"hello")
    if sealed.receive(10) != b"hello":
        raise NodeError("the other end is no half of this script")
    stream.line_max = LINE_MAX
    return sealed


def connect(place, token, limit_s=60):
    """The other half may be started a moment later."""
    host, port = parse_place(place)
    until = time.monotonic() + limit_s
    while True:
        try:
            sock = socket.create_connection((host, port), timeout=10)
            break
        except OSError as error:
            if time.monotonic() > until:
                raise NodeError(f"nobody listens at {place}: {error}") from None
            time.sleep(0.5)
    sock.settimeout(None)
    return of_socket(sock, token, "conductor", "node"), sock.getsockname()[0], sock.getpeername()[0]


def accept(listener, token, say, only_from=None):
    """The first who knows the token, and comes from that address if one is given. Strangers are turned away."""
    while True:
        sock, (address, *_) = listener.accept()
        if only_from not in (None, address):
            say(f"turned away {address}: it is not {only_from}")
            sock.close()
            continue
        try:
            return of_socket(sock, token, "node", "conductor"), address
        except (NodeError, OSError, ValueError) as error:
            say(f"turned away {address}: {error}")
            sock.close()
