#!/usr/bin/env python3
"""What an exported program costs beside our own Llama and beside eager Python, in one run.

    bazel build //bench:exported_benchmark
    VENV/bin/python bench/exported.py [--rounds 5]     # torch 2.11, transformers 4.57

One thread. A round runs each side once; each of them takes the median of 31 runs, and the table has
the medians over the rounds. A step is forward and backward of a Llama of 2 layers and width 64, at
4 x 64 tokens. The file of 32 layers is exported without weights.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch.export import Dim, export, save

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY / "examples" / "python"))
from export_model import causal_lm, export_module

NODES, RUNS, VOCABULARY = 1000, 31, 256


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(NODES):
            x = x + 1
        return x


def median_us(body: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        body()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times[1:])


def save_llama(directory: Path, layers: int) -> None:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=176,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(directory)


def export_llama(directory: Path, out: Path, weights: bool) -> torch.nn.Module:
    model = causal_lm(str(directory), weights=weights)
    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=128)}
    tokens = [torch.randint(0, VOCABULARY, (2, 11)) for _ in range(2)]
    export_module(model, tokens, str(out), (sizes, sizes))
    return model


@torch.no_grad()
def eager_node_us() -> float:
    one, chain = torch.ones(1), Chain()
    return median_us(lambda: chain(one)) / NODES


def eager_step_us(model: torch.nn.Module) -> float:
    tokens = torch.arange(4 * 64).remainder(VOCABULARY).view(4, 64)

    def step() -> None:
        model.zero_grad()
        model(tokens, tokens.clone()).backward()

    return median_us(step)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--benchmark", default=str(REPOSITORY / "bazel-bin/bench/exported_benchmark")
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chain, deep, model = (folder / f"{n}.pt2" for n in ("chain", "deep", "model"))
        save(export(Chain(), (torch.ones(1),)), str(chain))
        save_llama(folder / "deep", 32)
        export_llama(folder / "deep", deep, weights=False)
        save_llama(folder / "model", 2)
        eager = export_llama(folder / "model", model, weights=True)
        command = [options.benchmark, chain, str(NODES), deep, model, folder / "model/config.json"]
        rounds = []
        for _ in range(options.rounds):
            taken = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            taken["python"] = eager_node_us()
            taken["eager"] = eager_step_us(eager)
            rounds.append(taken)
    median = {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
    print("| | program | C++ | Python |\n|---|---|---|---|")
    print(
        f"| one node, us | {median['node']:.2f} | {median['direct']:.2f} | {median['python']:.2f} |"
    )
    print(f"| loading 32 layers, ms | {median['load'] / 1000:.0f} | | |")
    print(
        f"| a step, ms | {median['exported'] / 1000:.2f} | {median['own'] / 1000:.2f} "
        f"| {median['eager'] / 1000:.2f} |"
    )


if __name__ == "__main__":
    main()
