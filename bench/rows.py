#!/usr/bin/env python3
"""Measure every row of the comparison with Python FSDP2, and print one table and one JSON line.

    ./bazelw run //bench                       all rows, three rounds; hours on a small machine
    ./bazelw run //bench -- --quick            one short round; runs of Python end after 150 s
    ./bazelw run //bench -- --rows 90m,10m     these rows only; --list names them

In each round of a row libfsdp2 runs once, then each Python variant once, with the same model,
tokens and options; a ratio is ours divided by theirs within a round. bench/README.md says what the
figures mean.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import side_by_side as bench

# Options of the Python side by the name of the variant.
VARIANTS: dict[str, list[str]] = {
    "defaults": [],
    "fused": ["--optimizer-impl", "fused"],
    "medium": ["--optimizer-impl", "fused", "--matmul-precision", "medium"],
    "fsdp1": ["--fsdp1"],
}
TINY = bench.ROOT / "tests" / "parity" / "golden" / "models" / "tiny-llama" / "config.json"
BF16 = ("--param-dtype", "bf16", "--reduce-dtype", "fp32")
HIGH = ("--matmul-precision", "high")
EVERY = ("defaults", "fused", "medium", "fsdp1")


@dataclass(frozen=True)
class Row:
    """One row of the table: what both sides train, and which variants of Python stand beside it."""

    name: str
    preset: str
    ranks: int
    seq_len: int
    global_batch: int
    steps: int
    variants: tuple[str, ...]
    both: tuple[str, ...] = ()  # options of both sides
    ours: tuple[str, ...] = ()  # options of our side only


ROWS = [
    Row("90m", "llama-90m", 2, 512, 4, 8, EVERY),
    Row("90m-high", "llama-90m", 2, 512, 4, 8, ("defaults", "medium"), ours=HIGH),
    Row("90m-bf16", "llama-90m", 2, 512, 4, 8, ("fused",), both=BF16),
    Row("90m-1-rank", "llama-90m", 1, 512, 2, 8, ("fused",)),
    Row("90m-1-rank-2048", "llama-90m", 1, 2048, 1, 6, ("fused",)),
    Row("10m", "llama-10m", 2, 128, 4, 20, ("fused",)),
    Row("small-units", "small-units", 2, 16, 2, 20, ("fused",)),
    Row("moe", "qwen3-moe-8-experts", 2, 512, 4, 5, ("defaults",)),
]

SHOWN = [
    ("step_time_s", "step"),
    ("peak_rss_bytes", "peak memory of a rank"),
    ("launch_to_first_step_s", "launch to end of step 1"),
]


# LibTorch's own bf16 products take minutes a step on CPUs that have no units for them.
QUICK_RUN_LIMIT_S = 150.0


def quick(row: Row) -> Row:
    """The same row in as few steps as have two that are timed, beside its first variant only."""
    return replace(row, steps=bench.WARMUP_STEPS + 2, variants=row.variants[:1])


# --------------------------------------------------------------------------------- machine


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown CPU"


def product_peak(fsdp2: Path, dtype: str, threads: int) -> float | None:
    """FLOP/s of the fastest large matrix products here, as `fsdp2 bench` measures them."""
    command = [
        str(fsdp2), "bench", "--json", "--model", str(TINY), "--ranks", "1", "--seq-len", "16",
        "--steps", "2", "--threads", str(threads), "--param-dtype", dtype,
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"no product peak: {done.stderr.strip()}", file=sys.stderr)
        return None
    return json.loads(done.stdout.splitlines()[-1])["product"]["tflops"] * 1e12


def share_of_peak(parameters: int, tokens_per_s: float, peak: float | None) -> float | None:
    """6 x parameters x tokens/s / peak, as `fsdp2 bench` has it; None if there is no peak."""
    return 6.0 * parameters * tokens_per_s / peak if peak else None


# --------------------------------------------------------------------------------- measuring


def commands_of(row: Row, args: argparse.Namespace) -> dict[str, list[str]]:
    """The command of our side ("ours") and of each variant."""
    tokens_a_step = row.global_batch * row.seq_len
    model, tokens = bench.prepare(row.preset, args.work_dir, row.steps * tokens_a_step + 1)
    flags = [
        "--model", str(model), "--tokens", str(tokens), "--steps", str(row.steps),
        "--seq-len", str(row.seq_len), "--global-batch", str(row.global_batch),
        "--lr", "3e-4", *row.both,
    ]  # fmt: skip
    nproc, fsdp2 = str(row.ranks), str(args.fsdp2)
    result = {"ours": [fsdp2, "run", "--nproc-per-node", nproc, "--", fsdp2, "train", *flags]}
    result["ours"] += row.ours
    trainer = str(bench.HERE / "python" / "train_fsdp2.py")
    for variant in row.variants:
        result[variant] = [
            sys.executable, "-m", "torch.distributed.run", "--standalone",
            "--nproc-per-node", nproc, trainer, *flags, *VARIANTS[variant],
        ]  # fmt: skip
    return result


def measure(row: Row, args: argparse.Namespace) -> dict[str, list[bench.Run]]:
    """The runs of each side, a round after another; none of a variant that is too slow."""
    runs: dict[str, list[bench.Run]] = {}
    too_slow: set[str] = set()
    for number in range(args.rounds):
        for side, command in commands_of(row, args).items():
            if side in too_slow:
                continue
            log = args.work_dir / f"{row.name}-{side}-{number}.log"
            limit_s = None if side == "ours" else args.run_limit
            try:
                run = bench.run_once(command, args.threads, log, limit_s=limit_s)
            except bench.TooSlow as slow:
                print(slow, file=sys.stderr)
                too_slow.add(side)
                runs.pop(side, None)
                continue
            runs.setdefault(side, []).append(run)
            step = bench.figures(run, row.global_batch * row.seq_len)["step_time_s"]
            print(f"{row.name}, round {number + 1}, {side}: {step:.4f} s a step", file=sys.stderr)
    return runs


def figures_of(row: Row, args: argparse.Namespace, peak: float | None) -> dict[str, Any]:
    runs = measure(row, args)
    tokens_a_step = row.global_batch * row.seq_len
    beside = {
        variant: bench.compare(list(zip(runs["ours"], runs[variant], strict=True)), tokens_a_step)
        for variant in row.variants
        if variant in runs
    }
    parameters = runs["ours"][0].summary["parameters"]
    speed = statistics.median(
        bench.figures(run, tokens_a_step)["tokens_per_s"] for run in runs["ours"]
    )
    return {
        "row": row.name,
        "preset": row.preset,
        "ranks": row.ranks,
        "seq_len": row.seq_len,
        "global_batch": row.global_batch,
        "steps_timed": row.steps - bench.WARMUP_STEPS,
        "options": [*row.both, *row.ours],
        "share_of_product_peak": share_of_peak(parameters, speed, peak),
        "beside": beside,
        "over_run_limit": [variant for variant in row.variants if variant not in runs],
        "run_limit_s": args.run_limit,
    }


# --------------------------------------------------------------------------------- showing


def table(results: list[dict[str, Any]]) -> str:
    titles = " | ".join(title for _, title in SHOWN)
    lines = [
        f"| row | Python's variant | {titles} | loss differs by | share of product peak |",
        "|---|---|" + "---|" * len(SHOWN) + "---|---|",
    ]
    for result in results:
        share = result["share_of_product_peak"]
        share_text = "-" if share is None else f"{share:.2f}"
        for variant, found in result["beside"].items():
            cells = [
                f"{found['ratio'][key]:.2f} ({found['ratio_min'][key]:.2f} to "
                f"{found['ratio_max'][key]:.2f})"
                for key, _ in SHOWN
            ]
            loss = f"{found['largest_relative_difference']['loss']:.1e}"
            lines.append(
                f"| {result['row']} | {variant} | {' | '.join(cells)} | {loss} | {share_text} |"
            )
        for variant in result["over_run_limit"]:
            cells = [f"its run takes over {result['run_limit_s']:g} s"] + ["-"] * len(SHOWN)
            lines.append(f"| {result['row']} | {variant} | {' | '.join(cells)} | {share_text} |")
    return "\n".join(lines)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="", help="rows to measure, with commas; default: all")
    parser.add_argument("--list", action="store_true", help="name the rows and stop")
    parser.add_argument("--quick", action="store_true", help="one short round, one variant a row")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each row")
    parser.add_argument(
        "--run-limit", type=float, metavar="S", help="leave out variants whose runs take longer"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads a rank (OMP_NUM_THREADS)")
    parser.add_argument("--fsdp2", type=Path, default=bench.ROOT / "bazel-bin" / "cli" / "fsdp2")
    parser.add_argument("--json", type=Path, help="write the JSON line into this file, too")
    parser.add_argument("--work-dir", type=Path, default=bench.DEFAULT_WORK_DIR)
    args = parser.parse_args()
    names = [name for name in args.rows.split(",") if name]
    known = [row.name for row in ROWS]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no row is called {', '.join(unknown)}; there are {', '.join(known)}")
    args.chosen = [row for row in ROWS if not names or row.name in names]
    if args.quick:
        args.rounds = 1
        args.run_limit = QUICK_RUN_LIMIT_S if args.run_limit is None else args.run_limit
        args.chosen = [quick(row) for row in args.chosen]
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")
    if not args.list and not args.fsdp2.exists():
        parser.error(f"no program at {args.fsdp2}: build it, or name it with --fsdp2")
    return args


def main() -> int:
    args = parse_arguments()
    if args.list:
        for row in args.chosen:
            print(f"{row.name}: {row.preset}, {row.ranks} ranks, beside {', '.join(row.variants)}")
        return 0
    args.work_dir.mkdir(parents=True, exist_ok=True)
    peaks: dict[tuple[str, int], float | None] = {}
    results = []
    for row in args.chosen:
        dtype = "bf16" if row.both == BF16 else "none"
        key = (dtype, row.ranks * args.threads)
        if key not in peaks:
            peaks[key] = product_peak(args.fsdp2, *key)
        results.append(figures_of(row, args, peaks[key]))
    whole = {
        "bench": "rows",
        "cpu": cpu_name(),
        "threads_per_rank": args.threads,
        "rounds": args.rounds,
        "quick": args.quick,
        "product_peaks": [
            {
                "dtype": "fp32" if dtype == "none" else dtype,
                "threads": threads,
                "flops_per_s": peak,
            }
            for (dtype, threads), peak in peaks.items()
        ],
        "rows": results,
    }
    rounds = f"{args.rounds} round{'' if args.rounds == 1 else 's'}"
    print(f"{whole['cpu']}; {rounds}; ours / theirs: median (lowest to highest)\n")
    print(table(results))
    print("\nshare of product peak = 6 x parameters x tokens/s / peak of large products")
    line = json.dumps(whole)
    print(f"\n{line}")
    if args.json:
        args.json.write_text(line + "\n")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except bench.RunFailed as failure:
        sys.exit(str(failure))
