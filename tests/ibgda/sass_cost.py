#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a backup queue pair costs a thread of a GPU: machine instructions, and loads, stores and atomics among them, of a post
that nothing delays and that rings itself, with HA_IBGDA_BACKUP=1 and =0. Nothing runs: of the code that nvcc makes for
tests/ibgda/post.cu the shortest way is taken from the kernel's entry to its exit that reserves, writes the request and publishes it
(7 stores), takes the lock, rings and unlocks (4 stores), and pauses nowhere. NVIDIA does not document its encoding; what is
read here are opcodes and branches of architectures 8.0 and 9.0, and a kernel that has no such way fails this.

    sass_cost.py ROOT [--json]    figures by architecture as an object, and nothing else
"""
import collections
import heapq
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

KERNEL = "ha_post_one"
MOST = {"instructions": 8, "of memory": 1}  # more with a backup than without
SIZE = 16  # bytes of an instruction

BRANCH, EXIT, CALLS, PAUSE = 0x947, 0x94D, (0x943, 0x944, 0x950), 0x95D
SET_MEETING, MEET = 0x945, 0x941  # where threads of a warp meet again: one thread goes there
ADD, SWAP = 0x98A, 0x38B
STORES = (0x985, 0x385, 0x986)
MEMORY = (0x980, 0x981, ADD, SWAP, *STORES)
# What the way has to come by, in this order.
STOPS = [(ADD,), *[STORES] * 7, (SWAP,), *[STORES] * 4]


def kernel(path):
    """The kernel's machine code: that of its symbol in the object."""
    with open(path, "rb") as file:
        data = file.read()
    start, = struct.unpack_from("<Q", data, 0x28)
    size, count, _ = struct.unpack_from("<HHH", data, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, start + n * size) for n in range(count)]
    for section in (section for section in sections if section[1] == 2):
        names = sections[section[6]][4]
        for at in range(section[4], section[4] + section[5], 24):
            name, _, _, where, value, length = struct.unpack_from("<IBBHQQ", data, at)
            if data[names + name:].split(b"\0", 1)[0].decode() == KERNEL and length:
                begin = sections[where][4] + value
                return data[begin:begin + length]
    return sys.exit(f"{path} has no {KERNEL}")


class Instruction:
    def __init__(self, code, at, is_90):
        low, high = struct.unpack_from("<QQ", code, at)
        self.word = low | high << 64
        self.opcode = self.bits(0, 12)
        self.always = self.bits(12, 16) == 7 and (self.opcode != BRANCH or self.bits(87, 91) == 7)
        self.meeting = self.bits(16, 20)
        offset = self.signed(34, 82)
        if is_90 and self.opcode == BRANCH:
            offset = offset << 8 | self.bits(16, 24)
        self.target = (at + SIZE + 4 * offset) // SIZE

    def bits(self, low, high):
        return self.word >> low & ((1 << high - low) - 1)

    def signed(self, low, high):
        value = self.bits(low, high)
        return value - (1 << high - low) if value >> (high - low - 1) else value


def steps(code, at, meetings):
    """Where one thread may go from here: (instruction, where its warp meets)."""
    here = code[at]
    if here.opcode in (PAUSE, *CALLS):
        return
    if here.opcode == BRANCH:
        yield here.target, meetings
    elif here.opcode == MEET:
        yield dict(meetings)[here.meeting], meetings
    elif here.opcode == SET_MEETING:
        yield at + 1, tuple(sorted({**dict(meetings), here.meeting: here.target}.items()))
        return
    if here.opcode not in (BRANCH, MEET, EXIT) or not here.always:
        yield at + 1, meetings


def shortest(code):
    """Opcodes of the shortest way by all stops; by Dijkstra, over places, stops and meetings."""
    ahead, number, known = [(0, 0, 0, 0, (), None)], 0, {}
    while ahead:
        length, _, at, stops, meetings, before = heapq.heappop(ahead)
        if (at, stops, meetings) in known or not 0 <= at < len(code):
            continue
        known[at, stops, meetings] = before
        if code[at].opcode == EXIT and stops == len(STOPS):
            way, state = [], (at, stops, meetings)
            while state:
                way.append(code[state[0]].opcode)
                state = known[state]
            return way
        passed = stops + (stops < len(STOPS) and code[at].opcode in STOPS[stops])
        for to, meet in steps(code, at, meetings):
            number += 1
            heapq.heappush(ahead, (length + 1, number, to, passed, meet, (at, stops, meetings)))
    return sys.exit("there is no such way in the code: is a store missing, or is the encoding another one?")


def measure(root, folder, arch, backup):
    out = os.path.join(folder, f"{arch}-{backup}")
    subprocess.run(["nvcc", "-cubin", f"-arch=sm_{arch}", "-std=c++17", f"-DHA_IBGDA_BACKUP={backup}", f"-I{root}/include",
                    "-o", out, os.path.join(root, "tests", "ibgda", "post.cu")], check=True)
    code = kernel(out)
    way = shortest([Instruction(code, at, arch >= 90) for at in range(0, len(code), SIZE)])
    opcodes = collections.Counter(way)
    return {"instructions": len(way), "of memory": sum(opcodes[opcode] for opcode in MEMORY)}


def costs(root):
    """{architecture: {what: {with, without, more, most}}}"""
    out = {}
    with tempfile.TemporaryDirectory() as folder:
        for arch in (80, 90):
            without, backup = (measure(root, folder, arch, backup) for backup in (0, 1))
            out[f"sm_{arch}"] = {what: {"with": backup[what], "without": without[what], "more": backup[what] - without[what],
                                        "most": most} for what, most in MOST.items()}
    return out


def main():
    if not shutil.which("nvcc"):
        print("SKIP: nvcc is not installed")
        return 77
    found = costs(sys.argv[1])
    if "--json" in sys.argv:
        print(json.dumps(found))
        return 0
    for arch, figures in found.items():
        for what, figure in figures.items():
            print(f"{arch}, {what}: {figure['with']}, without a backup {figure['without']}: {figure['more']} more, "
                  f"{figure['most']} at most")
    return int(any(figure["more"] > figure["most"] for figures in found.values() for figure in figures.values()))


if __name__ == "__main__":
    sys.exit(main())
