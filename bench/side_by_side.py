#!/usr/bin/env python3
"""Run libfsdp2's trainer and the Python reference in turn, and compare them.

    python bench/side_by_side.py --preset llama-90m --nproc 2 --seq-len 512 --global-batch 4

Both get the same model directory, token file and training options; each round is one run of
ours, then one of theirs. Prints a Markdown table, then one JSON line with every figure.
bench/README.md says what the figures mean.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
WARMUP_STEPS = 2  # left out of the step times
GIB = 1024.0**3
# Models, token files and logs; kept for later calls.
DEFAULT_WORK_DIR = Path(tempfile.gettempdir()) / "fsdp2-bench"

Line = dict[str, Any]


@dataclass
class Run:
    """What one run of one trainer printed, and when."""

    steps: list[Line]
    step_ends: list[float]  # when their lines came, in seconds since the epoch
    summary: Line
    launch_to_first_step_s: float


class RunFailed(Exception):
    """The command, how it ended, and the end of its log."""


class TooSlow(RunFailed):
    """The command had not ended when its time was over."""


@dataclass
class Metric:
    """One row of the table: a key of figures(), how it is called and shown."""

    key: str
    title: str
    scale: float = 1.0
    digits: int = 3


METRICS = [
    Metric("step_time_s", "median step time, s"),
    Metric("tokens_per_s", "tokens/s", digits=1),
    Metric("peak_rss_bytes", "peak memory of a rank, GiB", scale=GIB),
    Metric("rss_before_model_bytes", "of it before the model, GiB", scale=GIB),
    Metric("peak_above_before_bytes", "peak less that, GiB", scale=GIB),
    Metric("launch_to_first_step_s", "launch to end of step 1, s", digits=2),
]


# --------------------------------------------------------------------------------- inputs


def prepare(preset: str, work_dir: Path, tokens_needed: int) -> tuple[Path, Path]:
    """(model directory, token file), written unless they are there already."""
    sys.path.insert(0, str(HERE / "python"))
    try:
        import make_model
    except ModuleNotFoundError as error:
        sys.exit(f"{error}: pip install -r bench/python/requirements.txt")

    model = work_dir / preset
    if not (model / "model.safetensors").exists():
        make_model.write_model(make_model.PRESETS[preset], model)
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    tokens = work_dir / f"tokens-{vocab}-{tokens_needed}.bin"
    if not tokens.exists():
        make_model.write_tokens(tokens, vocab, tokens_needed, seed=0)
    return model, tokens


def commands(args: argparse.Namespace, flags: list[str]) -> dict[str, list[str]]:
    """The command line of each side."""
    nproc = str(args.nproc)
    fsdp2 = str(args.fsdp2)
    ours = [fsdp2, "run", "--nproc-per-node", nproc, "--", fsdp2, "train"]
    if args.ours_command:
        ours = [word.replace("{nproc}", nproc) for word in shlex.split(args.ours_command)]
    theirs = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", nproc, str(HERE / "python" / "train_fsdp2.py"),
    ]  # fmt: skip
    return {"ours": ours + flags, "python": theirs + flags + shlex.split(args.python_args)}


# --------------------------------------------------------------------------------- running


@contextlib.contextmanager
def ended_after(process: subprocess.Popen[str], limit_s: float | None) -> Iterator[threading.Event]:
    """Ends the process if it is still under way after so long; the event says so."""
    is_over = threading.Event()
    if limit_s is None:
        yield is_over
        return
    timer = threading.Timer(limit_s, lambda: (is_over.set(), process.terminate()))
    timer.start()
    try:
        yield is_over
    finally:
        timer.cancel()


def run_once(
    command: list[str],
    threads: int,
    log: Path,
    warmup: int = WARMUP_STEPS,
    variables: dict[str, str] | None = None,
    limit_s: float | None = None,
) -> Run:
    """Run one trainer to its end, for more than `warmup` steps; its stderr goes to `log`.

    Raises TooSlow if it runs for longer than `limit_s`, and RunFailed if it fails.
    """
    steps: list[Line] = []
    step_ends: list[float] = []
    summary: Line | None = None
    first_step_s = 0.0
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)} | (variables or {})
    with log.open("w") as errors:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        assert process.stdout is not None
        with ended_after(process, limit_s) as is_over:
            for text in process.stdout:
                now = time.perf_counter()
                if not text.startswith("{"):
                    continue
                line = json.loads(text)
                if line["event"] == "step":
                    if not steps:
                        first_step_s = now - started
                    steps.append(line)
                    step_ends.append(time.time())
                elif line["event"] == "summary":
                    summary = line
            code = process.wait()
    if is_over.is_set() and code != 0:
        raise TooSlow(f"{shlex.join(command)}: over {limit_s:g} s, {len(steps)} step lines")
    if code != 0 or summary is None or len(steps) <= warmup:
        tail = "\n".join(log.read_text(errors="replace").splitlines()[-20:])
        raise RunFailed(
            f"{shlex.join(command)}: exit status {code}, {len(steps)} step lines, "
            f"{'a' if summary else 'no'} summary line; the end of {log}:\n{tail}"
        )
    return Run(steps, step_ends, summary, first_step_s)


def figures(run: Run, tokens_a_step: int) -> dict[str, float]:
    """The figures of one run; of memory, the rank that needed most."""
    step_time = statistics.median(line["step_time_s"] for line in run.steps[WARMUP_STEPS:])
    peak: list[int] = run.summary["peak_rss_bytes"]
    before: list[int] = run.summary["rss_before_model_bytes"]
    return {
        "step_time_s": step_time,
        "tokens_per_s": tokens_a_step / step_time,
        "peak_rss_bytes": max(peak),
        "rss_before_model_bytes": max(before),
        "peak_above_before_bytes": max(p - b for p, b in zip(peak, before, strict=True)),
        "launch_to_first_step_s": run.launch_to_first_step_s,
    }


# --------------------------------------------------------------------------------- comparing


def largest_difference(ours: Run, theirs: Run, key: str) -> float:
    """Largest relative difference of one field of the step lines, by the Python side's values."""
    worst = 0.0
    for a, b in zip(ours.steps, theirs.steps, strict=True):
        worst = max(worst, abs(a[key] - b[key]) / max(abs(b[key]), 1e-12))
    return worst


