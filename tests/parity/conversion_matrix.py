"""Every checkpoint converted into every format by our tool, and read back by Python's own programs.

The matrix: written by {Python's DCP, ours} on {1, 2, 3} ranks x {with, without} an optimizer, into {dcp, pth, pth-per-rank,
safetensors, model}. Each target must hold the values of its source, to the bit.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

FILES_PER_RANK = 2
# What describes a file of one rank, under "fsdp2"; a run's own values stand beside it.
OF_A_RANK = {"rank", "world_size", "save_id", "shards"}

# Where a value stands in nested dicts and lists.
Place = tuple[Any, ...]
Leaves = dict[Place, Any]
Reader = Callable[[Path], Leaves]


def leaves(value: Any, at: Place = ()) -> Iterator[tuple[Place, Any]]:
    """The tensors and values in nested dicts and lists."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*at, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*at, index))
    else:
        yield at, value


def read_dcp(path: Path) -> dict[str, Any]:
    with tempfile.NamedTemporaryFile(suffix=".pth") as whole:
        dcp_to_torch_save(path, whole.name)
        return torch.load(whole.name, weights_only=True)


def read_safetensors(path: Path) -> Leaves:
    return {(name,): tensor for name, tensor in load_file(path).items()}


def read_per_rank(path: Path) -> Leaves:
    """The leaves of all ranks' files, with each tensor put together from its rows."""
    parts = [
        torch.load(path / f"fsdp_sharded_cpt0_rank{rank}.pth", weights_only=True)
        for rank in range(FILES_PER_RANK)
    ]
    shards = [part["fsdp2"]["shards"] for part in parts]
    whole: Leaves = {}
    for place, value in leaves(parts[0]):
        if place[0] == "fsdp2" and place[1] in OF_A_RANK:
            continue
        name = ".".join(map(str, place))
        if name in shards[0]:
            rows = [dict(leaves(part))[place] for part in parts]
            whole[place] = torch.cat(rows)
            assert list(whole[place].shape) == shards[0][name]["shape"]
            assert shards[1][name]["offsets"][0] == rows[0].shape[0]
        else:
            whole[place] = value
    return whole


def save_model_alone(source: Path, target: Path) -> None:
    """Collective: the model of a checkpoint once more, cut over all ranks, without its optimizer."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = {
        name: distribute_tensor(tensor, mesh, [Shard(0)])
        for name, tensor in read_dcp(source)["model"].items()
    }
    dcp.save({"model": model}, checkpoint_id=target)


def save_as_trainers(source: Path, target: Path) -> None:
    """Collective: a checkpoint of DCP once more, in the layouts in which trainers keep a model and its optimizer.

    target/files: torch.save of each rank's DTensors, named as verl does; target/directories: two of DCP, target/full: two files,
    as accelerate has them. Beside them what only their programs can read.
    """
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,))

    def cut(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: cut(item) for key, item in value.items()}
        is_cut = isinstance(value, torch.Tensor) and value.dim() > 0
        return distribute_tensor(value, mesh, [Shard(0)]) if is_cut else value

    whole = read_dcp(source)
    parts = cut(whole)
    files, full, directories = (target / name for name in ("files", "full", "directories"))
    for directory in (files, full, directories):
        directory.mkdir(parents=True, exist_ok=True)
        torch.save({"args": argparse.Namespace(lr=1)}, directory / f"extra_state_rank_{rank}.pt")
    of_rank = f"world_size_{ranks}_rank_{rank}.pt"
    torch.save(parts["model"], files / f"model_{of_rank}")
    torch.save(parts["optim"], files / f"optim_{of_rank}")
    if rank == 0:
        torch.save(whole["model"], full / "pytorch_model_fsdp.bin")
        torch.save(whole["optim"], full / "optimizer.bin")
    dcp.save({"model": parts["model"]}, checkpoint_id=directories / "pytorch_model_fsdp_0")
    dcp.save({"optimizer": parts["optim"]}, checkpoint_id=directories / "optimizer_0")


def same(found: Any, expected: Any) -> bool:
    if isinstance(expected, torch.Tensor):
        return (
            isinstance(found, torch.Tensor)
            and found.dtype == expected.dtype
            and torch.equal(found, expected)
        )
    return found == expected


def difference(found: Leaves, expected: Leaves) -> str | None:
    """The first leaf that is not as expected; None if there is none."""
    if set(found) != set(expected):
        return f"only one has {sorted(map(str, set(found) ^ set(expected)))[:3]}"
    return next((str(at) for at in expected if not same(found[at], expected[at])), None)


def differences(
    fsdp2: str, source: Path, config: Path, work: Path
) -> Iterator[tuple[str, str | None]]:
    """Converts a DCP directory into every format; for each, what is wrong with the target."""
    tree = read_dcp(source)
    whole = dict(leaves(tree))
    model = dict(leaves(tree["model"]))
    # The run's world size makes room for that of the files.
    per_rank = {at: value for at, value in whole.items() if at != ("fsdp2", "world_size")}
    targets: list[tuple[str, list[str], Reader, Leaves]] = [
        ("dcp", [], lambda path: dict(leaves(read_dcp(path))), whole),
        ("pth", [], lambda path: dict(leaves(torch.load(path, weights_only=True))), whole),
        ("pth-per-rank", ["--ranks", str(FILES_PER_RANK)], read_per_rank, per_rank),
        ("safetensors", [], read_safetensors, model),
        (
            "model",
            ["--model-config", str(config)],
            lambda path: read_safetensors(path / "model.safetensors"),
            model,
        ),
    ]
    for name, options, read, expected in targets:
        path = work / f"to-{name}"
        command = [fsdp2, "convert", str(source), str(path), "--format", name, *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        yield name, difference(read(path), expected) if done.returncode == 0 else done.stderr
