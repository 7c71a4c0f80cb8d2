# SPDX-License-Identifier: Apache-2.0
"""Stands in for PyTorch when scripts/gpu-train is tested without GPUs: whatever scripts/gputrain_job.py does with tensors gives
Anything, losses and parameters are made up, the same ones each time, and NCCL is nccl-net-perf: real traffic of the real plugin
over the real fabric for FAKE_TRAFFIC_S seconds, with checked data. Wants NET_PERF in the environment. FAULT makes it misbehave:
absent, no gpu, no nccl; and in runs with cuts loss, weight."""

import math
import os
import subprocess
import sys
import time
import types

FAULT = os.environ.get("FAULT", "")
if FAULT == "absent":
    raise ImportError("No module named 'torch'")
__version__ = "2.99.0+fake"
STEP_S = 0.02
WRONG_STEP = 25
WITH_CUTS = "/cut-" in os.environ.get("NCCL_DEBUG_FILE", "")


class Anything:
    """A tensor of which nobody wants to know more than that it is one."""

    def __getattr__(self, _name):
        return self

    def __call__(self, *_arguments, **_more):
        return self

    def __iter__(self):
        return iter((self, self, self))

    def _operator(self, *_other):
        return self

    __getitem__ = __add__ = __radd__ = __mul__ = __rmul__ = __matmul__ = __truediv__ = __mod__ = __gt__ = _operator

    def tobytes(self):
        return b"other weights" if WITH_CUTS and FAULT == "weight" else b"weights"


class Word:
    """The tensor that ranks agree by."""

    def __init__(self, values):
        self.value = values[0]

    def item(self):
        return self.value


class Loss:
    steps = 0

    def __init__(self):
        self.step, Loss.steps = Loss.steps, Loss.steps + 1

    def backward(self):
        time.sleep(STEP_S)

    def item(self):
        value = 5.5 * 0.999**self.step + job.rank / 1000
        wrong = WITH_CUTS and FAULT == "loss" and job.rank == 1 and self.step == WRONG_STEP
        return math.nextafter(value, 0) if wrong else value


class Module:
    def __init__(self, *_sizes, **_more):
        self.parts = []

    def __call__(self, *arguments):
        return self.forward(*arguments)

    def forward(self, *_arguments):
        return Anything()

    def to(self, _device):
        return self

    def parameters(self):
        return [Anything()]

    def named_parameters(self):
        return [("module.weight", Anything())]


class ModuleList(list, Module):
    pass


class Wrapped(Module):
    def __init__(self, module, device_ids):
        super().__init__()
        assert device_ids == [0]
        self.module = module

    def forward(self, *arguments):
        return self.module(*arguments)


class Optimizer:
    def __init__(self, parameters, lr):
        assert parameters and lr > 0

    def zero_grad(self):
        pass

    def step(self):
        pass

    def state_dict(self):
        return {"state": {0: {"step": Anything(), "exp_avg": Anything()}}}


class Job:
    """The process group."""

    def __init__(self):
        self.rank, self.meet, self.traffic, self.log, self.words = 0, None, None, None, 0

    def begin(self, backend, init_method, rank, world_size, timeout):
        assert backend == "nccl" and world_size == 2 and timeout.total_seconds() >= 60
        assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
        self.rank, self.meet = rank, init_method.removeprefix("file://")
        self.log = open(os.environ["NCCL_DEBUG_FILE"], "w", encoding="utf-8")  # pylint: disable=consider-using-with
        self.log.write("fake:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n")
        self.log.write("fake:1:1 [0] NCCL INFO NET/Plugin: Loaded net plugin HA (v11)\n")
        self.log.write("fake:1:1 [0] NCCL INFO NET/HA : nccl-ha 0.1.0: 2 device(s): [0]sim0:1/RoCE [1]sim1:1/RoCE\n")
        self.log.write("fake:1:1 [0] NCCL INFO Using network HA\n")
        self.log.write("fake:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/HA/0\n")
        self.log.flush()
        space = "train-" + self.meet.strip("/").replace("/", "-")[-60:]
        env = {**os.environ, "PMIX_NAMESPACE": space, "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}
        env["OMPI_COMM_WORLD_RANK"] = str(rank)
        command = [env["NET_PERF"], "--op", "allreduce", "-b", "256K", "-e", "256K", "--seconds", env["FAKE_TRAFFIC_S"], "-w", "5"]
        command += ["--channels", "2", "--pause", "2", "--nap", "200", "--timeout", "30"]
        self.traffic = subprocess.Popen(command, env=env, stdout=self.log, stderr=self.log)  # pylint: disable=consider-using-with

    def broadcast(self, word, root):
        """By a file that the root adds to."""
        assert root == 0
        self.words += 1
        path = self.meet + ".words"
        if self.rank == 0:
            with open(path, "a", encoding="utf-8") as file:
                file.write(f"{word.value}\n")
            return
        until = time.monotonic() + 30
        while time.monotonic() < until:
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    lines = file.read().split("\n")[:-1]
                if len(lines) >= self.words:
                    word.value = float(lines[self.words - 1])
                    return
            time.sleep(0.005)
        raise RuntimeError("the other rank says nothing")

    def end(self):
        status = self.traffic.wait(timeout=60)
        self.log.close()
        if status != 0:
            raise RuntimeError(f"NCCL error: nccl-net-perf ended with status {status}")


job = Job()
uint8 = "uint8"


def module(name, **members):
    made = types.ModuleType("torch." + name)
    vars(made).update(members)
    sys.modules["torch." + name] = made
    return made


distributed = module(
    "distributed",
    is_available=lambda: True,
    is_nccl_available=lambda: FAULT != "no nccl",
    init_process_group=job.begin,
    broadcast=job.broadcast,
    destroy_process_group=job.end,
)
cuda = module(
    "cuda",
    is_available=lambda: FAULT != "no gpu",
    get_device_name=lambda _device: "NVIDIA Fake",
    set_device=lambda _device: None,
    nccl=types.SimpleNamespace(version=lambda: (2, 28, 9)),
)
nn = module(
    "nn",
    Module=Module,
    ModuleList=ModuleList,
    Linear=Module,
    LayerNorm=Module,
    Embedding=Module,
    functional=types.SimpleNamespace(gelu=lambda x: x, cross_entropy=lambda _said, _wanted: Loss()),
    parallel=types.SimpleNamespace(DistributedDataParallel=Wrapped),
)
optim = module("optim", AdamW=Optimizer)


def Generator():
    return Anything()


def randint(*_arguments, **_more):
    return Anything()


def arange(*_arguments, **_more):
    return Anything()


def tensor(values, **_more):
    return Word(values)


def device(*_arguments):
    return Anything()


def manual_seed(_seed):
    pass


def use_deterministic_algorithms(on, warn_only):
    assert on and warn_only
