#!/usr/bin/env python3
"""What a training step costs whose model is written in each language, beside the same model in C.

    ./bazelw build //:libfsdp2.so.0 //bindings/java:jar
    python3 bench/models.py [--rounds 20] [--steps 150] [--warm-up 1500]

The model is examples/*/model: a transformer of two layers so narrow that calls are a good part of a
step. The programs run side by side, but take turns: all are stopped but one, which takes some steps
and is stopped in its turn, so that a slow spell of the machine meets them all. A figure is processor
time, user and system, of all threads of a process, collectors and compilers among them. C has two
turns in a round, by two processes, which shows by how much equal programs differ on this machine.
One rank, one thread.
"""

from __future__ import annotations

import argparse
import os
import pty
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from calls import ROOT, add_common_arguments, present, run

TOKENS = ROOT / "tests/parity/golden/tokens/tiny-llama.bin"
CONTROL = "C again"
FOR_EVER = 10**9  # steps


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of a step in five languages.")
    add_common_arguments(parser, rounds=20)
    parser.add_argument("--steps", type=int, default=150, help="of a turn, at least")
    parser.add_argument("--warm-up", type=int, default=1500, help="steps before the first turn")
    return parser.parse_args()


def build(language: str, work: Path, library: Path, jar: Path) -> list:
    """The command that trains the language's model, but for the number of steps."""
    program = work / f"model-{language}"
    if language == "C":
        source = ["examples/c/model.c", f"-I{ROOT / 'include'}"]
        run(["cc", "-O2", *source, "-o", program, f"-L{library}", "-lfsdp2"], ROOT)
        return [program, TOKENS]
    if language == "Rust":
        run(
            ["cargo", "build", "--release", "--offline", "--quiet", "--example", "model"],
            ROOT / "bindings/rust/fsdp2",
            FSDP2_LIB_DIR=library,
            CARGO_TARGET_DIR=work / "cargo",
        )
        return [work / "cargo/release/examples/model", TOKENS]
    if language == "Go":
        command = ["go", "build", "-o", program, "./model"]
        run(command, ROOT / "examples/go", GOPROXY="off", GOFLAGS="-mod=mod")
        return [program, TOKENS]
    if language == "Java":
        run(["javac", "-cp", jar, "-d", work, "Model.java"], ROOT / "examples/java")
        java = ["java", f"-Djava.library.path={library}", "-cp", f"{jar}:{work}", "Model"]
        return [*java, TOKENS]
    project = ROOT / "bindings/julia/FSDP2"
    model = ROOT / "examples/julia/model.jl"
    return ["julia", "--startup-file=no", f"--project={project}", model, TOKENS]


class Run:
    """A process that trains for ever, but for when it is stopped."""

    def __init__(self, command: list, library: Path) -> None:
        environment = os.environ | {
            "FSDP2_LIBRARY": str(library / "libfsdp2.so"),
            "LD_LIBRARY_PATH": str(library),
            "OMP_NUM_THREADS": "1",
        }
        # Every language writes each line at once to a terminal.
        self.terminal, lines = pty.openpty()
        command = [str(part) for part in [*command, FOR_EVER]]
        self.process = subprocess.Popen(command, env=environment, stdout=lines)
        os.close(lines)
        self.steps = 0

    def take_steps(self, count: int) -> float:
        """Seconds of processor time of a step, while the process takes at least so many."""
        began, first = self.processor_seconds(), self.steps
        self.process.send_signal(signal.SIGCONT)
        while self.steps < first + count:
            self.read()
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED)
        os.set_blocking(self.terminal, False)
        try:
            while True:
                self.read()
        except BlockingIOError:
            os.set_blocking(self.terminal, True)
        return (self.processor_seconds() - began) / (self.steps - first)

    def read(self) -> None:
        self.steps += os.read(self.terminal, 1 << 16).count(b"\n")

    def processor_seconds(self) -> float:
        """All threads of the process, ended ones included (clock_getcpuclockid in C)."""
        return time.clock_gettime(~self.process.pid << 3 | 2)

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.terminal)


def measure(commands: dict[str, list], options: argparse.Namespace) -> dict[str, list[float]]:
    """Milliseconds of a step by language, one a round."""
    found: dict[str, list[float]] = {language: [] for language in commands}
    runs: dict[str, Run] = {}
    try:
        for language, command in commands.items():
            runs[language] = Run(command, options.library)
            runs[language].take_steps(options.warm_up)
        for _ in range(options.rounds):
            for language, run_ in runs.items():
                found[language].append(1e3 * run_.take_steps(options.steps))
    finally:
        for run_ in runs.values():
            run_.end()
    return found


def print_table(found: dict[str, list[float]]) -> None:
    print("| | a step, ms | to C | lowest to highest |")
    print("|---|---|---|---|")
    for language, times in found.items():
        ratios = [time / in_c for time, in_c in zip(times, found["C"])]
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        cells = [f"{statistics.median(times):.3f}", f"{statistics.median(ratios):.3f} x", spread]
        print(
            f"| {language} | " + " | ".join(cells if language != "C" else [cells[0], "", ""]) + " |"
        )


def main() -> int:
    options = parse_arguments()
    options.library, options.jar = options.library.resolve(), options.jar.resolve()
    languages = present(["C", *(name for name in options.languages if name != "C")])
    with tempfile.TemporaryDirectory() as work:
        commands = {
            language: build(language, Path(work), options.library, options.jar)
            for language in languages
        }
        commands[CONTROL] = commands["C"]
        found = measure(commands, options)
    print_table(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
