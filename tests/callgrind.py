# SPDX-License-Identifier: Apache-2.0
"""Programs under callgrind, and the files that it writes."""
import re
import subprocess
import sys


def run(program, out, *options, arguments=()):
    """What the program says on its stdout; the costs come to the file OUT, or to OUT.1 and so on."""
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", "--compress-pos=no", *options, program, *arguments]
    try:
        done = subprocess.run(command, text=True, check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except FileNotFoundError:
        sys.exit("valgrind is missing (package valgrind)")
    if done.returncode != 0:
        sys.exit(f"{program} ends with {done.returncode} under valgrind:\n{done.stderr}")
    return done.stdout


def costs(path):
    """(function, is_call, numbers) of each line of costs: of the function's own, or of all below a call that it makes."""
    names, inside, is_call = {}, "", False
    with open(path, encoding="ascii", errors="replace") as lines:
        for line in lines:
            match = re.match(r"^(c?fn)=\((\d+)\)(?: (.*))?$", line.rstrip("\n"))
            if match:
                kind, number, name = match.groups()
                if name:
                    names[number] = re.sub(r"'\d+$", "", name)
                if kind == "fn":
                    inside = names[number]
            elif line.startswith("calls="):
                is_call = True
            elif re.match(r"^[+*0-9-]+ \d", line):
                yield inside, is_call, [int(word) for word in line.split()[1:]]
                is_call = False
