#!/usr/bin/env python3
"""Make, re-check and compare golden files: losses and gradient norms of short training runs.

    golden.py make    --suite DIR/suite.json     models, tokens and golden files beside it; of --models
                                                 M ... alone where they are named
    golden.py check   --suite DIR/suite.json     run everything again, compare with the files
    golden.py report  --suite DIR/suite.json     the spreads of the golden files, as a table
    golden.py compare --golden DIR/tiny-llama.json --run fp32 --world 2 LINES.jsonl
                                                 compare another program's JSON lines

DIR is tests/parity/golden of the repository.

A suite names models (a preset or a config), and runs (training options and world sizes). Every
model is trained with every run at every world size, unless the run names its "models". `make` and
`check` start one torchrun per world size, which does all of that size's runs in one process group.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

Suite = dict[str, Any]
Record = dict[str, Any]

# Options that say where files lie or that do not belong to a golden run.
NOT_RECORDED = {
    "model", "tokens", "save_dir", "resume", "full_state_dict", "device", "stop_step", "exact_grad_norm", "matmul_precision",
    "compile", "fsdp1"
}  # fmt: skip
BASE_RUN = "fp32"
# Where rounding decides which expert gets a token, a run is no measure of another implementation.
LEAST_ROUTING_GAP = 5e-6


# --------------------------------------------------------------------------------- suite


def load_suite(path: Path) -> Suite:
    return json.loads(path.read_text())


def make_inputs(suite: Suite, root: Path, models: list[str]) -> None:
    """Write the models and token files."""
    import make_model

    for name in models:
        spec = suite["models"][name]
        config = spec["config"] if "config" in spec else make_model.PRESETS[spec["preset"]]
        make_model.write_model(
            config,
            root / "models" / name,
            seed=spec.get("seed", 0),
            dtype=spec.get("dtype", "fp32"),
            max_shard_bytes=spec.get("max_shard_bytes"),
        )
        make_model.write_tokens(
            root / "tokens" / f"{name}.bin",
            config["vocab_size"],
            spec["token_count"],
            spec.get("token_seed", 0),
        )


def run_options(suite: Suite, model: str, run: Record) -> Record:
    """Training options of a run: the suite's, the model's, the run's, the run's of this model."""
    spec = suite["models"][model]
    own = run.get("options_of", {}).get(model, {})
    return suite.get("defaults", {}) | spec.get("options", {}) | run.get("options", {}) | own


def runs_of(suite: Suite, model: str, world: int) -> list[Record]:
    only = suite["models"][model].get("runs")
    return [
        run
        for run in suite["runs"]
        if world in run["worlds"]
        and (only is None or run["name"] in only)
        and model in run.get("models", [model])
    ]


def world_sizes(suite: Suite) -> list[int]:
    return sorted({world for run in suite["runs"] for world in run["worlds"]})


# --------------------------------------------------------------------------------- running


def worker(suite_path: Path, out: Path, models: list[str], device_choice: str) -> None:
    """Under torchrun: all runs of this world size; rank 0 writes the records."""
    import torch.distributed as dist
    import train_fsdp2 as train
    import transformers
    from routing_gap import smallest_routing_gap

    transformers.logging.set_verbosity_error()
    suite, root = load_suite(suite_path), suite_path.parent
    records: list[Record] = []
    with train.process_group(device_choice) as device:
        world = dist.get_world_size()
        for model in models:
            for run in runs_of(suite, model, world):
                cfg = train.TrainConfig(
                    model=str(root / "models" / model),
                    tokens=str(root / "tokens" / f"{model}.bin"),
                    exact_grad_norm=True,
                    **run_options(suite, model, run),
                )
                lines: list[Record] = []
                norms: Record | None = {} if run["name"] == BASE_RUN else None
                with smallest_routing_gap() as gap:
                    train.run(cfg, device, lines.append, norms)
                gaps: list[float | None] = [None] * world
                dist.all_gather_object(gaps, gap())
                if dist.get_rank() == 0:
                    record = record_of(model, run["name"], world, cfg, lines, norms)
                    known = [g for g in gaps if g is not None]
                    records.append(record | ({"routing_gap": min(known)} if known else {}))
        if dist.get_rank() == 0:
            out.write_text(json.dumps(records))
    train.leave()


def record_of(
    model: str, name: str, world: int, cfg: Any, lines: list[Record], norms: Record | None
) -> Record:
    steps = [line for line in lines if line["event"] == "step"]
    summary = lines[-1]
    options = {k: v for k, v in dataclasses.asdict(cfg).items() if k not in NOT_RECORDED}
    return {
        "model": model,
        "name": name,
        "world_size": world,
        "options": options,
        "loss": [line["loss"] for line in steps],
        "grad_norm": [line["grad_norm"] for line in steps],
        "grad_norm_fp64": [line["grad_norm_fp64"] for line in steps],
        "lr": [line["lr"] for line in steps],
        "local_parameters": summary["local_parameters"],
        "versions": {"torch": summary["torch"], "transformers": summary["transformers"]},
        "norms": norms,
    }


def run_suite(
    suite_path: Path, worlds: list[int], models: list[str], device: str = "cpu"
) -> list[Record]:
    """The records of a suite, one torchrun per world size; all of it where a list is empty."""
    suite = load_suite(suite_path)
    records: list[Record] = []
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as scratch:
        for world in worlds or world_sizes(suite):
            out = Path(scratch) / f"world-{world}.json"
            command = [
                sys.executable, "-m", "torch.distributed.run", "--standalone",
                "--nproc-per-node", str(world), str(Path(__file__).resolve()),
                "worker", "--suite", str(suite_path.resolve()), "--out", str(out),
                "--device", device, "--models", *(models or suite["models"]),
            ]  # fmt: skip
            subprocess.run(command, check=True, env=environment)
            records += json.loads(out.read_text())
            print(f"world size {world}: {len(records)} records so far", file=sys.stderr)
    return records


def logits_record(root: Path, model_name: str, seq_len: int, attn: str = "sdpa") -> Record:
    """Logits of the library's own model for windows 0 and 1, in fp32 on one thread."""
    import torch
    import torch.nn.functional as F
    import train_fsdp2 as train
    from transformers import AutoModelForCausalLM
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()
    torch.set_num_threads(1)
    outputs: dict[str, torch.Tensor] = {}
    for name in (attn, "eager"):
        model = AutoModelForCausalLM.from_pretrained(
            root / "models" / model_name, attn_implementation=name, dtype=torch.float32
        ).eval()
        windows = train.TokenWindows(
            str(root / "tokens" / f"{model_name}.bin"), model.config.vocab_size, seq_len
        )
        inputs, labels = windows.batch([0, 1])
        with torch.no_grad():
            outputs[name] = model(input_ids=inputs, use_cache=False).logits
    logits = outputs[attn]
    wide = logits.double()
    positions = [
        [0, 0],
        [0, 1],
        [0, 7],
        [0, seq_len - 1],
        [1, 0],
        [1, seq_len // 2],
        [1, seq_len - 1],
    ]
    return {
        "windows": [0, 1],
        "seq_len": seq_len,
        "inputs_first_8": inputs[:, :8].tolist(),
        "positions": positions,
        "first_8": [logits[b, t, :8].tolist() for b, t in positions],
        "argmax": [int(logits[b, t].argmax()) for b, t in positions],
        "logsumexp": [wide[b, t].logsumexp(-1).item() for b, t in positions],
        "sum": wide.sum().item(),
        "abs_sum": wide.abs().sum().item(),
        "square_sum": wide.square().sum().item(),
        "loss": F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1)).item(),
        "max_abs_diff_to_eager": (logits - outputs["eager"]).abs().max().item(),
    }


