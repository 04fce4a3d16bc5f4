"""The test programs of a pack, on a device, and under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import process

TIME_LIMIT_S = 300  # of one program
ERRORS_FOUND = 66  # the sanitizer's exit status for them; the programs' own are others

# As tests/capi/c_tests.bzl has it: clients of LibTorch's store ask for the name of its address.
NO_WAIT_FOR_NAMES = {"RES_OPTIONS": "timeout:1 attempts:1"}

# Our kernels are in the namespace fsdp2. NVIDIA's products keep hazards that racecheck reports.
OUR_KERNELS = ["--kernel-name", "kns=fsdp2"]

# On an H100 racecheck 2025.3 breaks LibTorch's bf16 products with "Internal Sanitizer Error: failed
# to handle a hardware exception", also where it is to check no kernel at all. The tests of kernels
# have our bf16 ones.
DTYPES_OF_TOOL = {"memcheck": ["none", "bf16"], "racecheck": ["none"]}

Record = dict[str, Any]


def tests_of(pack: Path, patterns: list[str]) -> list[str]:
    """The test programs, by path in the pack: tests/gpu first, because only a GPU runs them."""
    found = [*sorted(pack.glob("tests/gpu/*_test")), *sorted(pack.glob("tests/capi/*/*_test"))]
    paths = [str(path.relative_to(pack)) for path in found]
    return [path for path in paths if any(fnmatch(path, pattern) for pattern in patterns)]


def run_program(command: list[str], pack: Path, environment: dict[str, str]) -> Record:
    """Exit status, seconds, and what it has printed."""
    started = time.monotonic()
    done = process.run(command, pack, environment, TIME_LIMIT_S)
    seconds = round(time.monotonic() - started, 1)
    return {"status": done.status, "seconds": seconds, "printed": done.out + done.errors}


def outcome_of(done: Record) -> Record:
    """What stands in the report: of a program that failed, also the end of what it said."""
    good = done["status"] == 0
    result: Record = {"outcome": "passed" if good else "failed", "seconds": done["seconds"]}
    skipped = re.search(r"^SKIPPED: *(.*)|: Skipped$\n*(.*)", done["printed"], re.MULTILINE)
    if good and skipped:
        result |= {"outcome": "skipped", "message": skipped.group(1) or skipped.group(2)}
    if not good:
        result["message"] = f"exit status {done['status']}: {done['printed'][-3000:]}"
    return result


def run_test(path: str, pack: Path, device: str, environment: dict[str, str]) -> Record:
    """FSDP2_TEST_DEVICE names the device of the meshes that the tests in C make."""
    with tempfile.TemporaryDirectory() as scratch:
        own = {"FSDP2_TEST_DEVICE": device, "TEST_TMPDIR": scratch, **NO_WAIT_FOR_NAMES}
        done = run_program([str(pack / path)], pack, environment | own)
    return {"test": path, "device": device, **outcome_of(done)}


# ---- compute-sanitizer


def sanitizer() -> str | None:
    return shutil.which("compute-sanitizer") or next(
        (str(p) for p in Path("/usr/local").glob("cuda*/bin/compute-sanitizer")), None
    )


def sanitized_commands(pack: Path, tool: str) -> dict[str, list[str]]:
    """Small programs that run our kernels: a few steps of tiny models, and the tests of kernels."""
    commands = {path: [str(pack / path)] for path in tests_of(pack, ["tests/gpu/*"])}
    golden = "tests/parity/golden"
    for model in ("tiny-llama-gqa-tied", "tiny-gpt2", "tiny-qwen3-moe"):
        for dtype in DTYPES_OF_TOOL[tool]:
            commands[f"train {model}, param-dtype {dtype}"] = [
                str(pack / "bin" / "fsdp2-train"), "--device", "cuda", "--quiet", "--steps", "2",
                "--clip", "1", "--model", f"{golden}/models/{model}",
                "--tokens", f"{golden}/tokens/{model}.bin", "--param-dtype", dtype,
            ]  # fmt: skip
    return commands


def run_sanitized(
    tool: str, name: str, command: list[str], pack: Path, environment: dict[str, str]
) -> Record:
    """memcheck looks at every kernel, with each tensor in an allocation of its own."""
    check = [str(sanitizer()), "--tool", tool, "--error-exitcode", str(ERRORS_FOUND)]
    check += OUR_KERNELS if tool == "racecheck" else ["--target-processes", "all"]
    own = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"} if tool == "memcheck" else {}
    done = run_program([*check, *command], pack, environment | own)
    summary = re.findall(r"=+ (?:ERROR|RACECHECK) SUMMARY: (.*)", done["printed"])
    return {"tool": tool, "program": name, **outcome_of(done), "summary": summary}
