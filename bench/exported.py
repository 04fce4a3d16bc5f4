#!/usr/bin/env python3
"""What an exported program costs beside our own Llama and beside eager Python, in one run.

    bazel build //bench:exported_benchmark //cli:fsdp2
    VENV/bin/python bench/exported.py [--rounds 5] [--sharded llama-10m]     # torch 2.11, transformers 4.57

First one thread of one process, in processor time. A round runs each side once; each of them takes the median of 31 runs. A step
is forward and backward of a Llama of 2 layers and width 64, at 4 x 64 tokens; its memory is the most that tensors take beyond what
there was before it. The file of 32 layers is exported without weights.

Then training on --nproc ranks: `fsdp2 train` on the program of a preset and on its directory, and Python's FSDP2, in turn, with
bench/side_by_side.py's figures. All tables have medians over the rounds; one JSON line with every figure follows.
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
from side_by_side import METRICS, add_run_options, check_run_options, figures, prepare, run_once
from torch.export import Dim, export, save

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent
sys.path.insert(0, str(REPOSITORY / "examples" / "python"))
from export_model import causal_lm, export_module

NODES, RUNS, VOCABULARY = 1000, 31, 256
MIB = 1024.0**2

Figures = dict[str, float]


class Chain(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(NODES):
            x = x + 1
        return x


# --------------------------------------------------------------------------------- one process


def median_us(body: Callable[[], object]) -> float:
    times = []
    for _ in range(RUNS + 1):
        start = time.process_time()
        body()
        times.append((time.process_time() - start) * 1e6)
    return statistics.median(times[1:])


def peak_bytes(body: Callable[[], object]) -> int:
    """The most that tensors on the CPU took at a time while it ran, beyond what there was before."""
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        body()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


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


def export_llama(directory: Path, out: Path, weights: bool, longest: int = 128) -> torch.nn.Module:
    model = causal_lm(str(directory), weights=weights)
    sizes = {0: Dim("batch", min=1, max=64), 1: Dim("seq", min=2, max=longest)}
    tokens = [torch.randint(0, VOCABULARY, (2, 11)) for _ in range(2)]
    export_module(model, tokens, str(out), (sizes, sizes))
    return model


@torch.no_grad()
def eager_node_us() -> float:
    one, chain = torch.ones(1), Chain()
    return median_us(lambda: chain(one)) / NODES


def eager_step(model: torch.nn.Module) -> Figures:
    tokens = torch.arange(4 * 64).remainder(VOCABULARY).view(4, 64)

    def step() -> None:
        model.zero_grad()
        model(tokens, tokens.clone()).backward()

    taken = median_us(step)
    return {"eager": taken, "eager_peak": peak_bytes(step)}


def measure_alone(benchmark: Path, rounds: int) -> list[Figures]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        chain, deep, model = (folder / f"{n}.pt2" for n in ("chain", "deep", "model"))
        save(export(Chain(), (torch.ones(1),)), str(chain))
        save_llama(folder / "deep", 32)
        export_llama(folder / "deep", deep, weights=False)
        save_llama(folder / "model", 2)
        eager = export_llama(folder / "model", model, weights=True)
        command = [benchmark, chain, str(NODES), deep, model, folder / "model/config.json"]
        taken = []
        for _ in range(rounds):
            ours = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
            taken.append({**ours, "python": eager_node_us(), **eager_step(eager)})
    return taken


def table_alone(rounds: list[Figures]) -> str:
    def row(title: str, keys: list[str], scale: float) -> str:
        """The program's median, those of the others, and its ratios to them."""
        cells = [f"{statistics.median(r[key] for r in rounds) / scale:.2f}" for key in keys]
        for other in keys[1:]:
            cells.append(f"{statistics.median(r[keys[0]] / r[other] for r in rounds):.2f}")
        return " | ".join([f"| {title}", *cells, *[""] * (5 - len(cells)), ""]).rstrip()

    return "\n".join(
        [
            "| | program | C++ | Python | to C++ | to Python |\n|---|---|---|---|---|---|",
            row("one node, us", ["node", "direct", "python"], 1),
            row("a step, ms", ["exported", "own", "eager"], 1000),
            row("memory of a step, MiB", ["exported_peak", "own_peak", "eager_peak"], MIB),
            row("loading 32 layers, ms", ["load"], 1000),
        ]
    )