def norm_key(*runs: Run) -> str:
    """The norm accumulated in double where both sides print it: torch's own one drifts."""
    exact = "grad_norm_fp64"
    return exact if all(exact in line for run in runs for line in run.steps) else "grad_norm"


def compare(rounds: list[tuple[Run, Run]], tokens_a_step: int) -> dict[str, Any]:
    """Medians over the rounds of each side's figures and of their ratio within a round."""
    ours = [figures(a, tokens_a_step) for a, _ in rounds]
    theirs = [figures(b, tokens_a_step) for _, b in rounds]
    ratios = [
        {key: a[key] / b[key] for key in a if b[key]} for a, b in zip(ours, theirs, strict=True)
    ]

    def medians(rows: list[dict[str, float]]) -> dict[str, float]:
        return {key: statistics.median(row[key] for row in rows) for key in rows[0]}

    norm = norm_key(*(run for pair in rounds for run in pair))
    return {
        "ours": medians(ours),
        "python": medians(theirs),
        "ratio": medians(ratios),
        "ratio_min": {key: min(row[key] for row in ratios) for key in ratios[0]},
        "ratio_max": {key: max(row[key] for row in ratios) for key in ratios[0]},
        "largest_relative_difference": {
            "loss": max(largest_difference(a, b, "loss") for a, b in rounds),
            norm: max(largest_difference(a, b, norm) for a, b in rounds),
        },
        "by_round": [{"ours": a, "python": b} for a, b in zip(ours, theirs, strict=True)],
    }


def table(result: dict[str, Any]) -> str:
    """The comparison as Markdown."""
    rows = [
        "| | libfsdp2 | Python FSDP2 | ratio | ratio, lowest to highest |",
        "|---|---|---|---|---|",
    ]
    for metric in METRICS:
        sides = (
            f"{result[s][metric.key] / metric.scale:.{metric.digits}f}" for s in ("ours", "python")
        )
        ratio, low, high = (result[k][metric.key] for k in ("ratio", "ratio_min", "ratio_max"))
        rows.append(
            f"| {metric.title} | {' | '.join(sides)} | {ratio:.3f} | {low:.3f} to {high:.3f} |"
        )
    differences = result["largest_relative_difference"].items()
    rows.append("")
    rows.append(
        "Largest relative difference: "
        + ", ".join(f"{key} {value:.1e}" for key, value in differences)
    )
    return "\n".join(rows)


