# SPDX-License-Identifier: Apache-2.0
"""The USDT probes: `notes` compares those in the plugin with the table in docs/operations.md, name by name and
argument by argument; `watched` stops at them with gdb in a program that fails over, and reads their arguments."""

import os
import re
import shutil
import subprocess
import sys

LIMIT_S = 100


def skip(why):
    print(f"SKIP: {why}")
    sys.exit(77)


def fail(why):
    print(f"FAILED: {why}")
    sys.exit(1)


def output(*command, env=None):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=LIMIT_S, check=False, text=True, env={**os.environ, **(env or {})})  # fmt: skip
    return done.returncode, done.stdout


def documented():
    """From each probe's name to the names of its arguments."""
    with open(os.path.join(os.environ["DOCS"], "operations.md"), encoding="utf-8") as file:
        section = file.read().split("\n## Probes\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\w, ]+) \|", section, re.MULTILINE)
    return {name: arguments.split(", ") for name, arguments in rows}


def in_plugin():
    """From each probe's name to the numbers of arguments that it has, place by place."""
    status, text = output("readelf", "-n", os.environ["PLUGIN"])
    if status != 0:
        fail(f"readelf: {text}")
    found = {}
    for provider, name, arguments in re.findall(
        r"Provider: (\S+)\s+Name: (\S+)\s+Location: [^\n]*\n\s+Arguments:([^\n]*)", text):  # fmt: skip
        if provider == "nccl_ha":
            # One is size@operand; an operand may have a space in it, as in 4@-20(%rbp, %rax).
            found.setdefault(name, []).append(len(re.findall(r"(?:^|\s)-?\d+f?@", arguments)))
    return found


def notes():
    if not shutil.which("readelf"):
        skip("readelf is not installed")
    table, found = documented(), in_plugin()
    if len(table) < 9:
        fail(f"the table in docs/operations.md has only {sorted(table)}")
    if set(table) != set(found):
        fail(f"not in the plugin: {sorted(set(table) - set(found))}; "
             f"not in docs/operations.md: {sorted(set(found) - set(table))}")  # fmt: skip
    for name, counts in sorted(found.items()):
        print(f"{name}: {len(counts)} places, arguments {table[name]}")
        if set(counts) != {len(table[name])}:
            fail(f"{name} has {counts} arguments, and in docs/operations.md {len(table[name])}")


# A failover from an order to its end, and what the arguments must be.
WATCHED = {
    "failover_begin": (r"send (\d) reason asked for by the operator path 0 generation 1", '"%d reason %s path %d generation %d"',
                       "$_probe_arg1, (char *)$_probe_arg2, (int)$_probe_arg3, (int)$_probe_arg4"),
    "failover_resume": (r"send (\d) epoch 2 path 1 generation 1", '"%d epoch %d path %d generation %d"',
                        "$_probe_arg1, (int)$_probe_arg2, (int)$_probe_arg3, (int)$_probe_arg4"),
    "failover_end": (r"send (\d) reason asked for by the operator", '"%d reason %s"',
                     "$_probe_arg1, (char *)$_probe_arg2"),
}  # fmt: skip


def watched():
    if not shutil.which("gdb"):
        skip("gdb is not installed")
    commands = ["set pagination off", "set debuginfod enabled off", "set print address off"]
    for name, (_, text, arguments) in WATCHED.items():
        text = text.replace('"', f'"@{name} send ', 1)[:-1] + '\\n"'
        commands += [f"break -probe-stap nccl_ha:{name}", f"commands\nsilent\nprintf {text}, {arguments}\ncontinue\nend"]
    script = "\n".join([*commands, "run", "quit"])
    path = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"usdt-{os.getpid()}.gdb")
    with open(path, "w", encoding="ascii") as file:
        file.write(script)
    try:
        _, text = output("gdb", "-q", "-batch", "-nx", "-x", path, os.environ["PROGRAM"],
                         env={"HA_TEST_FILTER": "a_drained_port_is_left_and_its_failure_is_none"})  # fmt: skip
    finally:
        os.unlink(path)
    if re.search(r"ptrace: Operation not permitted|Couldn't get registers", text):
        skip("this system lets nobody trace")
    if "PASSED" not in text:
        fail(f"the program did not get to its end:\n{text}")
    for name, (pattern, _, _) in WATCHED.items():
        ends = re.findall(rf"^@{name} {pattern}", text, re.MULTILINE)
        print(f"{name}: stopped at {len(ends)} times")
        # The test has two failovers, each with a sender and a receiver.
        if sorted(ends) != ["0", "0", "1", "1"]:
            fail(f"{name}: not twice at each end with these arguments:\n{text}")


if os.environ.get("HAVE_SDT") != "1":
    skip("built without sys/sdt.h")
{"notes": notes, "watched": watched}[sys.argv[1]]()
