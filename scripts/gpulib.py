# SPDX-License-Identifier: Apache-2.0
"""What the scripts that run NCCL on GPUs (scripts/gpu-*) share: how ranks are started so that NCCL takes a
transport on a simulated fabric, and how a run's output proves what it ran on and that it was right."""

import argparse
import os
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

START = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - START:4.0f}s] {text}", flush=True)


class Transport:
    """How to make NCCL take a transport, and what its log says if it did."""

    def __init__(self, title, network, fabric, env, library=None, api=None, sysfs=False):
        self.title = title
        self.network = network  # its name in NCCL's log
        self.fabric = fabric  # ranks run on the simulated fabric
        self.env = env
        self.library = library  # a file of the build folder that must exist
        self.api = api  # the version that NCCL must say it loaded
        self.sysfs = sysfs  # ranks find the fabric's devices below /sys, too

    def told(self, title, env, sysfs=False):
        """The same one, told otherwise."""
        return Transport(title, self.network, self.fabric, {**self.env, **env}, self.library, self.api, sysfs)


# NCCL_NET names the transport as well, so that NCCL fails rather than falls back without a word.
TRANSPORTS = {
    "plugin": Transport(
        "nccl-ha", "HA", True, {"NCCL_NET_PLUGIN": "ha", "NCCL_NET": "HA"}, "libnccl-net-ha.so", r"\d+"
    ),
    "v8": Transport(
        "nccl-ha v8", "HA", True, {"NCCL_NET_PLUGIN": "ha-v8", "NCCL_NET": "HA"}, "libnccl-net-ha-v8.so", "8"
    ),
    "ib": Transport(
        # NCCL reads RoCE versions and PCI paths from /sys/class/infiniband, where the fabric is not:
        # so the GID is named, and ports are not fused (without PCI paths all of them look like one
        # card to NCCL, which then loses the ports it fused). 2.28.7 to 2.28.9 ask for GIN first and crash on devices
        # that cannot be driven from a GPU, unless told to take the other kind.
        "NCCL IB",
        "IB",
        True,
        {
            "NCCL_NET_PLUGIN": "none",
            "NCCL_NET": "IB",
            "NCCL_IB_GID_INDEX": "3",
            "NCCL_NET_MERGE_LEVEL": "LOC",
            "NCCL_GIN_TYPE": "2",
        },
    ),
    # Those that show what a choice of ours costs: the same library, told otherwise.
    "haoff": Transport(
        "nccl-ha, HA off",
        "HA",
        True,
        {"NCCL_NET_PLUGIN": "ha", "NCCL_NET": "HA", "HA_NCCL_ENABLE_BACKUP": "0"},
        "libnccl-net-ha.so",
        r"\d+",
    ),
    "e2e": Transport(
        "nccl-ha, e2e",
        "HA",
        True,
        {"NCCL_NET_PLUGIN": "ha", "NCCL_NET": "HA", "HA_NCCL_COMPLETION": "e2e"},
        "libnccl-net-ha.so",
        r"\d+",
    ),
    "timed": Transport(
        "nccl-ha, timed",
        "HA",
        True,
        {"NCCL_NET_PLUGIN": "ha", "NCCL_NET": "HA", "HA_NCCL_LATENCY_MS": "100"},
        "libnccl-net-ha.so",
        r"\d+",
    ),
    "socket": Transport("NCCL sockets", "Socket", False, {"NCCL_NET_PLUGIN": "none", "NCCL_NET": "Socket"}),
}

# For every transport alike. P2P and SHM are off for versions of NCCL that ignore NCCL_HOSTID.
COMMON_ENV = {
    "NCCL_DEBUG": "INFO",
    "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_MNNVL_ENABLE": "0",
    "NCCL_NET_GDR_LEVEL": "LOC",  # as on a fabric made without --gpu: all stage through the host
    "NCCL_SOCKET_IFNAME": "lo",
    "NCCL_TESTS_DEVICE": "0",  # the only GPU that the rank sees, shared or not
}
DEFAULT_ENV = {"NCCL_NVLS_ENABLE": "0"}  # no rank has a second GPU; kept if the caller set it

