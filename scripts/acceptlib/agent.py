# SPDX-License-Identifier: Apache-2.0
"""A node's half of the acceptance: does there what the conductor asks for. It ends when the conductor goes
away, and then nothing of it stays: processes are killed, links that were taken down come up again, its
folder is removed."""

import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

from . import facts, hold, wire

PR_SET_PDEATHSIG = 1
READ_MAX = 4 << 20
SCRIPTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PLUGIN = "libnccl-net-ha.so"


def die_with_us():
    """In a child: the kernel kills it when this process ends, however that comes."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


# ---- where things are ---------------------------------------------------------------------------------


def program_places(name, build):
    """The build tree that this script is in, or one that is named, before what is installed."""
    yield from [os.path.join(folder, "bin", name) for folder in build_folders(build)]
    yield os.path.join(os.path.dirname(SCRIPTS), "bin", name)
    # Installed as PREFIX/share/…/scripts or PREFIX/lib…/nccl-ha.
    for up in ("../bin", "../../bin", "../../../bin"):
        yield os.path.normpath(os.path.join(SCRIPTS, up, name))
    if shutil.which(name):
        yield shutil.which(name)


def build_folders(build):
    return [build] if build else [os.path.join(os.path.dirname(SCRIPTS), "build")]


def find_program(name, build=None):
    return next((path for path in program_places(name, build) if os.access(path, os.X_OK) and os.path.isfile(path)), None)


def find_plugin(wanted, build=None):
    """A path that is named, or ours: from the build tree, from where pkg-config says, or as the dynamic
    linker finds it (then it is a name, not a path)."""
    if wanted and "/" in wanted:
        return os.path.abspath(wanted) if os.path.exists(wanted) else None
    file = PLUGIN if not wanted else wanted if wanted.endswith(".so") else f"libnccl-net-{wanted}.so"
    places = build_folders(build)
    for package in ("nccl-ha", "nccl-net-ha"):
        said = facts.output(["pkg-config", "--variable=libdir", package])
        places += [said.strip()] if said else []
    places += [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    for up in ("../lib", "../../lib", "../../../lib"):
        base = os.path.normpath(os.path.join(SCRIPTS, up))
        places += [base, os.path.join(base, "x86_64-linux-gnu"), base + "64"]
    for folder in places:
        if os.path.exists(os.path.join(folder, file)):
            return os.path.join(folder, file)
    listed = facts.output(["ldconfig", "-p"]) or facts.output(["/sbin/ldconfig", "-p"]) or ""
    match = re.search(rf"^\s*{re.escape(file)} .*=> (\S+)", listed, re.MULTILINE)
    return match[1] if match else None


# ---- the half -------------------------------------------------------------------------------------------


class Agent:
    """Pair with close()."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="nccl-ha-acceptance.")
        self.processes, self.holds = {}, {}

    def handlers(self):
        return {
            "hello": self.hello,
            "facts": lambda: facts.gather(),
            "route": lambda address: facts.route_to(address),
            "port": self.port,
            "listens": self.listens,
            "start": self.start,
            "poll": self.poll,
            "signal": self.signal,
            "read": self.read,
            "run": self.run,
            "arm": self.arm,
            "down": lambda key: self.holds[key].down(),
            "release": self.release,
        }

    def hello(self, plugin=None, perf=None, build=None):
        """Who this is, and where plugin and driver are."""
        return {
            "protocol": wire.PROTOCOL,
            "host": os.uname().nodename,
            "folder": self.folder,
            "plugin": find_plugin(plugin, build),
            "perf": find_program("nccl-net-perf", build) if not perf else perf if os.access(perf, os.X_OK) else None,
            "simverbs": find_program("simverbs", build),
            "nccl_ha": find_program("nccl-ha", build),
        }

    @staticmethod
    def port(address):
        """A TCP port that is free at this address now."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.bind((address, 0))
            return sock.getsockname()[1]

    @staticmethod
    def listens(number):
        """Whether somebody listens on this TCP port, without talking to him."""
        wanted = re.compile(rf"^\s*\d+: [0-9A-F]+:{number:04X} \S+ 0A ", re.MULTILINE)
        return any(wanted.search(facts.read(table) or "") for table in ("/proc/net/tcp", "/proc/net/tcp6"))

    # ---- processes ----

    def path(self, name):
        """In our folder and nowhere else."""
        return os.path.join(self.folder, os.path.basename(name))

    def start(self, name, argv, env):
        """Its output, both kinds, goes to NAME.log. '{folder}' in a word is our folder."""
        def fill(word):
            return word.replace("{folder}", self.folder)

        with open(self.path(name + ".log"), "wb") as log:
            process = subprocess.Popen(
                [fill(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **{key: fill(value) for key, value in env.items()}},
                start_new_session=True,
                preexec_fn=die_with_us,
            )
        self.processes[name] = process
        return process.pid

    def poll(self, name):
        return self.processes[name].poll()

    def signal(self, name, number):
        """To the process alone when it is a friendly one, else to its whole group."""
        process = self.processes[name]
        if process.poll() is None:
            (os.kill if number in (signal.SIGUSR1, signal.SIGINT) else os.killpg)(process.pid, number)
            if number == signal.SIGKILL:
                process.wait()
        return process.poll()

    def read(self, name, offset=0, lines=False):
        """Text of a file in our folder; empty where there is none. lines: a last one that is not whole is left
        for the next time."""
        try:
            with open(self.path(name), "rb") as file:
                file.seek(offset)
                data = file.read(READ_MAX)
        except OSError:
            return {"text": "", "offset": offset}
        whole = data[: data.rfind(b"\n") + 1] if lines else data
        return {"text": whole.decode(errors="replace"), "offset": offset + len(whole)}

    @staticmethod
    def run(argv, limit_s):
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=limit_s, check=False, preexec_fn=die_with_us
        )
        return {"status": done.returncode, "out": done.stdout, "err": done.stderr}

    # ---- links ----

    def arm(self, key, down, up, limit_s):
        self.holds[key] = hold.Hold(down, up, limit_s)

    def release(self, key):
        return self.holds[key].release()

    # ---- the end ----

    def close(self):
        for key, held in self.holds.items():
            try:
                held.release()
            except hold.HoldError as error:
                print(f"scripts/acceptance: {key} may still be down: {error}", file=sys.stderr)
        for process in self.processes.values():
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def stop(number, _):
    sys.exit(128 + number)


def be_node(stream):
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, stop)
    agent = Agent()
    try:
        wire.serve(stream, agent.handlers())
    except (wire.NodeError, OSError) as error:
        print(f"scripts/acceptance: {error}", file=sys.stderr)
    finally:
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        agent.close()


def on_standard_streams():
    be_node(wire.Stream(0, os.dup(1)))


def on_socket(place, token, say, only_from=None):
    host, port = wire.parse_place(place)
    with socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as listener:
        say(f"waiting on {host}:{listener.getsockname()[1]}")
        stream, address = wire.accept(listener, token, say, only_from)
    say(f"conducted from {address}")
    be_node(stream)
