#!/usr/bin/env python3
"""How the other ranks leave when one fails: a table over phases, faults, ranks and transports.

    ./bazelw build //bench:fault_rank //cli:fsdp2
    python3 bench/faults.py [--timeout 6] [--at-once 6] [--launcher] [--only TEXT]

A cell is a small job (fault_rank.c) of which one rank, the first or the last, suffers a fault in one
phase of its life. The table says for each cell by how many seconds the last of the others outlived
the fault and the time-out ("past": below 0 where it did not have to wait for the time-out), how
many of them named the rank in their error, and what one of them said. Survivors of a rank that fails
at its end have nothing to say. Exit code 1: a survivor has left more than --limit seconds past the
time-out, or not at all.

A rank that is a thread can be neither killed nor stopped, and threads are the process's to lack. A
disk is full where a save is written. Without threads the rank itself may do well.
--launcher starts the processes by `fsdp2 run`, and "past" is then of the whole job.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PHASES = ("start", "load", "gather", "reduce", "clip", "save", "background-save", "shutdown")
FAULTS = ("kill", "stop", "slow", "exception", "full-disk", "no-threads")
TRANSPORTS = ("shared", "gloo", "threads")
SAVES = ("save", "background-save")
START_SECONDS = 60  # for a job to come to its fault
SECONDS_TO_HANG = 30  # past the time-out


@dataclass(frozen=True)
class Cell:
    phase: str
    fault: str
    ranks: int
    transport: str
    victim: int

    def arguments(self, timeout: float, folder: str) -> list[str]:
        milliseconds = str(round(timeout * 1000))
        numbers = [str(self.ranks), str(self.victim), milliseconds]
        return [self.phase, self.fault, self.transport, *numbers, folder]

    def __str__(self) -> str:
        return f"{self.phase:15} {self.fault:9} {self.transport:7} {self.ranks} {self.victim}"


@dataclass
class Result:
    past: float | None  # seconds; None: a survivor hangs
    named: int
    survivors: int
    message: str


def cells() -> list[Cell]:
    return [
        Cell(phase, fault, ranks, transport, victim)
        for phase in PHASES
        for fault in FAULTS
        for ranks in (2, 4)
        for transport in TRANSPORTS
        for victim in (0, ranks - 1)
        if (transport != "threads" or fault not in ("kill", "stop", "no-threads"))
        and (fault != "full-disk" or phase in SAVES)
    ]


def start(cell: Cell, options: argparse.Namespace, folder: str, log: Path) -> list:
    command = [str(options.program), *cell.arguments(options.timeout, folder)]
    if cell.transport == "threads":
        commands = [[*command, "-1"]]
    elif options.launcher:
        launch = [str(options.fsdp2), "run", "--nproc-per-node", str(cell.ranks), "--"]
        commands = [[*launch, "sh", "-c", 'exec "$@" $RANK', "sh", *command]]
    else:
        commands = [[*command, str(rank)] for rank in range(cell.ranks)]
    with log.open("ab") as out:
        return [
            subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
            for command in commands
        ]


def find_left(text: str) -> dict[int, tuple[float, str]]:
    """When each rank has left, and with which error."""
    lines = re.findall(r"left (\d+) ([\d.]+) (.*)", text)
    return {int(rank): (float(when), said) for rank, when, said in lines}


def is_over(cell: Cell, options: argparse.Namespace, processes: list, text: str) -> bool:
    if options.launcher or cell.transport == "threads":
        others = set(range(cell.ranks)) - {cell.victim}
        return all(process.poll() is not None for process in processes) or (
            cell.transport == "threads" and others <= find_left(text).keys()
        )
    return all(
        process.poll() is not None for rank, process in enumerate(processes) if rank != cell.victim
    )


def watch(cell: Cell, options: argparse.Namespace, processes: list, log: Path) -> Result:
    begin = time.monotonic()
    fault, end = None, None
    while end is None:
        # Looked at before the log, which is whole then.
        have_ended = all(process.poll() is not None for process in processes)
        text = log.read_text(errors="replace")
        found = re.search(r"fault ([\d.]+)", text)
        fault = float(found[1]) if found else None
        now = time.monotonic()
        # At a job's end the others may have left before the fault.
        if (fault or have_ended) and is_over(cell, options, processes, text):
            end = now
        elif now > (fault + options.timeout + SECONDS_TO_HANG if fault else begin + START_SECONDS):
            break
        time.sleep(0.02)
    left = find_left(log.read_text(errors="replace"))
    others = [rank for rank in range(cell.ranks) if rank != cell.victim]
    said = [left[rank][1] for rank in others if rank in left]
    named = sum(f"rank {cell.victim}" in text or f"missing: {cell.victim}" in text for text in said)
    if end is not None and cell.transport == "threads":
        end = max((left[rank][0] for rank in others if rank in left), default=end)
    past = end - fault - options.timeout if end is not None and fault is not None else None
    return Result(past, named, len(others), max(said, key=len, default="nothing"))


def run(cell: Cell, options: argparse.Namespace) -> Result:
    folder = tempfile.mkdtemp(prefix="faults-", dir=options.directory)
    log = Path(folder) / "log"
    processes = start(cell, options, folder, log)
    try:
        return watch(cell, options, processes, log)
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        shutil.rmtree(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=Path, default=Path("bazel-bin/bench/fault_rank"))
    parser.add_argument("--fsdp2", type=Path, default=Path("bazel-bin/cli/fsdp2"))
    parser.add_argument("--launcher", action="store_true", help="start processes by `fsdp2 run`")
    parser.add_argument("--timeout", type=float, default=6, help="of the jobs, in seconds")
    parser.add_argument("--limit", type=float, default=5, help="seconds past the time-out")
    parser.add_argument("--at-once", type=int, default=6, help="jobs at a time")
    parser.add_argument("--directory", help="for what the jobs write")
    parser.add_argument("--only", default="", help="cells whose line holds this text")
    options = parser.parse_args()

    chosen = [cell for cell in cells() if options.only in str(cell)]
    if options.launcher:
        chosen = [cell for cell in chosen if cell.transport != "threads"]
    print(f"time-out {options.timeout:g} s, {len(chosen)} cells")
    print(f"{'phase':15} {'fault':9} {'by':7} n v   past  named  one of the others said")
    late, worst = 0, float("-inf")
    with ThreadPoolExecutor(options.at_once) as pool:
        for cell, result in zip(chosen, pool.map(lambda cell: run(cell, options), chosen)):
            late += result.past is None or result.past > options.limit
            worst = max(worst, result.past or worst)
            past = "  none" if result.past is None else f"{result.past:6.1f}"
            named = f"{result.named}/{result.survivors}"
            print(f"{cell} {past}  {named:5}  {result.message}", flush=True)
    print(f"{late} of {len(chosen)} cells later than {options.limit:g} s; the latest {worst:.1f} s")
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