# MPI only starts the ranks; it must not try the simulated devices itself, nor pin a rank and all of
# NCCL's threads to one core (--bind-to none).
MPI_ENV = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "^openib,ofi,uct",
    "OMPI_MCA_osc": "^ucx",
    "OMPI_MCA_coll": "^hcoll,ucc",
    # As many ranks as are asked for, also where there are fewer cores.
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "UCX_TLS": "tcp,self,sm",
    "FI_PROVIDER": "tcp",
}


class BenchError(Exception):
    """A run that does not count, with what to look at."""


class NoEnd(BenchError):
    """It took longer than it was given."""


# ---- sizes ---------------------------------------------------------------------------------------


def parse_size(text):
    match = re.fullmatch(r"(\d+)([kmg]?)b?", text.strip().lower())
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size like 8, 64K or 256M")
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def parse_sizes(text):
    parts = text.split(":")
    if len(parts) not in (2, 3):
        raise argparse.ArgumentTypeError(f"'{text}' is not FIRST:LAST or FIRST:LAST:FACTOR")
    factor = int(parts[2]) if len(parts) == 3 else 2
    first, last = parse_size(parts[0]), parse_size(parts[1])
    if not 0 < first <= last or factor < 2:
        raise argparse.ArgumentTypeError(f"'{text}': sizes must grow, by a factor of at least 2")
    return first, last, factor


# ---- one run ---------------------------------------------------------------------------------------


def table_rows(output):
    """(names of the columns, words) of each row of nccl-tests' table that is written out: a run that was ended may leave a part of one."""
    columns = None
    for line in output.splitlines(keepends=True):
        words = line.lstrip("# ").split()
        if line.lstrip().startswith("#"):
            if words[:2] == ["size", "count"] and "time" in words:
                columns = words
            continue
        if columns is None or not words or not words[0].isdigit() or not line.endswith("\n"):
            continue
        if len(words) == len(columns) - 1 and "redop" in columns:
            words.insert(columns.index("redop"), "")  # older versions leave it empty where there is none
        yield columns, words


def wrong_of(columns, words):
    """The counts of wrong elements of a row, out of place and in place."""
    return [word for name, word in zip(columns, words) if name in ("#wrong", "wrong")]


def is_right(wrong):
    """Out of place was checked, and nothing was wrong in either place."""
    return bool(wrong) and wrong[0] == "0" and all(word in ("0", "N/A") for word in wrong)


def count_rows(output):
    """(right, wrong) rows, also of a run that was ended. What was not checked, or cannot be read, is not right."""
    rows = [len(words) == len(columns) and is_right(wrong_of(columns, words)) for columns, words in table_rows(output) if "".join(words[1:2]).isdigit()]
    return sum(rows), len(rows) - sum(rows)


def parse_perf(output):
    """Rows of nccl-tests' table: {size: {"us": …, "gbps": …, "windows": n}}. Wrong elements raise. A
    size is timed out of place and in place, and again in each cycle (-N): the median of all counts."""
    rows = {}
    for columns, words in table_rows(output):
        line = " ".join(words)
        if len(words) != len(columns):
            raise BenchError(f"a row of the result table has {len(words)} columns, not {len(columns)}: {line}")
        size = int(words[0])
        wrong = wrong_of(columns, words)
        if not wrong or not wrong[0].isdigit():
            raise BenchError(f"size {size}: the data was not checked (was -c 1 honoured?)")
        if not is_right(wrong):
            raise BenchError(f"WRONG DATA at size {size}: {line}")
        for name in ("time", "busbw"):
            values = [float(word) for column, word in zip(columns, words) if column == name]
            rows.setdefault(size, {"time": [], "busbw": []})[name] += values
    if not rows:
        raise BenchError("no result table in the output")
    if not closed_well(output):
        raise BenchError("the closing line 'Out of bounds values : 0 OK' is missing")
    return {
        size: {
            "us": statistics.median(row["time"]),
            "gbps": statistics.median(row["busbw"]),
            "windows": len(row["time"]),
        }
        for size, row in rows.items()
    }


def closed_well(output):
    return bool(re.search(r"Out of bounds values\s*:\s*0 OK", output))


