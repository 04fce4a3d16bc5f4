#!/usr/bin/env python3
"""Checkpoints exchanged with PyTorch's FSDP2 and DCP: every number of ranks to every other, both ways.

    python_interop.py --fsdp2 PROGRAM --trainer train_fsdp2.py --golden DIR

Runs of six steps are stopped after three, by either side, and finished by the other; their losses must be those of the
uninterrupted run. Also: our full state dicts and model directories are read by torch.load, safetensors and transformers, and
what either side has saved is converted into every format (conversion_matrix.py).
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import multiprocessing.connection
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

from conversion_matrix import differences, save_as_trainers, save_model_alone

MODEL = "tiny-llama-gqa-tied"
STEPS, STOP = 6, 3
BATCH = 12
TOLERANCE = 2e-5
TIMEOUT_S = 600  # of all that one number of ranks does
# (ranks, ranks of a shard group; 0: all)
PLACES = [(1, 0), (2, 0), (3, 0), (4, 0), (4, 2)]
OPTIMIZERS: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw", "lr": 3e-3},
    "sgd": {"optimizer": "sgd", "lr": 1e-2},
}
# The checkpoints of so many ranks are converted, too.
CONVERTED_RANKS = (1, 2, 3)


def name_of(place: tuple[int, int], optimizer: str) -> str:
    return f"{optimizer}-{place[0]}x{place[1]}"


def cases(most_ranks: int) -> list[tuple[tuple[int, int], str]]:
    """Every place with AdamW, two ranks with SGD too."""
    every = [(place, "adamw") for place in PLACES] + [((2, 0), "sgd")]
    return [case for case in every if case[0][0] <= most_ranks]


def common(golden: Path) -> dict[str, Any]:
    return {
        "model": str(golden / "models" / MODEL),
        "tokens": str(golden / "tokens" / f"{MODEL}.bin"),
        "steps": STEPS,
        "global_batch": BATCH,
        "lr_schedule": "cosine",
        "warmup": 2,
    }


def load_trainer(path: str) -> ModuleType:
    sys.path.insert(0, str(Path(path).parent))  # where its own modules are
    return importlib.import_module(Path(path).stem)


# ------------------------------------------------------------------- in Python, on N ranks


def python_ranks(arguments: argparse.Namespace) -> None:
    """All that Python does with so many ranks: whole runs, saves, and resumes from ours."""
    trainer = load_trainer(arguments.trainer)
    golden, work = Path(arguments.golden), Path(arguments.work)
    losses: dict[str, list[float]] = {}

    def run(label: str, **settings: Any) -> None:
        lines: list[dict[str, Any]] = []
        trainer.run(trainer.TrainConfig(**common(golden), **settings), device, lines.append)
        losses[label] = [line["loss"] for line in lines if line["event"] == "step"]

    with trainer.process_group("cpu") as device:
        ranks = int(os.environ["WORLD_SIZE"])
        for place, optimizer in cases(arguments.most_ranks):
            if place[0] != ranks:
                continue
            settings = {"fsdp_size": place[1], **OPTIMIZERS[optimizer]}
            name = name_of(place, optimizer)
            run(f"whole {name}", **settings)
            run(f"saved {name}", **settings, stop_step=STOP, save_dir=str(work / "python" / name))
            for other, other_optimizer in cases(arguments.most_ranks):
                if other_optimizer == optimizer:
                    ours = name_of(other, optimizer)
                    run(f"resumed {name} from {ours}", **settings, resume=str(work / "ours" / ours))
        if ranks in CONVERTED_RANKS:
            name = name_of((ranks, 0), "adamw")
            save_model_alone(work / "python" / name, work / "python" / f"{name}-model")
            save_as_trainers(work / "python" / name, work / "trainers" / name)
        if int(os.environ["RANK"]) == 0:
            Path(arguments.out).write_text(json.dumps(losses))
    trainer.leave()


def become_rank(arguments: argparse.Namespace, rank: int, ranks: int, port: int, log: Path) -> None:
    """What one rank's process does: it describes itself as torchrun would, and writes to its log."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(ranks))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), OMP_NUM_THREADS="1")
    with log.open("wb") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    python_ranks(arguments)


