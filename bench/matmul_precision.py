#!/usr/bin/env python3
"""What the loss of a training run owes to the precision of its fp32 products.

    ./bazelw build //cli:fsdp2
    python3 bench/matmul_precision.py [--preset llama-10m] [--steps 500] [--against high-always]

Trains a preset in strict fp32 ("highest") and in another precision, from the same weights and over
the same tokens, and prints the losses side by side, their largest difference, and the speed of each
run. With "high" or "medium" the run says on standard error whether this CPU is fast enough at it to
be used; "high-always" and "medium-always" are used on any CPU, and are slower on most.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(HERE / "python"))

from model_presets import PRESETS

SUCCESSORS = (0.55, 0.2, 0.1)  # how often each follows its token; otherwise any token does


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Losses by the precision of fp32 products.")
    parser.add_argument("--preset", default="llama-10m", choices=sorted(PRESETS))
    parser.add_argument("--against", default="high-always", help="the other precision")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--global-batch", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--nproc", type=int, default=1)
    parser.add_argument("--fsdp2", type=Path, default=ROOT / "bazel-bin/cli/fsdp2")
    return parser.parse_args()


def write_tokens(path: Path, vocabulary: int, count: int) -> None:
    """A Markov chain that a model can learn, little-endian as the trainer reads it."""
    source = random.Random(0)
    weights = [1 / (rank + 3) for rank in range(vocabulary)]  # the low ones are frequent
    spread = source.choices(range(vocabulary), weights, k=3 * vocabulary + count)
    tokens = array("H" if vocabulary <= 1 << 16 else "I", [spread[0]])
    for fallback in spread[3 * vocabulary + 1 :]:
        which, drawn = 0, source.random()
        while which < 3 and drawn >= SUCCESSORS[which]:
            drawn -= SUCCESSORS[which]
            which += 1
        tokens.append(spread[3 * tokens[-1] + which] if which < 3 else fallback)
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


def train(options: argparse.Namespace, work: Path, precision: str) -> list[dict]:
    """The step lines of a run."""
    fsdp2 = [str(options.fsdp2)]
    command = fsdp2 + ["run", "--nproc-per-node", str(options.nproc), "--"] + fsdp2
    command += ["train", "--model-config", str(work / "config.json"), "--seed", "1"]
    command += ["--tokens", str(work / "tokens.bin"), "--matmul-precision", precision]
    for name in ("steps", "seq_len", "global_batch", "lr"):
        command += ["--" + name.replace("_", "-"), str(getattr(options, name))]
    done = subprocess.run(
        command, env={"OMP_NUM_THREADS": "1"} | os.environ, stdout=subprocess.PIPE, check=True
    )
    lines = (json.loads(line) for line in done.stdout.splitlines() if line.startswith(b"{"))
    return [line for line in lines if line["event"] == "step"]


def print_table(strict: list[dict], other: list[dict], name: str) -> None:
    print(f"| step | loss, highest | loss, {name} | difference |\n|---|---|---|---|")
    last = len(strict) - 1
    for step in sorted({round(i * last / 10) for i in range(11)}):
        ours, theirs = strict[step]["loss"], other[step]["loss"]
        print(f"| {step} | {ours:.6f} | {theirs:.6f} | {theirs - ours:+.1e} |")
    gaps = [abs(a["loss"] - b["loss"]) for a, b in zip(strict, other, strict=True)]
    worst = max(range(len(gaps)), key=gaps.__getitem__)
    print(f"\nlargest difference: {gaps[worst]:.1e}, at step {worst}")
    speeds = [
        sorted(line["tokens_per_s"] for line in run)[len(run) // 2] for run in (strict, other)
    ]
    print(f"tokens/s, medians: highest {speeds[0]:.0f}, {name} {speeds[1]:.0f}")


def main() -> None:
    options = parse_arguments()
    config = PRESETS[options.preset]
    with tempfile.TemporaryDirectory() as directory:
        work = Path(directory)
        (work / "config.json").write_text(json.dumps(config))
        windows = options.steps * options.global_batch
        write_tokens(work / "tokens.bin", config["vocab_size"], windows * options.seq_len + 1)
        strict = train(options, work, "highest")
        other = train(options, work, options.against)
    print_table(strict, other, options.against)


if __name__ == "__main__":
    main()
