#!/usr/bin/env python3
"""Checkpoint bandwidth beside PyTorch's DCP and beside dd, in one run.

    bazel build //bench:checkpoint_benchmark //cli:fsdp2
    python3 bench/checkpoint.py --python VENV/bin/python --directory DIR [--bytes 1073741824] [--ranks 2] [--rounds 5]

Both sides save and load the same tensors on as many processes. A round is a run of each side, of
which the better of two saves and loads counts, and of dd, which writes as many bytes with
conv=fsync; and of a dd for each rank, side by side, past the page cache (oflag=direct, which the
file system must know), to tell how much of a save is the disk. The table has medians over the
rounds; ratios are taken within each round, as the disk may be faster in one round than in the next.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

TENSORS, COLUMNS = 64, 1024
SIDES = ("libfsdp2", "Python DCP", "dd", "direct dds")

PYTHON_SIDE = """
import json, os, sys, time
import torch, torch.distributed as dist, torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
path, total, tensors, columns = sys.argv[1], *map(int, sys.argv[2:])
dist.init_process_group("gloo")
ranks, rank = dist.get_world_size(), dist.get_rank()
mesh = init_device_mesh("cpu", (ranks,))
rows = total // tensors // columns // 4 // ranks * ranks
state = {"model": {f"layer.{i}.weight": DTensor.from_local(torch.rand(rows // ranks, columns), mesh, [Shard(0)], run_check=False)
                   for i in range(tensors)}}

def timed(action):
    dist.barrier()
    start = time.perf_counter()
    action()
    taken = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    return taken.item()

save = min(timed(lambda: dcp.save(state, checkpoint_id=f"{path}{i}")) for i in range(2))
load = min(timed(lambda: dcp.load(state, checkpoint_id=f"{path}0")) for _ in range(2))
if rank == 0:
    print(json.dumps({"save": save, "load": load}), flush=True)
dist.barrier()
os._exit(0)
"""


def last_json(text: str) -> dict[str, float]:
    return json.loads([line for line in text.splitlines() if line.startswith("{")][-1])


def run(command: list[str]) -> str:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, check=False, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def remove(directory: str, pattern: str) -> None:
    """Before anything is timed: to remove a file keeps the disk busy for a while."""
    for path in Path(directory).glob(pattern):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    os.sync()


def ours(arguments: argparse.Namespace) -> dict[str, float]:
    remove(arguments.directory, "ours*")
    binaries = Path(__file__).resolve().parent.parent / "bazel-bin"
    command = [str(binaries / "cli/fsdp2"), "run", "--nproc-per-node", str(arguments.ranks), "--"]
    command += [
        str(binaries / "bench/checkpoint_benchmark"),
        arguments.directory,
        str(arguments.bytes),
        "2",
    ]
    return last_json(run(command))


def python_dcp(arguments: argparse.Namespace, script: Path) -> dict[str, float]:
    path = Path(arguments.directory) / "python"
    remove(arguments.directory, "python[0-9]")
    command = [
        arguments.python,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc-per-node={arguments.ranks}",
    ]
    command += [str(script), str(path), str(arguments.bytes), str(TENSORS), str(COLUMNS)]
    return last_json(run(command))


def dd(arguments: argparse.Namespace, writers: int, flags: list[str]) -> dict[str, float]:
    """As many bytes as a save, by so many processes side by side."""
    paths = [Path(arguments.directory) / f"dd{i}" for i in range(writers)]
    blocks = (arguments.bytes >> 20) // writers
    commands = [
        ["dd", "if=/dev/zero", f"of={path}", "bs=1M", f"count={blocks}", "conv=fsync", *flags]
        for path in paths
    ]
    remove(arguments.directory, "dd[0-9]*")
    start = time.perf_counter()
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(run, commands))
    seconds = time.perf_counter() - start
    remove(arguments.directory, "dd[0-9]*")
    return {"save": seconds}


def report(arguments: argparse.Namespace, rounds: list[dict[str, dict[str, float]]]) -> None:
    gigabytes = arguments.bytes / 1e9
    print(
        f"{'':12} {'save':>10} {'load':>10}   GB/s, {arguments.ranks} ranks, {gigabytes:.2f} GB, "
        f"median of {len(rounds)} rounds"
    )
    for side in SIDES:
        cells = [
            f"{gigabytes / statistics.median(r[side][key] for r in rounds):10.2f}"
            for key in ("save", "load")
            if key in rounds[0][side]
        ]
        print(f"{side:12} {' '.join(cells)}")

    def ratio(what: str, above: tuple[str, str], below: tuple[str, str]) -> None:
        found = sorted(r[above[0]][above[1]] / r[below[0]][below[1]] for r in rounds)
        print(f"{what:40} {statistics.median(found):.2f} ({found[0]:.2f} to {found[-1]:.2f})")

    us, python, copier, direct = SIDES
    ratio("save, times Python's speed", (python, "save"), (us, "save"))
    ratio("save, times dd's speed", (copier, "save"), (us, "save"))
    ratio("save, times the direct dds' speed", (direct, "save"), (us, "save"))
    ratio("direct dds, times Python's speed", (python, "save"), (direct, "save"))
    ratio("load, times Python's speed", (python, "load"), (us, "load"))
    ratio("stall of a background save, copies", (us, "stall"), (us, "copy"))
    ratio("stall of a run's first one, copies", (us, "first_stall"), (us, "copy"))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", required=True, help="a Python with torch 2.11")
    parser.add_argument("--directory", required=True, help="where to write; must exist")
    parser.add_argument("--bytes", type=int, default=1 << 30)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    script = Path(arguments.directory) / "python_side.py"
    script.write_text(PYTHON_SIDE)
    rounds = []
    for number in range(arguments.rounds):
        print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr)
        sides = (
            ours(arguments),
            python_dcp(arguments, script),
            dd(arguments, 1, []),
            dd(arguments, arguments.ranks, ["oflag=direct"]),
        )
        rounds.append(dict(zip(SIDES, sides, strict=True)))
    report(arguments, rounds)


if __name__ == "__main__":
    main()