# --------------------------------------------------------------------------------- comparing


def relative(a: list[float], b: list[float]) -> float:
    """Largest relative difference of two series, by the second one's values."""
    if len(a) != len(b):
        return float("inf")
    return max(abs(x - y) / max(abs(y), 1e-12) for x, y in zip(a, b, strict=True))


def find_run(golden: Record, name: str, world: int) -> Record:
    for run in golden["runs"]:
        if run["name"] == name and run["world_size"] == world:
            return run
    raise KeyError(f"{golden['model']} has no run {name} at world size {world}")


def baseline_of(golden: Record, run: Record, same_as: dict[str, str]) -> Record:
    """What a run is measured against: the smallest world size of the run it must equal."""
    name: str = same_as.get(run["name"]) or run["name"]
    worlds = [r["world_size"] for r in golden["runs"] if r["name"] == name]
    return find_run(golden, name, min(worlds))


def spreads(golden: Record, same_as: dict[str, str]) -> dict[str, Record]:
    """Per run name: the largest relative difference to the baseline, over world sizes and steps."""
    out: dict[str, Record] = {}
    for run in golden["runs"]:
        base = baseline_of(golden, run, same_as)
        entry = out.setdefault(
            run["name"], {"baseline": base["name"], "loss": 0.0, "grad_norm": 0.0}
        )
        for key in ("loss", "grad_norm"):
            entry[key] = max(entry[key], relative(run[key], base[key]))
    return out


