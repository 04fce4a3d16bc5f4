"""Makes the TorchScript files of this folder, and records how eager PyTorch trains the modules.

    python tests/parity/scripted/make_scripts.py [NAME...]    # torch 2.11; from the repository root

NAME.pt is what torch.jit.save writes of the scripted or traced module, without what only people read (places in the source), which
takes most of a file. NAME.json has the batches and the losses.
"""

import copy
import json
import os
import sys
import warnings
import zipfile

import torch
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "exported"))
from make_programs import ADAMW, STEPS, train

WIDTH, WORDS = 8, 11


class MeanSquare(torch.nn.Module):
    def forward(self, x):
        return x.pow(2).mean()


class Block(torch.nn.Module):
    def __init__(self, dropout: float):
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.act = torch.nn.ReLU(inplace=True)
        self.drop = torch.nn.Dropout(dropout)
        self.down = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x, scale: torch.Tensor):
        return x + self.down(self.drop(self.act(self.up(self.norm(x)) * 2))) * scale


class Words(torch.nn.Module):
    """A tied weight, blocks in a list, a parameter that another module holds, a method of its own, an `if`, a region without
    gradients with a module in it, and a default argument."""

    def __init__(self, dropout: float = 0.0):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.blocks = torch.nn.ModuleList([Block(dropout), Block(dropout), Block(dropout)])
        self.gate = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.probe = torch.nn.Linear(WIDTH, 1)
        self.slow = torch.nn.Linear(WIDTH, WIDTH)
        self.frozen = torch.nn.Parameter(torch.linspace(0.5, 1.5, WIDTH), requires_grad=False)
        self.register_buffer("scale", torch.tensor(0.5))
        self.offset = torch.full((WIDTH,), 0.25)
        self.head = torch.nn.Linear(WIDTH, WORDS, bias=False)
        self.head.weight = self.words.weight

    def logits(self, x):
        return self.head(F.linear(x, self.gate.weight))

    def forward(self, words, labels, factor: float = 1.0):
        x = self.words(words) * self.frozen + self.offset
        for block in self.blocks:
            x = block(x, self.scale)
        with torch.no_grad():
            bias = self.probe(x)
        if words.size(1) > 2:
            x = x + self.slow(x)
        return factor * F.cross_entropy(self.logits(x + bias).flatten(0, 1), labels.flatten())


class Recurrent(torch.nn.Module):
    """One module for all steps of a loop, whose count only the input tells."""

    def __init__(self):
        super().__init__()
        self.start = torch.nn.Parameter(torch.linspace(-1, 1, WIDTH))
        self.cell = torch.nn.Sequential(torch.nn.Linear(2 * WIDTH, WIDTH), torch.nn.Tanh())

    def forward(self, x):
        state = self.start.expand(x.size(0), self.start.size(0))
        for i in range(x.size(1)):
            state = self.cell(torch.cat([state, x[:, i]], dim=1))
        return state.pow(2).mean()


class Pair(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, 2 * WIDTH)
        self.second = torch.nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return self.second(torch.tanh(self.first(x)) * 2)