# --------------------------------------------------------------------------------- several ranks


def measure_sharded(args: argparse.Namespace) -> dict[str, list[Figures]]:
    tokens_a_step = args.global_batch * args.seq_len
    args.work_dir.mkdir(parents=True, exist_ok=True)
    model, tokens = prepare(args.sharded, args.work_dir, args.steps * tokens_a_step + 1)
    program = args.work_dir / f"{args.sharded}-{args.seq_len}.pt2"  # which takes windows that long
    if not program.exists():
        export_llama(model, program, weights=True, longest=args.seq_len)
    vocabulary = json.loads((model / "config.json").read_text())["vocab_size"]
    options = [
        "--tokens", str(tokens), "--steps", str(args.steps), "--seq-len", str(args.seq_len),
        "--global-batch", str(args.global_batch),
    ]  # fmt: skip
    ranks = ["--nproc-per-node", str(args.nproc)]
    ours = [args.fsdp2, "run", *ranks, "--", args.fsdp2, "train", *options, "--model"]
    python = [sys.executable, "-m", "torch.distributed.run", "--standalone", *ranks]
    commands = {
        "program": [*ours, str(program), "--vocab-size", str(vocabulary)],
        "own": [*ours, str(model)],
        "python": [
            *python, str(HERE / "python" / "train_fsdp2.py"), *options, "--model", str(model),
            "--optimizer-impl", "fused",
        ],
    }  # fmt: skip
    taken: dict[str, list[Figures]] = {side: [] for side in commands}
    for number in range(args.rounds):
        for side, command in commands.items():
            run = run_once(
                [str(word) for word in command], 1, args.work_dir / f"{side}-{number}.log"
            )
            taken[side].append({**figures(run, tokens_a_step), "last_loss": run.steps[-1]["loss"]})
    return taken


def table_sharded(taken: dict[str, list[Figures]]) -> str:
    def median(side: str, key: str) -> float:
        return statistics.median(figure[key] for figure in taken[side])

    def ratio(other: str, key: str) -> str:
        pairs = zip(taken["program"], taken[other], strict=True)
        return f"{statistics.median(ours[key] / theirs[key] for ours, theirs in pairs):.3f}"

    lines = [
        "| | program | own Llama | Python FSDP2 | to own | to Python |\n|---|---|---|---|---|---|"
    ]
    for metric in METRICS:
        shown = [
            f"{median(side, metric.key) / metric.scale:.{metric.digits}f}"
            for side in ("program", "own", "python")
        ]
        ratios = [ratio("own", metric.key), ratio("python", metric.key)]
        lines.append(f"| {metric.title} | {' | '.join(shown + ratios)} |")
    losses = [f"{median(side, 'last_loss'):.6f}" for side in ("program", "own", "python")]
    return "\n".join([*lines, f"| loss of the last step | {' | '.join(losses)} | | |"])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__.split("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--benchmark",
        type=Path,
        default=REPOSITORY / "bazel-bin/bench/exported_benchmark",
        help="the program to measure in one process",
    )
    parser.add_argument(
        "--sharded",
        default="",
        help="a preset of bench/python/make_model.py to train on several ranks",
    )
    add_run_options(parser, seq_len=256, rounds=5)
    args = parser.parse_args()
    check_run_options(parser, args)
    result: dict[str, object] = {"bench": "exported", "rounds": args.rounds}
    alone = measure_alone(args.benchmark, args.rounds)
    print(table_alone(alone))
    result["alone"] = alone
    if args.sharded:
        sharded = measure_sharded(args)
        print()
        print(table_sharded(sharded))
        result |= {"preset": args.sharded, "world_size": args.nproc, "sharded": sharded}
    print()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
