"""The recorded runs of Python FSDP2 (tests/parity/golden), trained again by the tool of a pack.

The tolerances are the suite's own, which its CPU runs are held to. They are relative and leave a
GPU room: they are 3 (bf16) to 15 times (fp32) what PyTorch's runs differ by when only the order of sums
changes (other numbers of ranks, other attention kernels), and a GPU changes little else.
fp32 products are not rounded to TF32: LibTorch does not unless told, and machine.environment forbids it.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench" / "python"))
import process
from golden import relative

GOLDEN = Path("tests/parity/golden")
TIME_LIMIT_S = 120  # of one run

# Options of the Python program alone: other kernels of PyTorch for the same numbers.
VARIANTS_OF_PYTHON = {"attn": "sdpa", "optimizer_impl": "default", "plain": False}

# The recorded batches of 8 windows do not divide by 3. Three ranks equal one rank on the CPU.
THREE_RANKS = ["tiny-llama", "tiny-llama-gqa-tied", "tiny-qwen3"]

Record = dict[str, Any]


@dataclass(frozen=True)
class Case:
    model: str
    run: str
    world: int
    options: Record
    tolerance: Record
    expected: Record | None  # the recorded losses and norms; None: those of one rank on the CPU

    @property
    def name(self) -> str:
        return f"{self.model}/{self.run}/{self.world}"


def recorded_cases(pack: Path, model: str) -> list[Case]:
    golden = json.loads((pack / GOLDEN / f"{model}.json").read_text())
    cases = []
    for run in golden["runs"]:
        name, options = run["name"], run["options"]
        if any(options[key] != value for key, value in VARIANTS_OF_PYTHON.items()):
            continue
        tolerance = golden["tolerances"][name]
        cases.append(Case(model, name, run["world_size"], options, tolerance, run))
        if model in THREE_RANKS and name in ("fp32", "bf16") and run["world_size"] == 1:
            cases.append(Case(model, name, 3, options | {"global_batch": 12}, tolerance, None))
    return cases


def cases_of(pack: Path, patterns: list[str]) -> list[Case]:
    """All cases whose name matches one of `patterns`; plain runs of one rank come first."""
    suite = json.loads((pack / GOLDEN / "suite.json").read_text())
    order = [run["name"] for run in suite["runs"]]
    cases = [case for model in suite["models"] for case in recorded_cases(pack, model)]
    cases = [case for case in cases if any(fnmatch(case.name, pattern) for pattern in patterns)]
    plain = ("fp32", "bf16")
    return sorted(cases, key=lambda c: (c.run not in plain, c.world, order.index(c.run)))


def cases_of_graphs(pack: Path, patterns: list[str]) -> list[Case]:
    """The plain runs of one rank."""
    return [
        case
        for case in cases_of(pack, patterns)
        if case.world == 1 and case.run in ("fp32", "bf16") and not case.options["cpu_offload"]
    ]


def flags_of(case: Case) -> list[str]:
    """The tool's flags for a recorded run: the same names with dashes."""
    flags = [
        "--model", str(GOLDEN / "models" / case.model),
        "--tokens", str(GOLDEN / "tokens" / f"{case.model}.bin"),
        "--exact-grad-norm", "--quiet",
    ]  # fmt: skip
    for key, value in case.options.items():
        flag = "--" + key.replace("_", "-")
        if key in VARIANTS_OF_PYTHON or value is False:
            continue
        flags += [flag] if value is True else [flag, str(value)]
    return flags


def command_of(case: Case, pack: Path, device: str, world: int) -> list[str]:
    tool = str(pack / "bin" / "fsdp2")
    launch = [] if world == 1 else ["run", "--nproc-per-node", str(world), "--", tool]
    # Ranks that share one GPU cannot use NCCL.
    backend = ["--backend", "gloo"] if world > 1 and device == "cuda" else []
    return [tool, *launch, "train", *flags_of(case), "--device", device, *backend]


class RunFailed(Exception):
    pass


def train(command: list[str], pack: Path, environment: dict[str, str]) -> Record:
    """The losses and norms of a run, by step."""
    done = process.run(command, pack, environment, TIME_LIMIT_S)
    if done.status != 0:
        raise RunFailed(f"exit status {done.status}: {done.errors[-2000:]}")
    lines = [json.loads(line) for line in done.out.splitlines() if line.startswith("{")]
    steps = [line for line in lines if line["event"] == "step"]
    trained_on = next((line["device"] for line in lines if line["event"] == "summary"), None)
    return {
        "device": trained_on,
        **{key: [line[key] for line in steps] for key in ("loss", "grad_norm")},
    }


def compare(case: Case, found: Record, expected: Record) -> Record:
    norms = [expected[key] for key in ("grad_norm", "grad_norm_fp64") if key in expected]
    differences = {
        "loss": relative(found["loss"], expected["loss"]),
        "grad_norm": min(relative(found["grad_norm"], norm) for norm in norms),
    }
    return {
        key: {"largest_relative_difference": value, "tolerance": case.tolerance[key]}
        for key, value in differences.items()
    }


def run(case: Case, pack: Path, device: str, environment: dict[str, str]) -> Record:
    """One case: its outcome, "passed" or "failed", and the figures or the message behind it."""
    started = time.monotonic()
    result: Record = {"case": case.name, "device": device}
    try:
        found = train(command_of(case, pack, device, case.world), pack, environment)
        expected = case.expected
        if expected is None:
            expected = train(command_of(case, pack, "cpu", 1), pack, environment)
        figures = compare(case, found, expected)
        good = all(f["largest_relative_difference"] <= f["tolerance"] for f in figures.values())
        # Where the shards are is what the tool reports.
        if found["device"] != device and not case.options["cpu_offload"]:
            good, figures["message"] = False, f"it trained on {found['device']}"
        result |= {"outcome": "passed" if good else "failed", **figures}
    except RunFailed as error:
        result |= {"outcome": "failed", "message": str(error)}
    return result | {"seconds": round(time.monotonic() - started, 1)}


def run_as_graph(case: Case, pack: Path, environment: dict[str, str]) -> Record:
    """One case with --cuda-graph, whose numbers are those without it."""
    started = time.monotonic()
    result: Record = {"case": case.name, "device": "cuda"}
    command = command_of(case, pack, "cuda", case.world)
    try:
        expected = train(command, pack, environment)
        found = train([*command, "--cuda-graph"], pack, environment)
        figures = {
            key: {"largest_relative_difference": relative(found[key], expected[key])}
            for key in ("loss", "grad_norm")
        }
        good = all(found[key] == expected[key] for key in ("loss", "grad_norm"))
        result |= {"outcome": "passed" if good else "failed", **figures}
    except RunFailed as error:
        result |= {"outcome": "failed", "message": str(error)}
    return result | {"seconds": round(time.monotonic() - started, 1)}
