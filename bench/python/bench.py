#!/usr/bin/env python3
"""Measure train_fsdp2.py: throughput, step time and peak memory; prints one JSON line.

    bench.py --preset llama-90m --nproc 2 --seq-len 256 --global-batch 4 -- --param-dtype bf16

Options after `--` go to train_fsdp2.py as they are. The model and the tokens are written once
into --work-dir and used again by later calls.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def prepare(args: argparse.Namespace) -> tuple[Path, Path]:
    """(model directory, token file), written unless they are there already."""
    import make_model

    model = args.model or args.work_dir / args.preset
    if not (model / "config.json").exists():
        if args.model:
            raise SystemExit(f"no config.json in {model}")
        make_model.write_model(make_model.PRESETS[args.preset], model)
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    count = (args.steps + args.warmup_steps) * args.global_batch * args.seq_len + 1
    tokens = args.work_dir / f"tokens-{vocab}-{count}.bin"
    if not tokens.exists():
        make_model.write_tokens(tokens, vocab, count, seed=0)
    return model, tokens


def launch(args: argparse.Namespace, model: Path, tokens: Path) -> list[dict[str, Any]]:
    """The JSON lines of one run under torchrun."""
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(args.nproc), str(HERE / "train_fsdp2.py"),
        "--model", str(model), "--tokens", str(tokens),
        "--steps", str(args.steps + args.warmup_steps),
        "--seq-len", str(args.seq_len), "--global-batch", str(args.global_batch),
        "--lr", "3e-4", *args.train_options,
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": str(args.threads)}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", help="a preset of make_model.py")
    source.add_argument("--model", type=Path, help="a model directory instead")
    parser.add_argument("--nproc", type=int, default=1, help="ranks")
    parser.add_argument("--threads", type=int, default=1, help="threads a rank (OMP_NUM_THREADS)")
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=6, help="measured steps")
    parser.add_argument("--warmup-steps", type=int, default=2, help="steps left out of the figures")
    parser.add_argument(
        "--work-dir", type=Path, default=Path(tempfile.gettempdir()) / "fsdp2-bench"
    )
    arguments = list(sys.argv[1:] if argv is None else argv)
    split = arguments.index("--") if "--" in arguments else len(arguments)
    args = parser.parse_args(arguments[:split])
    args.train_options = arguments[split + 1 :]

    model, tokens = prepare(args)
    lines = launch(args, model, tokens)
    times = [line["step_time_s"] for line in lines if line["event"] == "step"][args.warmup_steps :]
    summary = lines[-1]
    median = statistics.median(times)
    print(
        json.dumps(
            {
                "bench": "python-fsdp2",
                "model": args.preset or args.model.name,
                "parameters": summary["parameters"],
                "device": summary["device"],
                "world_size": args.nproc,
                "threads_per_rank": args.threads,
                "seq_len": args.seq_len,
                "global_batch": args.global_batch,
                "train_options": args.train_options,
                "steps_measured": len(times),
                "step_time_s_median": round(median, 6),
                "step_time_s_min": min(times),
                "step_time_s_max": max(times),
                "tokens_per_s_median": round(args.global_batch * args.seq_len / median, 2),
                **{k: v for k, v in summary.items() if k.endswith("_bytes")},
                "torch": summary["torch"],
                "transformers": summary["transformers"],
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
