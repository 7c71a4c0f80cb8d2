# SPDX-License-Identifier: Apache-2.0
"""A shell in a guest: interactive on the guest's console, or one command."""

import os
import select
import shlex
import shutil
import sys
import termios
import tty

PROMPT = "lab:\\w# "
COMMAND_LIMIT_S = 3600


def run(lab, command):
    """In host a's guest, from the source tree. The status of the shell or of the command."""
    guest = lab.host("a").guest
    if command is not None:
        return run_command(guest, command)
    if not sys.stdin.isatty():
        return run_command(guest, ["sh", "-s"], sys.stdin.buffer.read())
    return interact(guest)


def run_command(guest, command, text=None):
    stdin = None
    if text is not None:
        stdin = guest.shared("stdin")
        with open(os.path.join(guest.folder.path, "stdin"), "wb") as file:
            file.write(text)
    process = guest.start_process(command, stdin=stdin)
    status = process.wait(COMMAND_LIMIT_S)
    for path, stream in ((process.out, sys.stdout), (process.err, sys.stderr)):
        stream.flush()
        with open(path, "rb") as file:
            shutil.copyfileobj(file, stream.buffer)
        stream.flush()
    return status if status >= 0 else 128 - status


def interact(guest):
    """Our terminal, raw, is the guest's until the shell there ends."""
    size = shutil.get_terminal_size()
    argv = ["sh", "-c", f"stty rows {size.lines} cols {size.columns} sane; exec 1>&0 2>&0 {bash()}"]
    process = guest.start_process(argv, {"TERM": os.environ.get("TERM", "linux"), "PS1": PROMPT}, stdin="/dev/hvc0")
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setraw(sys.stdin)
        while process.poll() is None:
            guest.check()
            ready, _, _ = select.select([sys.stdin, guest.terminal], [], [], 0.2)
            if sys.stdin in ready:
                guest.terminal.sendall(os.read(sys.stdin.fileno(), 4096))
            if guest.terminal in ready:
                os.write(sys.stdout.fileno(), guest.terminal.recv(65536))
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
    return process.poll()


def bash():
    return shlex.join(["bash", "--norc", "-i"]) if shutil.which("bash") else "sh -i"
