#!/usr/bin/env python3
"""libfsdp2's trainer beside Python FSDP2, eager and compiled, on one GPU in one run.

    python bench/gpu.py --preset qwen2.5-0.5b --rounds 2

All get the same weights, tokens and options. A round runs each side once, one after the other. Prints
a Markdown table, then one JSON line with every figure, for each preset. bench/README.md says what the
figures mean.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_memory import GpuMemory
from side_by_side import GIB, HERE, ROOT, Metric, Run, RunFailed, run_once

TOKENS = 2_000_000  # in a token file; longer runs see its windows again
MAX_FILE_BYTES = 4 << 30  # of weights, because the tensors of a file are in memory together


@dataclass(frozen=True)
class Side:
    program: str  # "ours" or "python"
    options: tuple[str, ...] = ()


SIDES = {
    "ours": Side("ours"),
    "ours-graph": Side("ours", ("--cuda-graph",)),
    "eager": Side("python", ("--optimizer-impl", "fused")),
    "compiled": Side("python", ("--optimizer-impl", "fused", "--compile")),
    "eager-default": Side("python"),  # PyTorch's default AdamW, by tensor lists
    "ours-one-unit": Side("ours", ("--wrap", "none")),  # what units cost, by difference
    "plain": Side("python", ("--optimizer-impl", "fused", "--plain")),  # no FSDP at all
}

# Storage of parameters, gradients and optimizer states.
STORAGE = {
    "bf16": ["--dtype", "bf16"],
    "fp32": ["--dtype", "fp32", "--param-dtype", "bf16", "--reduce-dtype", "fp32"],
    "all-fp32": ["--dtype", "fp32"],
}


@dataclass(frozen=True)
class Setting:
    """What is trained, unless the command line says otherwise.

    In bf16 it is meant to fit into 80 GB on all sides, but for llama-8b.
    """

    seq_len: int
    micro_batch: int  # windows
    grad_accum: int
    activation_checkpointing: bool = False


SETTINGS = {
    "small-units": Setting(32, 1, 1),
    "gpt-124m": Setting(1024, 32, 4),
    "llama-1b": Setting(1024, 8, 4),
    "qwen2.5-0.5b": Setting(1024, 8, 8),
    "qwen2.5-1.5b": Setting(1024, 4, 8),
    "qwen2.5-3b": Setting(1024, 4, 4),
    "qwen2.5-7b": Setting(1024, 2, 8, activation_checkpointing=True),
    "llama-8b": Setting(4096, 1, 4, activation_checkpointing=True),
}
OTHER_SETTING = Setting(128, 2, 2)

METRICS = [
    Metric("tokens_per_s", "tokens/s", digits=0),
    Metric("step_time_s", "median step time, ms", scale=1e-3, digits=1),
    Metric("mfu", "MFU, %", scale=0.01, digits=1),
    Metric("allocated_peak_bytes", "peak of tensors on the GPU, GiB", scale=GIB, digits=2),
    Metric("gpu_peak_bytes", "peak of the GPU's memory in use, GiB", scale=GIB, digits=2),
    Metric("launch_to_first_step_s", "launch to end of step 1, s", digits=1),
    Metric("first_loss", "first loss", digits=4),
    Metric("last_loss", "last loss", digits=4),
]


# --------------------------------------------------------------------------------- inputs


def make(*words: object) -> None:
    """make_model.py, in a process of its own: none of the GPU's memory stays with this one."""
    command = [sys.executable, str(HERE / "python" / "make_model.py"), *map(str, words)]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def prepare(args: argparse.Namespace, preset: str) -> tuple[Path, Path]:
    """(model directory, token file), written unless they are there already."""
    dtype = "bf16" if args.storage == "bf16" else "fp32"
    model = args.work_dir / f"{preset}-{dtype}"
    if not (model / "written").exists():
        make("model", "--preset", preset, "--out", model, "--dtype", dtype, "--device", args.device,
             "--max-shard-bytes", MAX_FILE_BYTES)  # fmt: skip
        (model / "written").touch()
    vocab = json.loads((model / "config.json").read_text())["vocab_size"]
    tokens = args.work_dir / f"tokens-{vocab}-{TOKENS}.bin"
    if not tokens.exists():
        make("tokens", "--vocab", vocab, "--count", TOKENS, "--out", tokens)
    return model, tokens


def setting_of(args: argparse.Namespace, preset: str) -> Setting:
    known = SETTINGS.get(preset, OTHER_SETTING)
    return Setting(
        args.seq_len or known.seq_len,
        args.micro_batch or known.micro_batch,
        args.grad_accum or known.grad_accum,
        known.activation_checkpointing
        if args.activation_checkpointing is None
        else args.activation_checkpointing,
    )


def command_of(side: Side, args: argparse.Namespace, flags: list[str]) -> list[str]:
    nproc = ["--nproc-per-node", str(args.nproc)]
    fsdp2 = str(args.fsdp2)
    if side.program == "python":
        trainer = [str(HERE / "python" / "train_fsdp2.py")]
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", *nproc, *trainer]
        command = [sys.executable, *trainer] if args.nproc == 1 else launch
    else:
        launch = [fsdp2] if args.nproc == 1 else [fsdp2, "run", *nproc, "--", fsdp2]
        command = [*launch, "train", "--quiet"]
    own = shlex.split(args.python_args if side.program == "python" else args.ours_args)
    return [*command, *flags, *side.options, *own]


