# SPDX-License-Identifier: Apache-2.0
"""A virtual machine of the lab: one QEMU, what it is asked, and its end.

Machines must be started on the main thread: the kernel kills a QEMU when the thread that started it ends.

Nothing of it has a name in the file system but a folder of its own: the guest's serial port, QEMU's
monitor and the rails between machines are pairs of sockets that QEMU inherits. Whatever becomes of this
program, QEMU is killed and the folder goes away: a process that only waits for our end sees to that."""

import functools
import itertools
import json
import os
import queue
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time

BOOT_LIMIT_S = 120
CALL_LIMIT_S = 60
KVM_LIMIT_S = 3
MARKS = 5

# Words for the guest's kernel. What guards the host against its users only slows this one down. Where it
# may not be preempted, a process that posts to rxe while the link goes down can hold a processor for half a
# minute: it tries again for as long as the interface goes down, which waits for that processor.
KERNEL_LINE = "console=ttyS0 net.ifnames=0 mitigations=off nokaslr preempt=full tsc=reliable panic=-1 loglevel=5 quiet log_buf_len=4M printk.devkmsg=on"


class LabError(Exception):
    """Something of the lab itself failed."""


class NoMachine(Exception):
    """No virtual machine can run here at all; the text says why."""


def find_qemu():
    if os.uname().machine != "x86_64":
        raise NoMachine(f"the lab's guests are x86_64, this is {os.uname().machine}")
    path = shutil.which("qemu-system-x86_64")
    if path is None:
        raise NoMachine("qemu-system-x86_64 is not installed (package qemu-system-x86)")
    return path


