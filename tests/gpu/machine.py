"""The machine that a pack runs on: its GPU, its PyTorch, and the environment of the pack's programs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any


def gpu() -> dict[str, str] | None:
    """The first GPU, as its driver describes it; None where there is none."""
    if shutil.which("nvidia-smi") is None:
        return None
    names = ["name", "driver_version", "memory.total"]
    query = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    if done.returncode != 0 or not done.stdout.strip():
        return None
    return dict(zip(names, done.stdout.splitlines()[0].split(", "), strict=True))


def version_of(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def describe() -> dict[str, Any]:
    return {
        "gpu": gpu(),
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": version_of("torch"),
        "transformers": version_of("transformers"),
    }


def torch_libraries() -> list[str]:
    """The folders of LibTorch and of CUDA's libraries, as Python's package has them."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return []
    torch = Path(spec.origin).parent
    nvidia = sorted((torch.parent / "nvidia").glob("*/lib"))
    return [str(folder) for folder in (torch / "lib", *nvidia)]


def environment(pack: Path) -> dict[str, str]:
    """That of every program of the pack: one thread a rank, and exact fp32 products."""
    folders = [str(pack / "lib"), *torch_libraries(), os.environ.get("LD_LIBRARY_PATH", "")]
    return os.environ | {
        "LD_LIBRARY_PATH": ":".join(folder for folder in folders if folder),
        "OMP_NUM_THREADS": "1",
        "NVIDIA_TF32_OVERRIDE": "0",
    }