def reserve_port() -> socket.socket:
    """A socket that keeps a free port from others and does not listen: rank 0, which sets SO_REUSEADDR too, can listen there."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    return reserved


def start_python(arguments: argparse.Namespace, ranks: int, work: Path) -> dict[str, list[float]]:
    """All that Python does with so many ranks.

    The ranks are forks of this process, which has imported torch and transformers once for all of them and has run nothing in
    them yet: the imports take longer than what the ranks do.
    """
    load_trainer(arguments.trainer)
    arguments.work, arguments.out = str(work), str(work / f"python-{ranks}.json")
    logs = [work / f"python-{ranks}-{rank}.log" for rank in range(ranks)]
    fork = multiprocessing.get_context("fork")
    with reserve_port() as reserved:
        port = reserved.getsockname()[1]
        processes = [
            fork.Process(target=become_rank, args=(arguments, rank, ranks, port, log), daemon=True)
            for rank, log in enumerate(logs)
        ]
        for process in processes:
            process.start()
        sentinels, deadline = (
            {process.sentinel for process in processes},
            time.monotonic() + TIMEOUT_S,
        )
        while sentinels and not any(process.exitcode for process in processes):
            ended = multiprocessing.connection.wait(sentinels, deadline - time.monotonic())
            if not ended:
                break
            sentinels -= set(ended)
    if sentinels or any(process.exitcode for process in processes):
        for process in processes:
            process.kill()
        sys.exit(f"Python with {ranks} ranks failed:\n" + "".join(log.read_text() for log in logs))
    return json.loads(Path(arguments.out).read_text())


# ------------------------------------------------------------------- ours


def run_ours(
    arguments: argparse.Namespace, place: tuple[int, int], optimizer: str, *more: str
) -> list[float]:
    settings = {**common(Path(arguments.golden)), **OPTIMIZERS[optimizer], "fsdp_size": place[1]}
    flags = [
        part
        for key, value in settings.items()
        for part in ("--" + key.replace("_", "-"), str(value))
    ]
    command = [
        arguments.fsdp2,
        "run",
        "--nproc-per-node",
        str(place[0]),
        "--",
        arguments.fsdp2,
        "train",
        *flags,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*command, *more], check=False, env=environment, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join([*command, *more])} failed:\n{done.stderr}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return [line["loss"] for line in lines if line["event"] == "step"]


class Checks:
    """Counts what was compared and says what differs."""

    def __init__(self) -> None:
        self.count = 0
        self.largest = 0.0
        self.failures: list[str] = []

    def same(self, what: str, found: list[float], expected: list[float]) -> None:
        self.count += 1
        worst = max((abs(a - b) / abs(b) for a, b in zip(found, expected)), default=0.0)
        self.largest = max(self.largest, worst)
        if len(found) != len(expected) or worst > TOLERANCE:
            self.failures.append(f"{what}: {found}, expected {expected}")

    def true(self, what: str, good: bool) -> None:
        self.count += 1
        if not good:
            self.failures.append(what)


def check_full_formats(arguments: argparse.Namespace, work: Path, checks: Checks) -> None:
    """What we write for other programs, read by them."""
    import torch
    from safetensors.torch import load_file
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
    from transformers import AutoModelForCausalLM

    outputs = {
        "pth": work / "fsdp_cpt3.pth",
        "safetensors": work / "full.safetensors",
        "directory": work / "model",
    }
    run_ours(
        arguments,
        (2, 0),
        "adamw",
        "--stop-step",
        str(STOP),
        "--save-dir",
        str(work / "dcp"),
        "--full-state-dict",
        str(outputs["pth"]),
        "--save-pretrained",
        str(outputs["directory"]),
    )
    subprocess.run(
        [arguments.fsdp2, "convert", str(work / "dcp"), str(outputs["safetensors"])], check=True
    )
    subprocess.run(
        [arguments.fsdp2, "convert", str(work / "dcp"), str(work / "all.pth")], check=True
    )
    full = torch.load(outputs["pth"], weights_only=True)
    plain = load_file(outputs["safetensors"])
    model = AutoModelForCausalLM.from_pretrained(outputs["directory"], dtype=torch.float32)
    state = model.state_dict()
    model.load_state_dict(full)
    checks.true("a .pth file has the names of state_dict()", set(full) == set(state))
    for name, tensor in state.items():
        checks.true(f"{name} by transformers", torch.equal(full[name], tensor))
        checks.true(f"{name} by safetensors", torch.equal(full[name], plain[name]))
    theirs = work / "theirs.pth"
    dcp_to_torch_save(work / "dcp", theirs)
    a, b = (torch.load(path, weights_only=True) for path in (theirs, work / "all.pth"))
    checks.true(
        "our conversion has the tree of Python's",
        list(a) == list(b) and list(a["optim"]) == list(b["optim"]),
    )
    for name in a["optim"]["state"]:
        for slot, tensor in a["optim"]["state"][name].items():
            checks.true(
                f"{name}.{slot} converted", torch.equal(tensor, b["optim"]["state"][name][slot])
            )


def check_conversions(arguments: argparse.Namespace, work: Path, checks: Checks) -> None:
    """What either side has saved, in every format."""
    config = Path(arguments.golden) / "models" / MODEL / "config.json"
    for ranks in (ranks for ranks in CONVERTED_RANKS if ranks <= arguments.most_ranks):
        name = name_of((ranks, 0), "adamw")
        ours = work / "ours" / f"{name}-model"
        subprocess.run(
            [arguments.fsdp2, "convert", str(work / "ours" / name), str(ours), "--model-only"],
            check=True,
        )
        for source in (
            work / "python" / name,
            work / "python" / f"{name}-model",
            work / "ours" / name,
            ours,
        ):
            with tempfile.TemporaryDirectory() as targets:
                for target, wrong in differences(arguments.fsdp2, source, config, Path(targets)):
                    what = f"{source.relative_to(work)} into {target}"
                    checks.true(f"{what}: {wrong}", wrong is None)


def check_trainers(
    arguments: argparse.Namespace, work: Path, checks: Checks, python: dict[str, list[float]]
) -> None:
    """Models and optimizers in the layouts of trainers, on the ranks that saved them and on others."""
    for ranks in (ranks for ranks in CONVERTED_RANKS if ranks <= arguments.most_ranks):
        theirs = name_of((ranks, 0), "adamw")
        for layout in ("files", "directories", "full"):
            path = work / "trainers" / theirs / layout
            subprocess.run([arguments.fsdp2, "inspect", str(path), "--verify"], check=True)
            losses = run_ours(arguments, (3 - min(ranks, 2), 0), "adamw", "--resume", str(path))
            checks.same(f"ours from {layout} of {theirs}", losses, python[f"whole {theirs}"][STOP:])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp2", required=True)
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--golden", required=True)
    parser.add_argument("--most-ranks", type=int, default=4)
    arguments = parser.parse_args()
    checks = Checks()
    for key in ("fsdp2", "trainer", "golden"):
        setattr(arguments, key, os.path.abspath(getattr(arguments, key)))
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        for place, optimizer in cases(arguments.most_ranks):
            save_dir = work / "ours" / name_of(place, optimizer)
            run_ours(
                arguments, place, optimizer, "--stop-step", str(STOP), "--save-dir", str(save_dir)
            )
        python: dict[str, list[float]] = {}
        for ranks in sorted({place[0] for place, _ in cases(arguments.most_ranks)}):
            python |= start_python(arguments, ranks, work)
        for label, losses in python.items():
            if label.startswith("resumed "):
                whole = python[f"whole {label.split()[1]}"]
                checks.same(f"Python {label}", losses, whole[STOP:])
        for place, optimizer in cases(arguments.most_ranks):
            for other, other_optimizer in cases(arguments.most_ranks):
                if other_optimizer == optimizer:
                    theirs = name_of(other, optimizer)
                    losses = run_ours(
                        arguments, place, optimizer, "--resume", str(work / "python" / theirs)
                    )
                    what = f"ours {name_of(place, optimizer)} from {theirs}"
                    checks.same(what, losses, python[f"whole {theirs}"][STOP:])
        check_trainers(arguments, work, checks, python)
        check_full_formats(arguments, work, checks)
        check_conversions(arguments, work, checks)
    print(f"{checks.count} comparisons, largest relative difference of a loss {checks.largest:.2e}")
    for failure in checks.failures:
        print("FAILED:", failure)
    return 1 if checks.failures else 0


if __name__ == "__main__":
    sys.exit(main())
