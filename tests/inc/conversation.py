# SPDX-License-Identifier: Apache-2.0
"""What a host or a stranger says to nccl-ha-ctrld and nccl-ha-switchd, by hand, and a folder for what they are given."""

import hashlib
import hmac
import json
import os
import shutil
import socket
import struct
import tempfile
import time
import unittest

SLACK = int(os.environ["SLACK"])
TIMEOUT_S = 30 * SLACK
MAGIC, VERSION = 0x4341484E, 4
ASK, LEAVE, STATUS, SERVE, JOIN, MEMBER, COUNTS, IS_BACK, WAY, KNOW, CHANGE, VERDICT, ALL_HERE, GIVES_UP = 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14, 15
PLAN, NONE, REPORT, REFUSED, PART, OVER, GO, DRAIN, RECEIPT = 16, 17, 18, 19, 20, 21, 23, 24, 27


def wait_for(condition, limit_s=TIMEOUT_S):
    until = time.monotonic() + limit_s
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    return condition()


class Host:
    """One connection to a controller or a switch."""

    def __init__(self, address, key, version=VERSION):
        self.sock = socket.create_connection(address, timeout=TIMEOUT_S)
        self.said = self.heard = 0
        hello = self.exactly(40)
        magic, theirs, nonce = struct.unpack("<II32s", hello)
        assert (magic, theirs) == (MAGIC, VERSION), hello
        mine = os.urandom(32)
        self.sock.sendall(struct.pack("<II32s", MAGIC, version, mine))
        self.key = hmac.digest(key, b"nccl-ha controller 1\0" + mine + nonce, "sha256")

    def close(self):
        self.sock.close()

    def exactly(self, length):
        data = b""
        while len(data) < length:
            chunk = self.sock.recv(length - len(data))
            if not chunk:
                raise EOFError(f"hung up after {len(data)} of {length} bytes")
            data += chunk
        return data

    def code(self, speaker, count, head, text):
        said = struct.pack("<BBQ", speaker, 0, count) + head + hashlib.sha256(text).digest()
        return hmac.digest(self.key, said, "sha256")[:16]

    def masked(self, speaker, count, secret):
        pad = hmac.digest(self.key, b"nccl-ha mask\0" + struct.pack("<BQ", speaker, count), "sha256")
        return bytes(one ^ other for one, other in zip(secret, pad))

    def frame(self, kind, text=b"", secret=None):
        head = struct.pack("<IB3x32s", len(text), kind, self.masked(0, self.said, secret) if secret else bytes(32))
        data = head + self.code(0, self.said, head, text) + text
        self.said += 1
        return data

    def say(self, kind, text=b"", secret=None):
        self.sock.sendall(self.frame(kind, text, secret))

    def ask(self, group, rank, ranks, port, **more):
        self.say(ASK, json.dumps({"group": group, "rank": rank, "ranks": ranks, "port": port, **more}).encode())
        return self

    def hear(self):
        kind, text, secret = self.hear_bytes()
        return kind, text.decode(), secret

    def hear_bytes(self):
        """Kind, text and secret of the next frame, which is the controller's."""
        head = self.exactly(56)
        length, kind, masked, code = struct.unpack("<IB3x32s16s", head)
        text = self.exactly(length)
        assert hmac.compare_digest(code, self.code(1, self.heard, head[:40], text)), "this is not the controller's"
        self.heard += 1
        return kind, text, self.masked(1, self.heard - 1, masked)

    def hear_no_more(self):
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True


class Folder(unittest.TestCase):
    """A test with files of its own in self.top."""

    def setUp(self):
        self.top = tempfile.mkdtemp(prefix="nccl-ha-inc.")
        self.addCleanup(shutil.rmtree, self.top)

    def write(self, name, data, mode=0o644):
        path = os.path.join(self.top, name)
        with open(path, "wb") as file:
            file.write(data if isinstance(data, bytes) else data.encode())
        os.chmod(path, mode)
        return path