class Traced(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.left = Pair()
        self.right = Pair()

    def forward(self, x, y):
        return (self.right(self.left(x)) - y).abs().mean()


class Heads(torch.nn.Module):
    """What it returns is a view."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(WIDTH, 2 * WIDTH)

    def forward(self, x):
        return self.project(x).view(x.size(0), 2, -1)


class Views(torch.nn.Module):
    """Changes the views that modules inside return in place, by its own code and by another module."""

    def __init__(self):
        super().__init__()
        self.heads = torch.nn.ModuleList([Heads(), Heads()])
        self.last = Heads()
        self.act = torch.nn.ReLU(inplace=True)
        self.mix = torch.nn.Linear(WIDTH, 3)

    def forward(self, x):
        for heads in self.heads:
            y = heads(x)
            y += 0.25
            x = self.act(y).sum(1)
        return self.mix(self.act(self.last(x))).pow(2).mean()


def numbers(*shape):
    return torch.randint(-8, 8, shape) / 8


def linear(outputs, *more):
    return torch.nn.Sequential(torch.nn.Linear(WIDTH, outputs), *more)


def sequential():
    """Children that hold others, and one that takes no parameters."""
    module = torch.nn.Sequential(
        linear(WIDTH, torch.nn.GELU(), torch.nn.Linear(WIDTH, WIDTH)),
        torch.nn.LayerNorm(WIDTH),
        linear(3 * WIDTH, torch.nn.SiLU()),
        torch.nn.Linear(3 * WIDTH, 5),
        MeanSquare(),
    )
    return module, lambda n: [numbers(n, WIDTH)], torch.jit.script


def words_batch(n):
    words = torch.randint(0, WORDS, (n, 5))
    return [words, (words + 1) % WORDS]


def words():
    return Words(), words_batch, torch.jit.script


def dropout():
    return Words(0.25), words_batch, torch.jit.script


def recurrent():
    return Recurrent(), lambda n: [numbers(n, 3, WIDTH)], torch.jit.script


def traced():
    def batch(n):
        return [numbers(n, WIDTH), numbers(n, WIDTH)]

    return Traced(), batch, lambda module: torch.jit.trace(module, batch(3))


def batch_norm():
    # No bias in front of it: it would have no gradient but rounding, of which AdamW makes whole steps.
    first = torch.nn.Linear(WIDTH, WIDTH, bias=False)
    module = torch.nn.Sequential(
        torch.nn.Sequential(first, torch.nn.BatchNorm1d(WIDTH)),
        torch.nn.Linear(WIDTH, 3),
        MeanSquare(),
    )
    return module, lambda n: [numbers(n, WIDTH)], torch.jit.script


def views():
    return Views(), lambda n: [numbers(n, WIDTH)], torch.jit.script


def shorten(path):
    """Writes the archive anew, without places in the source."""
    with zipfile.ZipFile(path) as archive:
        entries = [(entry, archive.read(entry)) for entry in archive.infolist()]
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in entries:
            if not entry.filename.endswith(".debug_pkl"):
                archive.writestr(entry, data, entry.compress_type)


def buffers_after(module, batches):
    """What training leaves in them."""
    trained = copy.deepcopy(module)
    trained.load_state_dict = lambda state: None
    train(trained, batches, 1)
    return {name: buffer.flatten().tolist() for name, buffer in trained.named_buffers()}


def train_in_bf16(module, batches):
    """As FSDP2 with param_dtype bf16 on one rank: inputs and parameters are cast, gradients cast back."""
    state = {name: value.clone() for name, value in module.state_dict().items()}
    optimizer = torch.optim.AdamW(module.parameters(), **ADAMW)
    losses = []
    for batch in batches:
        cast = {name: p.to(torch.bfloat16) for name, p in module.named_parameters()}
        loss = torch.func.functional_call(module, cast, tuple(t.to(torch.bfloat16) for t in batch))
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
    module.load_state_dict(state)
    return {"loss": losses}


WORLDS = {
    sequential: (1, 2, 4),
    words: (1, 2, 4),
    dropout: (1,),
    recurrent: (1, 2),
    traced: (1, 2, 4),
    batch_norm: (1,),
    views: (1, 2),
}


def main(names):
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    for make, worlds in WORLDS.items():
        if names and make.__name__ not in names:
            continue
        torch.manual_seed(0)
        module, make_batch, compile_module = make()
        path = os.path.join(HERE, make.__name__)
        torch.jit.save(compile_module(module), path + ".pt")
        shorten(path + ".pt")
        batches = [make_batch(4) for _ in range(STEPS)]
        golden = {
            "batches": [
                [{"shape": list(t.shape), "values": t.flatten().tolist()} for t in batch]
                for batch in batches
            ],
            "runs": {str(n): train(module, batches, n) for n in worlds},
            "parameters": [n for n, _ in module.named_parameters(remove_duplicate=False)],
            "buffers": buffers_after(module, batches),
        }
        if make is sequential:
            golden["bf16"] = train_in_bf16(module, batches)
        with open(path + ".json", "w", encoding="utf-8") as file:
            json.dump(golden, file, separators=(",", ":"))
            file.write("\n")


if __name__ == "__main__":
    main(sys.argv[1:])