@functools.cache
def has_netdev(kind):
    """Whether this QEMU knows a way to connect a network card."""
    said = subprocess.run([find_qemu(), "-netdev", "help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, check=False, timeout=CALL_LIMIT_S)  # fmt: skip
    return kind in said.stdout.decode().split()


def stuck_cards(console):
    """The cards whose transmit queue timed out: a kernel before 6.7 names them behind the word, later ones before it."""
    found = re.findall(r"NETDEV WATCHDOG: (\S+) \(virtio_net\): transmit queue|virtio_net \S+ (\S+): NETDEV WATCHDOG: ", console)
    return sorted({before or behind for before, behind in found})


def ports_down(log, marks):
    """From the lines of the kernel's log that tell of it, and of marks that were set at times that are known. The
    log's clock is not the guest's CLOCK_MONOTONIC: the mark that was set fastest tells the difference."""
    lines = [(round(float(at) * 1e9), what) for at, what in re.findall(r"^\[ *([0-9.]+)\] (.*)$", log, re.MULTILINE)]
    mark, (before, after) = min(marks.items(), key=lambda item: item[1][1] - item[1][0])
    offset = (before + after) // 2 - {what: at for at, what in lines}[mark]
    down = {}
    for at, what in lines:
        if found := re.search(r"(\w+): set down$", what):
            down.setdefault(found[1], []).append(at + offset)
    return down


def die_with_parent():
    """The words before a command that let the kernel kill it when this process ends."""
    path = shutil.which("setpriv")
    return [path, "--pdeathsig", "KILL"] if path else []


class Folder:
    """The folder that guests share with the host, and with each other. A process of its own, the guard,
    waits for the end of ours and removes the folder then, and any machine that uses it. Its status says
    whether it could."""

    # The words that grep looks for are not on its own command line, or it would always find itself.
    GUARD = """read -r _
        machines() { echo "path=$1" | grep -lsaF -f - /proc/[0-9]*/cmdline | sed 's|/proc/||; s|/cmdline||'; }
        for _ in 1 2 3 4 5; do
            kill -KILL $(machines "$1") 2>/dev/null
            rm -rf -- "$1" && [ -z "$(machines "$1")" ] && exit
            sleep 0.1
        done
        exit 1"""

    def __init__(self):
        # The guard comes first: there is no moment at which a folder could stay.
        self.path = os.path.join(tempfile.gettempdir(), f"nccl-ha-lab.{secrets.token_hex(4)}")
        # Its input ends when this process does, whatever the reason. Out of reach of Ctrl-C.
        self.guard = subprocess.Popen(["sh", "-c", self.GUARD, "lab-guard", self.path], stdin=subprocess.PIPE,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                      start_new_session=True)  # fmt: skip
        os.mkdir(self.path, 0o700)

    def close(self):
        """When the machines are gone."""
        shutil.rmtree(self.path, ignore_errors=True)
        self.guard.stdin.close()
        self.guard.wait()


class Result:
    """What a command in a guest came to."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err


class Process:
    """A process in a guest. Its output goes to files on both sides: `out` and `err` are their names here."""

    def __init__(self, machine, pid, started_ns):
        self.machine, self.pid, self.started_ns = machine, pid, started_ns
        self.argv = self.out = self.err = None  # start_process() fills these in
        self.ended_ns = self.status = None
        self.ended = threading.Event()

    def end(self, status, now_ns):
        self.status, self.ended_ns = status, now_ns
        self.ended.set()

    def poll(self):
        """Its exit status, minus the signal that killed it, or None while it runs."""
        return self.status if self.ended.is_set() else None

    def wait(self, limit_s=CALL_LIMIT_S):
        deadline = time.monotonic() + limit_s
        while not self.ended.wait(0.5):
            self.machine.check()
            if time.monotonic() > deadline:
                raise LabError(f"{self.machine.name}: {self.argv[0]} still runs after {limit_s} s")
        return self.status

    def kill(self, number=signal.SIGKILL):
        """It and its children."""
        self.machine.call("kill", pid=self.pid, signal=int(number))


class Machine:
    """One guest. start() returns at once, ready() when it answers."""

    def __init__(self, name, image, folder, guest, tree, *, cpus=1, memory_mb=384, kvm=False, devices=()):
        self.name, self.folder = name, folder
        self.console = os.path.join(folder.path, f"{name}.console")
        self.cpus, self.memory_mb, self.kvm, self.devices = cpus, memory_mb, kvm, list(devices)
        self.image, self.guest, self.tree = image, guest, tree
        self.qemu = None
        self.numbers = itertools.count(1)
        self.answers = {}  # by request number: a queue for one answer
        self.processes = {}  # by pid, until they end; only listen() uses it
        self.sending = threading.Lock()
        self.is_ready = threading.Event()

    # ---- start and end ----

    def command(self, control, monitor, terminal):
        shared, console = (path.replace(",", ",,") for path in (self.folder.path, self.console))
        words = [
            "-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-smp", str(self.cpus), "-m", str(self.memory_mb),
            "-kernel", self.image.kernel, "-initrd", self.image.initramfs, "-append", KERNEL_LINE,
            "-chardev", f"file,id=console,path={console}", "-serial", "chardev:console",
            "-chardev", f"socket,id=monitor,fd={monitor}", "-mon", "chardev=monitor,mode=control",
            "-chardev", f"socket,id=control,fd={control}", "-chardev", f"socket,id=terminal,fd={terminal}",
            "-device", "virtio-serial-pci", "-device", "virtconsole,nr=0,chardev=terminal",
            "-device", "virtserialport,nr=1,chardev=control,name=lab",
            "-fsdev", "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
            "-fsdev", f"local,id=lab,path={shared},security_model=none",
            "-device", "virtio-9p-pci,fsdev=lab,mount_tag=lab",
            "-device", "virtio-rng-pci",
        ]  # fmt: skip
        words += accelerator(self.kvm)
        return [*die_with_parent(), find_qemu(), *words, *self.devices]

    def start(self, inherit=()):
        """inherit: further sockets that self.devices name by number."""
        with open(os.path.join(self.folder.path, "boot"), "w", encoding="utf-8") as boot:
            boot.write(f"{self.tree}\n{self.guest}\n")
        self.control, control = socket.socketpair()
        self.monitor, monitor = socket.socketpair()
        self.terminal, terminal = socket.socketpair()
        theirs = [control, monitor, terminal]
        self.said = tempfile.TemporaryFile()
        self.qemu = subprocess.Popen(self.command(*(s.fileno() for s in theirs)), stdin=subprocess.DEVNULL,
                                     stdout=self.said, stderr=self.said, start_new_session=True,
                                     pass_fds=[s.fileno() for s in [*theirs, *inherit]])  # fmt: skip
        for s in theirs:
            s.close()
        self.monitor.settimeout(CALL_LIMIT_S)
        self.monitor_lines = self.monitor.makefile("rb")
        threading.Thread(target=self.listen, daemon=True).start()

    def ready(self):
        deadline = time.monotonic() + BOOT_LIMIT_S
        while not self.is_ready.wait(0.2):
            self.check()
            if time.monotonic() > deadline:
                raise LabError(f"{self.name}: the guest was not up after {BOOT_LIMIT_S} s:\n{self.console_end()}")
        # QEMU greets first; its greeting is no answer.
        self.qmp("qmp_capabilities")

    def close(self):
        if self.qemu is None:
            return
        if self.qemu.poll() is None:
            self.qemu.kill()
        self.qemu.wait()
        for s in [self.control, self.monitor, self.terminal, self.said]:
            s.close()

    def check(self):
        """LabError if the machine is gone."""
        if self.qemu.poll() is not None:
            raise LabError(f"{self.name}: QEMU ended with status {self.qemu.returncode}:\n{self.console_end()}")

    def console_end(self, lines=60):
        """The end of what the guest's kernel and QEMU said."""
        self.said.seek(0)
        text = self.said.read().decode(errors="replace")
        try:
            with open(self.console, encoding="utf-8", errors="replace") as file:
                text = file.read() + text
        except OSError:
            pass
        return "\n".join("    " + line for line in text.replace("\r", "").strip().splitlines()[-lines:])

    def stuck_cards(self):
        """Network cards that QEMU has stopped to take packets from, as the guest's kernel says of them after 5 s:
        longer than a drill lets a card stand still."""
        try:
            with open(self.console, encoding="utf-8", errors="replace") as file:
                return stuck_cards(file.read())
        except OSError:
            return []

    def waited_ns(self):
        """How long its threads had to wait for a processor of this host, each since it began: where others have
        the processors, the guest stands still meanwhile. A total for standstill.Record; none where the kernel does
        not tell."""
        waited = {}
        folder = f"/proc/{self.qemu.pid}/task"
        for task in os.listdir(folder) if os.path.exists(folder) else ():
            try:
                with open(f"{folder}/{task}/schedstat", encoding="ascii") as file:
                    waited["waited", f"{self.name}.{task}"] = int(file.read().split()[1])
            except (OSError, IndexError):
                pass  # it has ended
        return waited

    # ---- the guest's daemon: guest/lab-guest.c ----

    def listen(self):
        """On a thread of its own: answers to who asked, ends to their processes."""
        try:
            for line in self.control.makefile("rb"):
                message = json.loads(line)
                if "exited" in message:
                    process = self.processes.pop(message["exited"], None)  # None: a child of one of them
                    if process is not None:
                        process.end(message["status"], message["now_ns"])
                elif "id" in message:
                    if "pid" in message:
                        # Here rather than by who asked, so that it is known before it can end.
                        process = Process(self, message["pid"], message["now_ns"])
                        message["process"] = self.processes[process.pid] = process
                    self.answers.pop(message["id"]).put(message)
                else:
                    self.is_ready.set()
        except (OSError, ValueError):
            pass  # closed, by us or with the machine

    def call(self, op, limit_s=CALL_LIMIT_S, **more):
        """One request to the guest's daemon, and its answer."""
        answer = queue.Queue()
        number = next(self.numbers)
        self.answers[number] = answer
        request = {"id": number, "op": op, **more}
        try:
            with self.sending:
                self.control.sendall(json.dumps(request).encode() + b"\n")
        except OSError as error:
            self.check()
            raise LabError(f"{self.name}: {op}: {error}") from None
        deadline = time.monotonic() + limit_s
        while True:
            try:
                message = answer.get(timeout=0.5)
                break
            except queue.Empty:
                self.check()
                if time.monotonic() > deadline:
                    raise LabError(f"{self.name}: no answer to {op} within {limit_s} s:\n{self.console_end()}") from None
        if "error" in message:
            raise LabError(f"{self.name}: {message['error']}")
        return message

    def shared(self, name):
        """A file of the shared folder, as the guest sees it."""
        return os.path.join("/run/lab", name)

    def start_process(self, argv, env=None, *, name=None, cwd=None, stdin=None):
        """Output goes to NAME.out and NAME.err in the shared folder."""
        name = f"{self.name}.{name or next(self.numbers)}"
        environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/run",
                       "LC_ALL": "C", **(env or {})}  # fmt: skip
        answer = self.call("start", argv=[str(word) for word in argv], cwd=cwd or self.tree,
                           env=[f"{key}={value}" for key, value in environment.items()],
                           stdin=stdin, stdout=self.shared(f"{name}.out"), stderr=self.shared(f"{name}.err"))  # fmt: skip
        here = os.path.join(self.folder.path, name)
        process = answer["process"]
        process.argv, process.out, process.err = argv, f"{here}.out", f"{here}.err"
        return process

    def run(self, command, limit_s=CALL_LIMIT_S, check=True):
        """A command, for the shell if it is a string, to its end."""
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        process = self.start_process(argv)
        status = process.wait(limit_s)
        texts = []
        for path in [process.out, process.err]:
            with open(path, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
            os.unlink(path)
        if check and status != 0:
            raise LabError(f"{self.name}: {command}: status {status}: {''.join(texts)[-2000:]}")
        return Result(status, *texts)

    def clock_ns(self):
        """What to add to this machine's CLOCK_MONOTONIC for the guest's, and by how much it may be wrong."""
        best = None
        for _ in range(10):
            before = time.monotonic_ns()
            now = self.call("clock")["now_ns"]
            after = time.monotonic_ns()
            if best is None or after - before < best[1]:
                best = (now - (before + after) // 2, after - before)
        return best[0], best[1] // 2

    def ports_down(self):
        """When the kernel told everybody that a port of its RDMA devices is down, as its log says: by device, on the
        guest's clock."""
        marks = {}  # by text: the clock's readings around it
        for _ in range(MARKS):
            text = f"lab mark {next(self.numbers)}"
            answer = self.call("mark", text=text)
            marks[text] = (answer["before_ns"], answer["after_ns"])
        try:
            return ports_down(self.run("dmesg | grep -aE ': set down|lab mark'").out, marks)
        except KeyError as error:
            raise LabError(f"{self.name}: the kernel's log has no {error}") from None

    # ---- QEMU's monitor ----

    def qmp(self, command, **arguments):
        try:
            self.monitor.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
            return self.monitor_answer(command)
        except OSError as error:
            self.check()
            raise LabError(f"{self.name}: {command}: {error}") from None

    def monitor_answer(self, command):
        while True:
            line = self.monitor_lines.readline()  # fails when CALL_LIMIT_S have passed
            if not line:
                self.check()
                raise LabError(f"{self.name}: QEMU's monitor is gone")
            message = json.loads(line)
            if "error" in message:
                raise LabError(f"{self.name}: {command}: {message['error']['desc']}")
            if "return" in message:
                return message["return"]

    def halt(self):
        """As if its power was cut."""
        self.qemu.kill()
        self.qemu.wait()

    def freeze(self):
        self.qmp("stop")

    def thaw(self):
        self.qmp("cont")

    def set_link(self, device, up):
        """The cable of one of its network devices."""
        self.qmp("set_link", name=device, up=up)


# ---- the host -------------------------------------------------------------------------------------


def stolen_ns(stat=None):
    """How long each processor of this host was taken away from it, if it is a virtual machine itself, from
    /proc/stat. No thread waits meanwhile that the kernel could see waiting. Totals for standstill.Record."""
    if stat is None:
        with open("/proc/stat", encoding="ascii") as file:
            stat = file.read()
    ticks = {line.split()[0]: int(line.split()[8]) for line in stat.splitlines() if re.match(r"cpu\d+ ", line)}
    return {("stolen", name): n * 1_000_000_000 // os.sysconf("SC_CLK_TCK") for name, n in ticks.items()}


# ---- KVM ------------------------------------------------------------------------------------------


def accelerator(kvm):
    # qemu64 because emulation of what newer processors have is slow; carry-less multiply halves the speed.
    return ["-accel", "kvm", "-cpu", "host"] if kvm else ["-accel", "tcg,thread=multi", "-cpu", "qemu64"]


def probe_kvm(image):
    """Whether a guest with our kernel gets to its first process with KVM, within KVM_LIMIT_S."""
    words = ["-M", "q35", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-m", "256",
             "-kernel", image.kernel, "-initrd", image.initramfs, "-append", f"{KERNEL_LINE} lab.probe",
             "-serial", "stdio", *accelerator(True)]  # fmt: skip
    try:
        done = subprocess.run([*die_with_parent(), find_qemu(), *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=KVM_LIMIT_S,
                              check=False, start_new_session=True)  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    return b"lab: probe done" in done.stdout


def kvm_works(image, folder):
    """The probe's result, kept for as long as the image and this system's boot are the same."""
    try:
        if not os.access("/dev/kvm", os.R_OK | os.W_OK):
            return False
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            key = f"{file.read().strip()} {image.fingerprint}"
    except OSError:
        return False
    place = os.path.join(folder, "kvm.json")
    try:
        with open(place, encoding="utf-8") as file:
            known = json.load(file)
        if known["key"] == key:
            return known["works"]
    except (OSError, ValueError, KeyError, TypeError):
        pass
    works = probe_kvm(image)
    with open(f"{place}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump({"key": key, "works": works}, file)
    os.replace(f"{place}.{os.getpid()}", place)
    return works