# --------------------------------------------------------------------------------- command line


def add_run_options(parser: argparse.ArgumentParser, seq_len: int, rounds: int) -> None:
    """Adds what every bench needs that trains in turn; seq_len and rounds are its defaults."""
    parser.add_argument("--nproc", type=int, default=2, help="ranks")
    parser.add_argument("--seq-len", type=int, default=seq_len, help="tokens a window")
    parser.add_argument(
        "--global-batch", type=int, default=4, help="windows a step, over all ranks"
    )
    parser.add_argument(
        "--steps", type=int, default=8, help=f"steps a run; the first {WARMUP_STEPS} are not timed"
    )
    parser.add_argument("--rounds", type=int, default=rounds, help="runs of each side")
    parser.add_argument(
        "--work-dir",
        type=Path,
        default=DEFAULT_WORK_DIR,
        help="models, token files and logs; kept for later calls",
    )
    parser.add_argument(
        "--fsdp2", type=Path, default=ROOT / "bazel-bin" / "cli" / "fsdp2", help="the fsdp2 program"
    )


def check_run_options(parser: argparse.ArgumentParser, args: argparse.Namespace) -> None:
    if args.steps <= WARMUP_STEPS:
        parser.error(f"--steps must be more than {WARMUP_STEPS}")
    if args.rounds < 1:
        parser.error("--rounds must be at least 1")


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Options after -- go to both trainers as they are.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--preset", default="llama-90m", help="a preset of bench/python/make_model.py"
    )
    parser.add_argument("--threads", type=int, default=1, help="threads a rank (OMP_NUM_THREADS)")
    parser.add_argument("--lr", type=float, default=3e-4, help="learning rate of both sides")
    add_run_options(parser, seq_len=512, rounds=3)
    parser.add_argument(
        "--ours-command",
        default="",
        help="the command that stands for libfsdp2's side; {nproc} becomes the number of ranks and "
        "the training options are added at its end",
    )
    parser.add_argument(
        "--python-args",
        default="",
        help='options of the Python side only, as --python-args="--optimizer-impl fused"',
    )
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    args.train_options = argv[split + 1 :]
    check_run_options(parser, args)
    if not args.ours_command and not args.fsdp2.exists():
        parser.error(f"no program at {args.fsdp2}: build it, or name it with --fsdp2")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(list(sys.argv[1:] if argv is None else argv))
    tokens_a_step = args.global_batch * args.seq_len
    model, tokens = prepare(args.preset, args.work_dir, args.steps * tokens_a_step + 1)
    flags = [
        "--model", str(model), "--tokens", str(tokens), "--steps", str(args.steps),
        "--seq-len", str(args.seq_len), "--global-batch", str(args.global_batch),
        "--lr", str(args.lr), *args.train_options,
    ]  # fmt: skip
    sides = commands(args, flags)

    rounds: list[tuple[Run, Run]] = []
    for number in range(args.rounds):
        runs: dict[str, Run] = {}
        for side, command in sides.items():
            runs[side] = run_once(command, args.threads, args.work_dir / f"{side}-{number}.log")
            step_time = figures(runs[side], tokens_a_step)["step_time_s"]
            print(f"round {number + 1} {side}: {step_time:.3f} s a step", file=sys.stderr)
        rounds.append((runs["ours"], runs["python"]))

    result = compare(rounds, tokens_a_step)
    setting = {
        "bench": "side-by-side",
        "preset": args.preset,
        "parameters": rounds[0][1].summary["parameters"],
        "device": rounds[0][1].summary["device"],
        "world_size": args.nproc,
        "threads_per_rank": args.threads,
        "seq_len": args.seq_len,
        "global_batch": args.global_batch,
        "steps_timed": args.steps - WARMUP_STEPS,
        "rounds": args.rounds,
        "train_options": args.train_options,
        "python_args": shlex.split(args.python_args),
        "ours_command": args.ours_command,
        "torch": rounds[0][1].summary["torch"],
    }
    print(table(result))
    print()
    print(json.dumps(setting | result))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RunFailed as failure:
        sys.exit(str(failure))