def same_as_map(suite: Suite) -> dict[str, str]:
    return {run["name"]: run["same_as"] for run in suite["runs"] if "same_as" in run}


def tolerance_map(suite: Suite, model: str) -> dict[str, Record]:
    """Run name -> the relative tolerances that another implementation is held to."""
    classes = suite["tolerances"] | suite["models"][model].get("tolerances", {})
    return {run["name"]: classes[run["tolerance"]] for run in suite["runs"]}


# --------------------------------------------------------------------------------- files


def dump_golden(path: Path, golden: Record) -> None:
    """JSON with one line a top-level key and one line a run, so that changes diff well."""
    parts: list[str] = []
    for key, value in golden.items():
        if key == "runs":
            runs = ",\n".join("  " + json.dumps(run) for run in value)
            parts.append(f' "runs": [\n{runs}\n ]')
        else:
            parts.append(f" {json.dumps(key)}: {json.dumps(value)}")
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n")


def token_dtype_of(model_dir: Path) -> str:
    """uint16 or uint32: the element type of the model's token file."""
    import make_model

    vocab = json.loads((model_dir / "config.json").read_text())["vocab_size"]
    return make_model.token_dtype(vocab).name


def golden_of(suite: Suite, root: Path, model: str, records: list[Record]) -> Record:
    mine = [r for r in records if r["model"] == model]
    seq_len = run_options(suite, model, {}).get("seq_len", 32)
    norms = next((r["norms"] for r in mine if r["norms"] and r["world_size"] == 1), None)
    runs = [{k: v for k, v in r.items() if k not in ("model", "norms", "versions")} for r in mine]
    golden: Record = {
        "model": model,
        "model_dir": f"models/{model}",
        "tokens": f"tokens/{model}.bin",
        "token_dtype": token_dtype_of(root / "models" / model),
        "versions": mine[0]["versions"],
        "logits": logits_record(root, model, seq_len, runs[0]["options"]["attn"]),
        **(norms or {}),
        "runs": runs,
    }
    golden["spreads"] = spreads(golden, same_as_map(suite))
    used = {r["name"] for r in runs}
    golden["tolerances"] = {k: v for k, v in tolerance_map(suite, model).items() if k in used}
    return golden


def narrow_routing(records: list[Record]) -> list[str]:
    """The fp32 runs whose routing is too close to a tie to be recorded."""
    return [
        f"{r['model']} {r['name']} x{r['world_size']}: two experts' probabilities are "
        f"{r['routing_gap']:.1e} apart (at least {LEAST_ROUTING_GAP:.0e}): choose another lr or seed"
        for r in records
        if r.get("routing_gap", 1.0) < LEAST_ROUTING_GAP and r["name"].startswith("fp32")
    ]


def make(suite_path: Path, models: list[str]) -> int:
    suite, root = load_suite(suite_path), suite_path.parent
    models = models or list(suite["models"])
    make_inputs(suite, root, models)
    records = run_suite(suite_path, [], models)
    if narrow := narrow_routing(records):
        print("\n".join(narrow), file=sys.stderr)
        return 1
    for model in models:
        dump_golden(root / f"{model}.json", golden_of(suite, root, model, records))
    return report(suite_path)


