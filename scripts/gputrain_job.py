#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of an ordinary PyTorch job: a small language model, trained with DistributedDataParallel over NCCL. It knows nothing of
the plugin or of failures; scripts/gpu-train runs it with and without them and compares what it records:

  losses-RANK    a line for each step: the loss, with every bit, and how many milliseconds the step took
  end-RANK.json  a hash of each parameter and of the optimizer's state, and what it ran on

Everything in it is deterministic: what each rank sees in a step depends on its rank and the step alone."""

import argparse
import hashlib
import json
import math
import os
import sys
import time

VOCABULARY, CONTEXT, WIDTH, HEADS, DEPTH = 256, 128, 256, 4, 4
BATCH = 16
LEARNING_RATE = 3e-4
AGREE_STEPS = 20  # so many steps apart ranks agree whether to go on
PATIENCE_S = 300  # of the process group: longer than any outage that is survived

# cuBLAS gives the same bits each time only with workspaces of its own, and reads this when it starts.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def load_torch():
    """PyTorch, or the end with one line that says what is missing."""
    try:
        import torch  # pylint: disable=import-outside-toplevel
        import torch.distributed  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        sys.exit(f"no PyTorch for {sys.executable}: {error}")
    if not torch.distributed.is_available() or not torch.distributed.is_nccl_available():
        sys.exit(f"PyTorch {torch.__version__} was built without NCCL")
    if not torch.cuda.is_available():
        sys.exit(f"PyTorch {torch.__version__} sees no GPU")
    return torch


def facts(torch):
    return {
        "torch": torch.__version__,
        "gpu": torch.cuda.get_device_name(0),
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
    }


def model_of(torch):
    """A decoder of DEPTH blocks. Attention is written out: the fused ones may add in another order each time."""
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
            self.heads, self.joined = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
            self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

        def attend(self, x, future):
            batch, length, _ = x.shape
            q, k, v = self.heads(x).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
            scores = (q @ k.transpose(-2, -1)) / math.sqrt(WIDTH // HEADS)
            seen = scores.masked_fill(future, float("-inf")).softmax(-1) @ v
            return self.joined(seen.transpose(1, 2).reshape(batch, length, WIDTH))

        def forward(self, x, future):
            x = x + self.attend(self.before(x), future)
            return x + self.narrow(nn.functional.gelu(self.wide(self.between(x))))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(DEPTH))
            self.last, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY)

        def forward(self, tokens):
            places = torch.arange(CONTEXT, device=tokens.device)
            future = places[None, :] > places[:, None]
            x = self.tokens(tokens) + self.places(places)
            for block in self.blocks:
                x = block(x, future)
            return self.out(self.last(x))

    return Model()


def batch_of(torch, rank, step, device):
    """Sequences that count up by a stride each, which can be learned; others for each rank and step."""
    source = torch.Generator().manual_seed(1_000_003 * step + rank)
    begin = torch.randint(0, VOCABULARY, (BATCH, 1), generator=source)
    stride = torch.randint(1, 8, (BATCH, 1), generator=source)
    tokens = ((begin + stride * torch.arange(CONTEXT + 1)) % VOCABULARY).to(device)
    return tokens[:, :-1], tokens[:, 1:]


def hash_of(torch, tensor):
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return hashlib.sha256(data).hexdigest()


def state_hashes(torch, model, optimizer):
    """{name: hash} of all that the next step would depend on."""
    hashes = {name: hash_of(torch, value) for name, value in model.named_parameters()}
    for number, state in sorted(optimizer.state_dict()["state"].items()):
        for name, value in sorted(state.items()):
            hashes[f"optimizer.{number}.{name}"] = hash_of(torch, value)
    return hashes


class Trainer:
    def __init__(self, torch, options):
        self.torch, self.options = torch, options
        self.device = torch.device("cuda", 0)
        torch.manual_seed(0)
        torch.use_deterministic_algorithms(True, warn_only=True)
        model = model_of(torch).to(self.device)
        self.model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
        self.began = None

    def step(self, number):
        """The loss of one step, in the process's own memory: the GPU is done with it."""
        tokens, following = batch_of(self.torch, self.options.rank, number, self.device)
        self.optimizer.zero_grad()
        said = self.model(tokens)
        loss = self.torch.nn.functional.cross_entropy(said.reshape(-1, VOCABULARY), following.reshape(-1))
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def goes_on(self, number):
        """What rank 0 says: its clock counts where seconds were asked for."""
        if self.began is None:
            self.began = time.monotonic()
        late = time.monotonic() - self.began >= self.options.seconds if self.options.seconds else number >= self.options.steps
        word = self.torch.tensor([0.0 if late else 1.0], device=self.device)
        self.torch.distributed.broadcast(word, 0)
        return word.item() > 0

    def train(self, losses):
        number = 0
        while number % AGREE_STEPS or self.goes_on(number):
            began = time.monotonic()
            loss = self.step(number)
            losses.write(f"{float(loss).hex()} {1000 * (time.monotonic() - began):.1f}\n")
            losses.flush()
            number += 1
        return number


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--look", action="store_true", help="only say, as JSON, what it would run on")
    parser.add_argument("--rank", type=int, default=int(os.environ.get("RANK", "0")))
    parser.add_argument("--ranks", type=int, default=int(os.environ.get("WORLD_SIZE", "1")))
    parser.add_argument("--meet", help="a file that is not there yet, by which ranks find each other")
    parser.add_argument("--record", help="a folder for what is recorded")
    parser.add_argument("--seconds", type=float, default=0, help="train this long")
    parser.add_argument("--steps", type=int, default=0, help=f"or so many steps, a multiple of {AGREE_STEPS}")
    return parser.parse_args()


def main():
    options = arguments()
    torch = load_torch()
    if options.look:
        print(json.dumps(facts(torch)))
        return
    import datetime  # pylint: disable=import-outside-toplevel

    torch.cuda.set_device(0)
    torch.distributed.init_process_group(
        "nccl",
        init_method=f"file://{os.path.abspath(options.meet)}",
        rank=options.rank,
        world_size=options.ranks,
        timeout=datetime.timedelta(seconds=PATIENCE_S),
    )
    trainer = Trainer(torch, options)
    with open(os.path.join(options.record, f"losses-{options.rank}"), "w", encoding="utf-8") as losses:
        steps = trainer.train(losses)
    hashes = state_hashes(torch, trainer.model, trainer.optimizer)
    torch.distributed.destroy_process_group()
    with open(os.path.join(options.record, f"end-{options.rank}.json"), "w", encoding="utf-8") as file:
        json.dump({**facts(torch), "steps": steps, "state": hashes}, file, indent=1)


if __name__ == "__main__":
    main()