def check_gpus(output, gpus):
    """Each rank must have had the GPU it was given: nccl-tests lists them with their PCI address."""
    found = re.findall(r"^#\s+Rank\s+(\d+) .*?\[([0-9a-f:.]+)\] (.*)$", output, re.MULTILINE | re.IGNORECASE)
    if len(found) != len(gpus):
        raise BenchError(f"{len(found)} ranks listed, {len(gpus)} expected: was nccl-tests built with MPI=1?")
    if len({bus for _, bus, _ in found}) < len(set(gpus)):
        raise BenchError("ranks shared one GPU: " + ", ".join(f"rank {r} {bus}" for r, bus, _ in found))
    name = f"{len(set(gpus))} x {found[0][2].strip()}"
    return f"{len(gpus)} ranks on {name}, with MPS" if shared(gpus) else name


def check_log(transport, logs):
    """NCCL's log of every rank must name the transport, and no other. Returns what it said."""
    proof = {}
    for path in logs:
        name = os.path.basename(path)
        if not os.path.exists(path):
            raise BenchError(f"{name} is missing: NCCL wrote no log")
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
        used = set(re.findall(r"\] (?:\[send\] |\[receive\] )?via NET/([^/\s]+)", text))
        if not re.search(rf"Using network {transport.network}\b", text, re.IGNORECASE):
            said = re.search(r"Using network .*", text)
            raise BenchError(f"{name} has no 'Using network {transport.network}' ({said[0] if said else 'none at all'})")
        if {name.lower() for name in used} != {transport.network.lower()}:
            raise BenchError(f"{name}: channels went via {sorted(used) or 'no network'}, not {transport.network}")
        if transport.api:
            loaded = re.search(r"Loaded net plugin (.+?) \(v(\d+)\)", text)
            if not loaded or not re.fullmatch(transport.api, loaded[2]):
                raise BenchError(f"{name}: NCCL did not say that it loaded our plugin with API v{transport.api}")
            if not re.search(rf"NET/{transport.network} : nccl-ha \S+: [1-9]\d* device", text):
                raise BenchError(f"{name} has no 'NET/{transport.network} : nccl-ha VERSION: N device(s)' of the plugin itself")
            proof["loaded"] = loaded[0]
        version = re.search(r"NCCL version (\S+)", text)
        if version:
            proof["nccl"] = version[1]
    return proof


class Nccl:
    """An NCCL that ranks take instead of the system's: what --nccl names, a folder as a build of NCCL leaves it."""

    def __init__(self, folder):
        places = [os.path.join(os.path.abspath(folder), *below) for below in (("lib",), ("build", "lib"), ())]
        self.libraries = next((place for place in places if os.path.exists(os.path.join(place, "libnccl.so.2"))), None)
        if not self.libraries:
            raise BenchError(f"--nccl {folder}: neither {places[0]}, {places[1]} nor the folder itself has libnccl.so.2")
        self.file = os.path.realpath(os.path.join(self.libraries, "libnccl.so.2"))
        named = re.search(r"libnccl\.so\.(\d+\.\d+\.\d+)$", self.file)
        self.version = named[1] if named else None

    def check(self, said):
        """NCCL's log must name this version: a program may have the path of another one built in."""
        if self.version and not re.fullmatch(re.escape(self.version) + r"(\D.*)?", said or ""):
            raise BenchError(f"NCCL {said} was loaded, not {self.version} of {self.libraries}")