# --------------------------------------------------------------------------------- figures


def layers_of(config: dict[str, Any]) -> int:
    return config.get("num_hidden_layers") or config["n_layer"]


def flops_of_a_token(config: dict[str, Any], parameters: int, seq_len: int) -> float:
    """6 x parameters without embedding but with head + 12 L W S, forward and backward."""
    layers = layers_of(config)
    width = config.get("hidden_size") or config["n_embd"]
    without = 0 if config["tie_word_embeddings"] else config["vocab_size"] * width
    without += config.get("n_positions", 0) * width
    return 6.0 * (parameters - without) + 12.0 * layers * width * seq_len


def figures(run: Run, memory: GpuMemory, args: argparse.Namespace, work: dict[str, Any]) -> dict:
    """The figures of one run; without those that this side or machine does not have."""
    timed = [line["step_time_s"] for line in run.steps[args.warmup_steps :]]
    speed = work["tokens_a_step"] * len(timed) / sum(timed)
    peak = args.peak_tflops * 1e12 * args.nproc
    found = {
        "tokens_per_s": speed,
        "step_time_s": statistics.median(timed),
        "mfu": speed * flops_of_a_token(work["config"], run.summary["parameters"], work["seq_len"])
        / peak,
        "gpu_peak_bytes": memory.peak_bytes,
        "allocated_peak_bytes": max(run.summary.get("peak_device_bytes", [0])) or None,
        "launch_to_first_step_s": run.launch_to_first_step_s,
        "first_loss": run.steps[0]["loss"],
        "last_loss": run.steps[-1]["loss"],
    }  # fmt: skip
    return {key: value for key, value in found.items() if value is not None}


def medians(rows: list[dict[str, float]]) -> dict[str, float]:
    """By key, over the rounds that have one."""
    keys = {key: None for row in rows for key in row}
    return {key: statistics.median(row[key] for row in rows if key in row) for key in keys}


def ratios(ours: list[dict], theirs: list[dict]) -> dict[str, dict[str, float]]:
    """Ours divided by theirs within a round: the median, the lowest and the highest."""
    found = {}
    for key in (metric.key for metric in METRICS):
        values = [
            a[key] / b[key] for a, b in zip(ours, theirs, strict=True) if key in a and b.get(key)
        ]
        if values:
            middle = statistics.median(values)
            found[key] = {"median": middle, "lowest": min(values), "highest": max(values)}
    return found


def compare(by_side: dict[str, list[dict]]) -> dict[str, Any]:
    ours = by_side.get("ours", [])
    return {
        "sides": {side: medians(rows) for side, rows in by_side.items() if rows},
        "ours_divided_by": {
            side: ratios(ours, rows)
            for side, rows in by_side.items()
            if side != "ours" and rows and len(rows) == len(ours)
        },
        "by_round": by_side,
    }


def unit_cost(result: dict[str, Any], layers: int) -> float | None:
    """What a unit takes of a step, in us, where ours ran with a unit a layer and with one in all."""
    sides = result["sides"]
    if not {"ours", "ours-one-unit"} <= sides.keys():
        return None
    difference = sides["ours"]["step_time_s"] - sides["ours-one-unit"]["step_time_s"]
    return 1e6 * difference / layers


def table(result: dict[str, Any]) -> str:
    sides, quotients = result["sides"], result["ours_divided_by"]
    heads = [*sides, *(f"ours / {side}" for side in quotients)]
    rows = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for metric in METRICS:
        cells = []
        for values in sides.values():
            value = values.get(metric.key)
            cells.append("" if value is None else f"{value / metric.scale:.{metric.digits}f}")
        for values in quotients.values():
            ratio = values.get(metric.key)
            cells.append(
                "{median:.3f} ({lowest:.3f} to {highest:.3f})".format(**ratio) if ratio else ""
            )
        rows.append(f"| {metric.title} | " + " | ".join(cells) + " |")
    return "\n".join(rows)


# --------------------------------------------------------------------------------- a preset


def flags_of(
    args: argparse.Namespace, setting: Setting, model: Path, tokens: Path, steps: int
) -> list[str]:
    """The options that all sides get."""
    return [
        "--model", str(model), "--tokens", str(tokens), "--device", args.device,
        "--steps", str(steps), "--seq-len", str(setting.seq_len),
        "--global-batch", str(setting.micro_batch * setting.grad_accum * args.nproc),
        "--grad-accum", str(setting.grad_accum), "--lr", "1e-4", "--clip", str(args.clip),
        *STORAGE[args.storage],
        *(["--activation-checkpointing"] if setting.activation_checkpointing else []),
        *args.train_options,
    ]  # fmt: skip


