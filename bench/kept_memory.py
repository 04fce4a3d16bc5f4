#!/usr/bin/env python3
"""What a training step costs with memory that is kept, or with another flag, beside one without.

    ./bazelw build //cli:fsdp2
    python3 bench/kept_memory.py [--flag keep-memory] [--preset llama-90m] [--nproc 2] [-- FLAGS]

Trains a preset with the flag true and false in turn, a short and a longer run of each, whose
difference is that of late steps alone: processor seconds of a step, and the pages that it got from
the system. The losses must be equal. Further flags go to `fsdp2 train`. It needs no Python packages.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "python"))

from model_presets import PRESETS

FEW, MANY = 3, 9  # steps
# Flags of memory alone, which leave losses as they are: how each is on, and how it is off.
FLAGS = {
    "keep-memory": (["--keep-memory", "true"], ["--keep-memory", "false"]),
    "update-in-backward": (["--update-in-backward"], []),
}


@dataclass
class Run:
    losses: list[float]
    peak: int  # bytes, of the rank that needed most
    seconds: float  # of processors, all ranks together
    faults: int


@dataclass
class Figures:
    losses: list[float]
    peak: int
    seconds: float  # a late step
    faults: float  # a late step


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Steps with a flag, beside steps without.")
    parser.add_argument("--flag", default="keep-memory", choices=sorted(FLAGS))
    parser.add_argument("--preset", default="llama-90m", choices=sorted(PRESETS))
    parser.add_argument("--nproc", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=512)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--fsdp2", type=Path, default=ROOT / "bazel-bin/cli/fsdp2")
    parser.add_argument("flags", nargs="*", help="after --: for fsdp2 train")
    return parser.parse_args()


def used_by_children() -> tuple[float, int]:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime, usage.ru_minflt


def train(options: argparse.Namespace, work: Path, is_on: bool, steps: int) -> Run:
    fsdp2 = [str(options.fsdp2)]
    command = fsdp2 + ["run", "--nproc-per-node", str(options.nproc), "--"] + fsdp2
    command += ["train", "--model-config", str(work / "config.json"), "--seed", "1"]
    command += ["--tokens", str(work / "tokens.bin"), "--product-engine", "mkl"]
    command += FLAGS[options.flag][0 if is_on else 1] + ["--steps", str(steps)]
    command += ["--seq-len", str(options.seq_len), "--global-batch", str(options.global_batch)]
    seconds, faults = used_by_children()
    done = subprocess.run(
        command + options.flags,
        env={"OMP_NUM_THREADS": "1"} | os.environ,
        stdout=subprocess.PIPE,
        check=True,
    )
    seconds_after, faults_after = used_by_children()
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{")]
    losses = [line["loss"] for line in lines if line["event"] == "step"]
    summary = next(line for line in lines if line["event"] == "summary")
    return Run(
        losses, max(summary["peak_rss_bytes"]), seconds_after - seconds, faults_after - faults
    )


def late_steps(options: argparse.Namespace, work: Path, is_on: bool) -> Figures:
    few = train(options, work, is_on, FEW)
    many = train(options, work, is_on, MANY)
    steps = MANY - FEW
    return Figures(
        many.losses,
        many.peak,
        (many.seconds - few.seconds) / steps,
        (many.faults - few.faults) / steps,
    )


def print_table(flag: str, kept: list[Figures], plain: list[Figures]) -> None:
    print(f"| | {flag} | without | ratio |\n|---|---|---|---|")
    for name, scale, read in (
        ("peak of a rank, MB", 1e-6, lambda figures: figures.peak),
        ("processor seconds of a late step", 1, lambda figures: figures.seconds),
        ("page faults of a late step", 1, lambda figures: figures.faults),
    ):
        ours = scale * statistics.median(map(read, kept))
        theirs = scale * statistics.median(map(read, plain))
        ratio = f"{ours / theirs:.3f}" if theirs > 0 else ""
        print(f"| {name} | {ours:.6g} | {theirs:.6g} | {ratio} |")
    equal = all(figures.losses == plain[0].losses for figures in kept + plain)
    print("losses: " + ("equal to the bit" if equal else "DIFFERENT"))


def main() -> None:
    options = parse_arguments()
    config = PRESETS[options.preset]
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "config.json").write_text(json.dumps(config))
        source = random.Random(0)
        vocabulary = config["vocab_size"]
        count = MANY * options.global_batch * options.seq_len + 1
        tokens = array(
            "H" if vocabulary <= 1 << 16 else "I", source.choices(range(vocabulary), k=count)
        )
        if sys.byteorder == "big":
            tokens.byteswap()
        (work / "tokens.bin").write_bytes(tokens.tobytes())
        kept: list[Figures] = []
        plain: list[Figures] = []
        for _ in range(options.rounds):
            kept.append(late_steps(options, work, True))
            plain.append(late_steps(options, work, False))
    print_table(options.flag, kept, plain)


if __name__ == "__main__":
    main()