def rank_script(bench, transport, logs, extra_env=None, cores=(), per_rank=()):
    """The shell program that every rank starts as. cores: a list for taskset per rank. bench.nccl: None, or which NCCL.
    per_rank: lines of it that may say $rank."""
    found_in = [bench.build] + ([bench.nccl.libraries] if bench.nccl else [])
    env = {**COMMON_ENV, **transport.env, **(extra_env or {})}
    lines = ["#!/usr/bin/env bash", "set -eu"]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items()]
    lines += [f': "${{{name}:={value}}}"; export {name}' for name, value in DEFAULT_ENV.items()]
    lines += [
        "rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-${RANK:?no rank in the environment}}}}}",
        f"gpus=({' '.join(shlex.quote(gpu) for gpu in bench.gpus)})",
        "export CUDA_VISIBLE_DEVICES=${gpus[rank]} NCCL_HOSTID=simulated-host-$rank",
        f"export NCCL_DEBUG_FILE={shlex.quote(logs)}/rank-$rank.log",
        f"export LD_LIBRARY_PATH={shlex.quote(':'.join(found_in))}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}",
    ]
    lines += per_rank
    if cores:
        lines += [
            f"cores=({' '.join(cores)})",
            'taskset -cp "${cores[rank]}" $$ >/dev/null',
        ]
    if transport.fabric:
        run = f"{shlex.quote(bench.simverbs)} run {'--sysfs ' if transport.sysfs else ''}{shlex.quote(bench.fabric)}"
        lines.append(f'set -- {run} "$rank" -- "$@"')
    lines.append('exec "$@"')
    path = os.path.join(logs, "rank.sh")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    os.chmod(path, 0o755)
    return path


def preflight(mpirun, programs, files):
    """The paths of these programs of nccl-tests, once all that is needed is there: the files, too, and MPI's launcher."""
    home = os.environ.get("NCCL_TESTS_HOME")
    if not home:
        raise BenchError("set NCCL_TESTS_HOME to a folder of nccl-tests built with MPI=1")
    paths = [os.path.join(home, "build", program) for program in programs]
    missing = [path for path in [*paths, *files] if not os.path.exists(path)]
    if missing:
        raise BenchError("missing: " + ", ".join(dict.fromkeys(missing)))
    if not shutil.which(mpirun):
        raise BenchError(f"{mpirun} is not there: --mpirun names an MPI launcher")
    return paths


MARK = "HA_GPU_RUN"  # in the environment of everything that a run starts
RANKS_MAX = 64
GONE_S = 10  # for processes that were killed to be gone, on a machine with much else to do


def add_nccl_option(add):
    add("--nccl", metavar="DIR", help="the NCCL that ranks load: a folder with lib/libnccl.so.2, as NCCL_HOME (the system's)")


def start(command, log):
    """A command as a process group of its own; pair with end()."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    with open(log, "w", encoding="utf-8") as file:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **MPI_ENV, MARK: mark},
        )
    process.mark = mark
    return process


def processes_with(setting):
    """Those that began with this NAME=VALUE in their environment."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                if setting.encode() in file.read().split(b"\0"):
                    yield int(pid)
        except OSError:
            pass  # it has ended, or is another user's


def end(process):
    """Leaves nothing of it behind, whether it has ended or not."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)  # a launcher ends its ranks, if it is given the time
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            pass
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    # MPI launchers give ranks process groups and sessions of their own.
    kill_with(f"{MARK}={process.mark}")


def kill_with(setting):
    until = time.monotonic() + GONE_S
    while (left := list(processes_with(setting))) and time.monotonic() < until:
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


def run_bounded(command, seconds, log):
    """The exit status of a command that may take this long."""
    process = start(command, log)
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        raise NoEnd(f"no end within {seconds:.0f} s") from None
    finally:
        end(process)


def tell_tales(logs):
    """The lines of a failed run that say most."""
    lines = []
    for name in sorted(os.listdir(logs)):
        if name == "rank.sh":
            continue
        with open(os.path.join(logs, name), encoding="utf-8", errors="replace") as file:
            text = file.read().splitlines()
        wanted = [line for line in text if re.search(r"WARN|NET/|Using network|rror|simverbs", line)]
        lines += [f"  {name}: {line}" for line in (wanted or text)[-8:]]
    return "\n".join(lines + [f"  all of it: {logs}"])


# ---- the machine -----------------------------------------------------------------------------------


def find_gpus(ranks, on_trust):
    """The GPU of each rank: one of its own, or where there are fewer, in turn. on_trust: as many as ranks are there."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        gpus = visible.split(",")
    elif ranks and on_trust:
        gpus = [str(i) for i in range(ranks)]
    else:
        if not shutil.which("nvidia-smi"):
            raise BenchError("no nvidia-smi here: this script needs NVIDIA GPUs")
        listing = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False).stdout
        gpus = [str(i) for i, _ in enumerate(re.findall(r"^GPU \d+", listing, re.MULTILINE))]
    if not gpus:
        raise BenchError("nvidia-smi lists no GPU")
    wanted = ranks or max(2, len(gpus))
    if not 2 <= wanted <= RANKS_MAX:
        raise BenchError(f"{wanted} ranks wanted: it takes 2 to {RANKS_MAX}")
    return [gpus[r % len(gpus)] for r in range(wanted)]