def measure(preset: str, args: argparse.Namespace) -> dict[str, Any]:
    """All rounds of one preset. A side that fails is left out of the later rounds."""
    setting = setting_of(args, preset)
    model, tokens = prepare(args, preset)
    flags = flags_of(args, setting, model, tokens, args.warmup_steps + args.steps)
    work = {
        "config": json.loads((model / "config.json").read_text()),
        "tokens_a_step": setting.micro_batch * setting.grad_accum * args.nproc * setting.seq_len,
        "seq_len": setting.seq_len,
    }
    by_side: dict[str, list[dict]] = {side: [] for side in args.sides}
    failures: dict[str, str] = {}
    summary: dict[str, Any] = {}
    for number in range(args.rounds):
        for side in args.sides:
            if side in failures:
                continue
            log = args.work_dir / f"{preset}-{side}-{number}.log"
            try:
                with GpuMemory() as memory:
                    run = run_once(
                        command_of(SIDES[side], args, flags), args.threads, log, args.warmup_steps
                    )
            except RunFailed as failure:
                failures[side] = str(failure)
                print(f"{preset} {side}: {failure}", file=sys.stderr, flush=True)
                continue
            found = figures(run, memory, args, work)
            by_side[side].append(found)
            summary |= {
                k: run.summary[k] for k in ("parameters", "torch", "transformers", "libfsdp2")
                if k in run.summary
            }  # fmt: skip
            print(
                f"{preset} round {number + 1} {side}: {found['tokens_per_s']:.0f} tokens/s, "
                f"{found['step_time_s']:.3f} s a step",
                file=sys.stderr, flush=True,
            )  # fmt: skip
    compared = compare(by_side)
    return {
        "bench": "gpu",
        "preset": preset,
        **summary,
        "device": args.device,
        "world_size": args.nproc,
        "storage": args.storage,
        "seq_len": setting.seq_len,
        "micro_batch": setting.micro_batch,
        "grad_accum": setting.grad_accum,
        "activation_checkpointing": setting.activation_checkpointing,
        "clip": args.clip,
        "steps_timed": args.steps,
        "warmup_steps": args.warmup_steps,
        "rounds": args.rounds,
        "train_options": args.train_options,
        "ours_args": args.ours_args,
        "python_args": args.python_args,
        "failures": failures,
        "unit_cost_us": unit_cost(compared, layers_of(work["config"])),
        **compared,
    }


# --------------------------------------------------------------------------------- command line


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What is trained, by which program, and where."""
    add = parser.add_argument
    add("--storage", default="bf16", choices=list(STORAGE),
        help="dtype of parameters, gradients and states; computes in bf16 but for all-fp32")  # fmt: skip
    add("--seq-len", type=int, default=0, help="tokens a window (0: the preset's)")
    add("--micro-batch", type=int, default=0, help="windows a micro batch (0: the preset's)")
    add("--grad-accum", type=int, default=0, help="micro batches a step (0: the preset's)")
    add("--activation-checkpointing", action=argparse.BooleanOptionalAction,
        help="default: the preset's")  # fmt: skip
    add("--clip", type=float, default=1.0, help="gradient norm to clip to")
    add("--nproc", type=int, default=1, help="ranks, one a GPU")
    add("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: only to try it out")
    add("--threads", type=int, default=max(1, (os.cpu_count() or 1) // 2),
        help="CPU threads a rank (OMP_NUM_THREADS)")  # fmt: skip
    add("--work-dir", type=Path, default=Path(tempfile.gettempdir()) / "fsdp2-bench",
        help="models, token files and logs; kept for later calls")  # fmt: skip
    add("--fsdp2", type=Path, default=ROOT / "bazel-bin" / "cli" / "fsdp2", help="the program")
    add("--ours-args", default="", help="options of our side only")
    add("--python-args", default="", help="options of the Python sides only")


def parse_run_arguments(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """With what follows -- as train_options."""
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    args.train_options = argv[split + 1 :]
    if not args.fsdp2.exists():
        parser.error(f"no program at {args.fsdp2}: build it, or name it with --fsdp2")
    args.work_dir.mkdir(parents=True, exist_ok=True)
    return args


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Options after -- go to both trainers as they are.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", action="append", required=True, help="of make_model.py; may be repeated")
    add("--sides", default="ours,eager,compiled", help="of " + ", ".join(SIDES))
    add("--steps", type=int, default=50, help="timed steps")
    add("--warmup-steps", type=int, default=10, help="steps before them")
    add("--rounds", type=int, default=1, help="runs of each side")
    add("--peak-tflops", type=float, default=989.4, help="of a GPU, for MFU")
    add_run_arguments(parser)
    args = parse_run_arguments(parser, argv)
    args.sides = args.sides.split(",")
    unknown = [side for side in args.sides if side not in SIDES]
    if unknown:
        parser.error(f"no side {unknown[0]}: expected some of {', '.join(SIDES)}")
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(list(sys.argv[1:] if argv is None else argv))
    failed = False
    for preset in args.preset:
        result = measure(preset, args)
        failed = failed or bool(result["failures"])
        print(table(result), "\n", sep="\n")
        if result["unit_cost_us"] is not None:
            print(f"a unit: {result['unit_cost_us']:.0f} us of a step\n")
        print(json.dumps(result), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
