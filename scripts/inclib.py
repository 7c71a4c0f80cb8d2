# SPDX-License-Identifier: Apache-2.0
"""What scripts/inc-bench and `scripts/demo inc` share: a simulated fabric with one switch, its controller, and ranks that drive
the plugin's collNet on it."""

import os
import subprocess

from benchlib import write_file
from benchrun import Failed, output_of


class Live:
    """A fabric with one switch, its controller, and jobs on it."""

    def __init__(self, build, hosts, rate_gbps, folder):
        self.build, self.hosts, self.rate, self.folder = build, hosts, rate_gbps, folder
        self.name = f"inclib{os.getpid()}"
        self.processes = []

    def path(self, name):
        return os.path.join(self.build, "bin", name)

    def __enter__(self):
        output_of([self.path("simverbs"), "up", self.name, "--hosts", str(self.hosts), "--aggregators", "1", "--rails", "1",
                   "--rate", str(self.rate), "--pace"])  # fmt: skip
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
            process.wait()
        subprocess.run([self.path("simverbs"), "down", self.name], check=False, timeout=30)

    def begin(self, *command, host=None, **environment):
        words = [self.path("simverbs"), "run", self.name, str(host), "--"] if host is not None else []
        with open(os.path.join(self.folder, "errors"), "ab") as errors:
            return subprocess.Popen([*words, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
                                    env={**os.environ, "NCCL_IB_TIMEOUT": "20", **environment})  # fmt: skip

    def start(self):
        hosts = "".join(f"  - {{name: h{i}, ports: [{{nic: sim0}}]}}\n" for i in range(self.hosts))
        links = "".join(f"  - {{a: h{i}, b: s, gbps: {self.rate}}}\n" for i in range(self.hosts))
        topology, self.key = os.path.join(self.folder, "net.yaml"), os.path.join(self.folder, "key")
        write_file(topology, f"version: 1\nswitches: [{{name: s}}]\nhosts:\n{hosts}links:\n{links}defaults: {{trees_per_group: 1}}\n")
        with open(os.open(self.key, os.O_WRONLY | os.O_CREAT, 0o400), "wb") as file:
            file.write(os.urandom(32))
        self.processes.append(self.begin(self.path("nccl-ha-ctrld"), "--topology", topology, "--key-file", self.key, "--listen", "127.0.0.1:0"))
        self.controller = self.processes[0].stdout.readline().split()[-1]
        self.start_switch()

    def start_switch(self):
        self.switch = self.begin(self.path("nccl-ha-switchd"), "--switch", "s", "--connect", self.controller, "--key-file", self.key, host=self.hosts)
        self.processes.append(self.switch)
        if " adds at " not in self.switch.stdout.readline():
            raise Failed("nccl-ha-switchd does not serve its switch")

    def rank(self, number, *words):
        return self.begin(self.path("inc-collnet"), "--plugin", os.path.join(self.build, "libnccl-net-ha.so"), "--rank", str(number), "--ranks", str(self.hosts),
                          *words, host=number, HA_NCCL_INC="1", HA_NCCL_INC_CONTROLLER=self.controller, HA_NCCL_INC_KEY_FILE=self.key,
                          HA_NCCL_INC_HOST=f"h{number}", HA_NCCL_STATS="0", NCCL_SOCKET_IFNAME="lo", HA_NCCL_INC_RTO_MS="30000")  # fmt: skip

    def last_errors(self):
        with open(os.path.join(self.folder, "errors"), encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if "INFO" not in line]
        return " / ".join(lines[-3:]) or "it says nothing"

    def give_handles(self, ranks):
        """Each rank says its own, and is told all."""
        handles = []
        for rank in ranks:
            rank.stdout.readline()
            words = rank.stdout.readline().split()
            if len(words) != 2:
                raise Failed(f"a rank has no collNet: {self.last_errors()}")
            handles.append(words[1])
        for rank in ranks:
            rank.stdin.write(" ".join(handles) + "\n")
            rank.stdin.flush()