def check(suite_path: Path, worlds: list[int], models: list[str], device: str) -> int:
    """Run the suite again and compare with the golden files; 1 if a tolerance is exceeded."""
    suite, root = load_suite(suite_path), suite_path.parent
    worst, failed = 0.0, 0
    for record in run_suite(suite_path, worlds, models, device):
        model, name, world = record["model"], record["name"], record["world_size"]
        golden = json.loads((root / f"{model}.json").read_text())
        wanted = find_run(golden, name, world)
        tolerance = tolerance_map(suite, model)[name]
        for key in ("loss", "grad_norm"):
            difference = relative(record[key], wanted[key])
            worst = max(worst, difference)
            if difference > tolerance[key]:
                failed += 1
                print(f"{model} {name} x{world} {key}: {difference:.2e}")
    print(f"largest relative difference {worst:.2e}, {failed} beyond tolerance")
    return 1 if failed else 0


def report(suite_path: Path) -> int:
    """Print the spreads: a row per run name, a column per model (loss / gradient norm)."""
    suite, root = load_suite(suite_path), suite_path.parent
    models = list(suite["models"])
    goldens = {m: json.loads((root / f"{m}.json").read_text()) for m in models}
    print("| run | baseline | " + " | ".join(models) + " |")
    print("|---|---|" + "---|" * len(models))
    for run in suite["runs"]:
        cells = []
        for model in models:
            entry = spreads(goldens[model], same_as_map(suite)).get(run["name"])
            cells.append(f"{entry['loss']:.0e} / {entry['grad_norm']:.0e}" if entry else "")
        print(f"| {run['name']} | {run.get('same_as', run['name'])} | " + " | ".join(cells) + " |")
    return 0


def compare(golden_path: Path, name: str, world: int, lines_path: Path) -> int:
    """Compare JSON lines (step, loss, grad_norm) with one golden run; 1 beyond tolerance."""
    golden = json.loads(golden_path.read_text())
    run, tolerance = find_run(golden, name, world), golden["tolerances"][name]
    parsed = [
        json.loads(line) for line in lines_path.read_text().splitlines() if line.startswith("{")
    ]
    steps = [line for line in parsed if "loss" in line and "step" in line]
    result: Record = {"model": golden["model"], "run": name, "world_size": world}
    passed = True
    for key in ("loss", "grad_norm"):
        mine = [line[key] for line in steps]
        difference = relative(mine, run[key])
        if key == "grad_norm":  # a norm accumulated in double is as good
            difference = min(difference, relative(mine, run["grad_norm_fp64"]))
        result[key] = {"max_relative_difference": difference, "tolerance": tolerance[key]}
        passed = passed and difference <= tolerance[key]
    print(json.dumps(result | {"passed": passed}))
    return 0 if passed else 1


# --------------------------------------------------------------------------------- command line


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("make", "check", "report", "worker"):
        command = commands.add_parser(name)
        command.add_argument("--suite", type=Path, required=True)
        if name == "check":
            command.add_argument("--worlds", type=int, nargs="+", default=[])
        if name in ("check", "worker"):
            command.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
        if name in ("make", "check", "worker"):
            command.add_argument("--models", nargs="+", default=[])
        if name == "worker":
            command.add_argument("--out", type=Path, required=True)
    command = commands.add_parser("compare")
    command.add_argument("--golden", type=Path, required=True)
    command.add_argument("--run", required=True)
    command.add_argument("--world", type=int, required=True)
    command.add_argument("lines", type=Path)
    args = parser.parse_args(argv)

    if args.command == "worker":
        worker(args.suite, args.out, args.models, args.device)
        return 0
    if args.command == "compare":
        return compare(args.golden, args.run, args.world, args.lines)
    if args.command == "check":
        return check(args.suite, args.worlds, args.models, args.device)
    if args.command == "make":
        return make(args.suite, args.models)
    return report(args.suite)


if __name__ == "__main__":
    sys.exit(main())