def shared(gpus):
    """Whether several of these ranks have one GPU."""
    return len(set(gpus)) < len(gpus)


class Mps:
    """Processes that share a GPU take turns on it, by time slices, unless CUDA's Multi-Process Service is between them.
    Ours: in a folder of its own, which every process that is started meanwhile knows from its environment."""

    CONTROL = "nvidia-cuda-mps-control"
    FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
    QUIT_S = 5  # for what was told to end

    def __init__(self, gpus):
        self.needed = shared(gpus)
        if self.needed and not shutil.which(self.CONTROL):
            raise BenchError(f"{len(gpus)} ranks on {len(set(gpus))} GPUs, and {self.CONTROL} is not there: install it (it comes "
                             "with the driver), or take as many ranks as there are GPUs")

    def __enter__(self):
        if self.needed:
            self.folder = tempfile.mkdtemp(prefix="nccl-ha-mps.")
            self.before = {name: os.environ.get(name) for name in self.FOLDERS}
            os.environ.update(dict.fromkeys(self.FOLDERS, self.folder))
            self.control("-d")
        return self

    def control(self, *arguments, said=""):
        done = subprocess.run([self.CONTROL, *arguments], input=said, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                              timeout=60, check=False)  # fmt: skip
        if done.returncode != 0 and arguments:
            self.__exit__()
            raise BenchError(f"{self.CONTROL} {' '.join(arguments)}: status {done.returncode} {done.stderr.strip()}")

    def __exit__(self, *_reason):
        if not self.needed:
            return
        self.needed = False
        try:
            self.control(said="quit\n")
        except subprocess.TimeoutExpired:
            pass
        finally:
            # The next daemon finds the devices busy while this one or its server is there.
            setting = f"{self.FOLDERS[0]}={self.folder}"
            until = time.monotonic() + self.QUIT_S
            while list(processes_with(setting)) and time.monotonic() < until:
                time.sleep(0.02)
            kill_with(setting)
            for name, value in self.before.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
            shutil.rmtree(self.folder, ignore_errors=True)


def share_cores(ranks):
    """This process's cores in as many runs of neighbours as there are ranks, for taskset. Empty where
    there are fewer than two for each: then the scheduler knows better."""
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // ranks
    if each < 2 or not shutil.which("taskset"):
        return []
    return [",".join(map(str, cores[r * each : (r + 1) * each])) for r in range(ranks)]


class Steal:
    """How much of the processors' time the machine below a virtual one gave to others."""

    def __init__(self):
        self.before = self.read()

    @staticmethod
    def read():
        with open("/proc/stat", encoding="utf-8") as file:
            ticks = [int(word) for word in file.readline().split()[1:]]
        return ticks[7] if len(ticks) > 7 else 0, sum(ticks[:8])

    def part(self):
        stolen, total = (now - then for now, then in zip(self.read(), self.before))
        return stolen / total if total else 0.0


def simverbs(tool, *arguments, check=True):
    """The fabric's control tool. Returns what it printed."""
    done = subprocess.run(
        [tool, *arguments], capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL
    )
    if check and done.returncode != 0:
        raise BenchError(f"simverbs {' '.join(arguments)}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


# ---- the scripts themselves --------------------------------------------------------------------------


def exit_status(name, measure, errors=BenchError):
    """Of a script whose measure() says whether all is as it should be. What it has begun is ended when it is told to end, too."""
    def stop(number, _frame):
        raise KeyboardInterrupt(number)

    signal.signal(signal.SIGTERM, stop)
    try:
        return 0 if measure() else 1
    except errors as error:
        print(f"{name}: FAILED: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130


def tell_failures(name, failures):
    """Whether there are none."""
    for failure in failures:
        print(f"{name}: FAILED: {failure}", file=sys.stderr)
    return not failures
