# SPDX-License-Identifier: Apache-2.0
"""Packets from the wire, against a second implementation of the ICRC; and, with the argument `tshark`, against
tshark. What the kernel's soft RoCE sent shows first that the second implementation is right."""

import collections
import os
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import threading

import icrc
import namespaces

HERE = os.path.dirname(os.path.abspath(__file__))
KERNEL = os.path.join(HERE, "kernel-6.1.pcap")
BUILD = os.environ["BUILD"]
LIMIT_S = 20 * int(os.environ["SLACK"])
ETH_P_ALL = 3
SO_RCVBUFFORCE = 33
ROOM_BYTES = 16 << 20  # for all of a program's packets, where this gets no processor before it has ended
FRAME_BYTES = 65536
PCAP_FILE, PCAP_FRAME = struct.Struct("<IHHiIII"), struct.Struct("<IIII")
# Program, its options for both ends, GID index (1: IPv4, 2: IPv6) and how many packets of RoCE must be seen.
# Lengths that are no multiple of four are padded.
PROGRAMS = [
    ("ibv_rc_pingpong", "-s 5001 -n 30 -c", 1, 120),
    ("ibv_rc_pingpong", "-s 5001 -n 30 -c", 2, 120),
    ("ibv_ud_pingpong", "-s 999 -n 30 -c", 1, 60),
    ("ibv_ud_pingpong", "-s 999 -n 30 -c", 2, 60),
]


def frames_of(path):
    with open(path, "rb") as file:
        data = file.read()
    at = PCAP_FILE.size
    while at < len(data):
        length = PCAP_FRAME.unpack_from(data, at)[2]
        at += PCAP_FRAME.size
        yield data[at : at + length]
        at += length


def write_capture(path, frames):
    with open(path, "wb") as file:
        file.write(PCAP_FILE.pack(0xA1B2C3D4, 2, 4, 0, 0, FRAME_BYTES, 1))
        for number, frame in enumerate(frames):
            file.write(PCAP_FRAME.pack(0, number, len(frame), len(frame)) + frame)


class Listener:
    """Every frame that an interface of this namespace sends or receives, until it is left."""

    def __init__(self, interface):
        self.frames, self.over = [], threading.Event()
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        try:
            self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, ROOM_BYTES)
        except PermissionError:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self.socket.bind((interface, ETH_P_ALL))
        self.socket.settimeout(0.1)
        self.thread = threading.Thread(target=self.listen)

    def listen(self):
        while True:
            try:
                self.frames.append(self.socket.recv(FRAME_BYTES))
            except TimeoutError:
                if self.over.is_set():
                    return

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.over.set()
        self.thread.join()
        self.socket.close()


def start(host, argv):
    env = {"LD_LIBRARY_PATH": os.path.join(BUILD, "simverbs"), "SIMVERBS_ROCE": "rail0"}
    return host.start(argv, env, stdout=subprocess.DEVNULL)


def run_program(pair, program, options, gid, port):
    server, client = pair.hosts
    argv = [program, "-d", "sv_rail0", "-g", str(gid), "-p", str(port), *options.split()]
    waits = start(server, argv)
    if not namespaces.wait_listening(port, LIMIT_S):
        sys.exit(f"{program} does not listen")
    asks = start(client, [*argv, server.address])
    for process in (asks, waits):
        if process.wait(LIMIT_S):
            sys.exit(f"{program} with GID {gid} ended with status {process.returncode}")


def capture():
    """What the programs put on the wire."""
    pair, frames = namespaces.Pair(), []
    try:
        for number, (program, options, gid, least) in enumerate(PROGRAMS):
            with Listener("rail0") as listener:
                run_program(pair, program, options, gid, 7200 + number)
            seen = [frame for frame in listener.frames if icrc.packet_of(frame)]
            if len(seen) < least:
                sys.exit(f"only {len(seen)} packets of {program} with GID {gid} were seen")
            frames += seen
    finally:
        pair.close()
    return frames


def check_icrc(whose, frames, versions):
    """All are right, and no longer so with a bit of the last byte of the payload turned."""
    count, wrong = collections.Counter(), 0
    for front, udp, version in filter(None, map(icrc.packet_of, frames)):
        count[version] += 1
        turned = bytearray(udp)
        turned[-icrc.ICRC_BYTES - 1] ^= 1
        wrong += not icrc.is_right(front, udp) or icrc.is_right(front, turned)
    print(f"{whose}: {count[4]} packets over IPv4 and {count[6]} over IPv6, {wrong} wrong")
    if wrong or any(not count[version] for version in versions):
        sys.exit(1)


def check_tshark(frames):
    """It finds RoCE in every one, and none malformed or with a wrong ICRC."""
    with tempfile.NamedTemporaryFile(suffix=".pcap") as file:
        write_capture(file.name, frames)

        def found(what):
            told = subprocess.run(["tshark", "-r", file.name, "-Y", what], check=True, stdout=subprocess.PIPE, text=True)
            return told.stdout.splitlines()

        decoded, bad = found("infiniband"), found("_ws.malformed || _ws.expert.severity == error")
    print(f"tshark: {len(decoded)} of {len(frames)} decoded, {len(bad)} malformed")
    print("\n".join(bad[:10]))
    sys.exit(bool(bad) or len(decoded) != len(frames))


def main(how):
    if how == "tshark" and not shutil.which("tshark"):
        print("SKIP: this is for machines that have tshark")
        sys.exit(namespaces.SKIP)
    namespaces.go_inside()
    check_icrc("kernel", frames_of(KERNEL), (4, 6))
    ours = capture()
    check_icrc("simverbs", ours, (4, 6))
    if how == "tshark":
        check_tshark(ours)


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
