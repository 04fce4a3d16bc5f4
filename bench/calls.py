#!/usr/bin/env python3
"""What a call through the safe layer of each language costs, beside the same call in C.

    ./bazelw build //:libfsdp2.so.0 //bindings/java:jar
    python3 bench/calls.py [--rounds 7] [--batches 200]

The calls: a tensor made of four floats; aten::add.Tensor of two such tensors; the forward of a custom
module that returns its input. To destroy what they return is a call of its own: the programs hold 50
results, destroy these, and so on, and tell the time of the calls alone and that of both. A round runs
each language's program (bench/calls) once, one after the other, so that a slow spell of the machine
meets them all. A program times batches of 1000 calls, and reports the fastest batch and the mean of
all, in which the work of collectors and compilers is. The tables have the medians over the rounds.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "bench/calls"
CALLS = {
    "tensor": "a tensor made",
    "operator": "an operator",
    "forward": "a forward with its callback",
}
KINDS = ("call", "both", "mean")
NEEDED = {"C": "cc", "Rust": "cargo", "Go": "go", "Java": "javac", "Julia": "julia"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The cost of a call in five languages.")
    add_common_arguments(parser, rounds=7)
    parser.add_argument("--batches", type=int, default=200, help="of 1000 calls, in a run")
    return parser.parse_args()


def add_common_arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--library", type=Path, default=ROOT / "bazel-bin", help="with libfsdp2.so")
    parser.add_argument("--jar", type=Path, default=ROOT / "bazel-bin/bindings/java/fsdp2.jar")
    parser.add_argument("--languages", nargs="+", default=list(NEEDED), choices=list(NEEDED))


def present(languages: list[str]) -> list[str]:
    """Those of the languages that this machine has."""
    found = []
    for language in languages:
        if shutil.which(NEEDED[language]) is None:
            print(f"without {language}: no {NEEDED[language]} on this machine", file=sys.stderr)
        else:
            found.append(language)
    return found


def run(command: list, folder: Path = PROGRAMS, **environment: object) -> str:
    merged = os.environ | {name: str(value) for name, value in environment.items()}
    command = [str(part) for part in command]
    return subprocess.run(
        command, cwd=folder, env=merged, check=True, stdout=subprocess.PIPE, text=True
    ).stdout


def build(language: str, work: Path, library: Path, jar: Path) -> list:
    """The command that runs the language's program."""
    program = work / f"calls-{language}"
    if language == "C":
        includes = f"-I{ROOT / 'include'}"
        run(["cc", "-O2", includes, "c/calls.c", "-o", program, f"-L{library}", "-lfsdp2"])
    elif language == "Rust":
        target = work / "cargo"
        run(
            ["cargo", "build", "--release", "--offline", "--quiet"],
            FSDP2_LIB_DIR=library,
            CARGO_TARGET_DIR=target,
        )
        program = target / "release/calls"
    elif language == "Go":
        run(["go", "build", "-o", program, "calls.go"], GOPROXY="off", GOFLAGS="-mod=mod")
    elif language == "Java":
        run(["javac", "-cp", jar, "-d", work, "Calls.java"])
        # A young heap is memory that nobody has touched, whose pages would cost more than what is measured.
        heap = ["-Xms256m", "-Xmx256m", "-XX:+AlwaysPreTouch"]
        return ["java", *heap, f"-Djava.library.path={library}", "-cp", f"{jar}:{work}", "Calls"]
    else:
        project = ROOT / "bindings/julia/FSDP2"
        return ["julia", "--startup-file=no", f"--project={project}", PROGRAMS / "calls.jl"]
    return [program]


def measure(commands: dict[str, list], options: argparse.Namespace) -> dict[tuple, list[float]]:
    """Nanoseconds by language, call and kind, one a round."""
    found: dict[tuple, list[float]] = {}
    for _ in range(options.rounds):
        for language, command in commands.items():
            printed = run(
                [*command, options.batches],
                FSDP2_LIBRARY=options.library / "libfsdp2.so",
                LD_LIBRARY_PATH=options.library,
                OMP_NUM_THREADS=1,
            )
            for line in printed.splitlines():
                call, *figures = line.split()
                for kind, figure in zip(KINDS, figures, strict=True):
                    found.setdefault((language, call, kind), []).append(float(figure))
    return found


def print_table(call: str, languages: list[str], found: dict[tuple, list[float]]) -> None:
    def median(language: str, kind: str) -> float:
        return statistics.median(found[language, call, kind])

    print(f"| {CALLS[call]} | ns | to C | and destroyed, ns | to C | mean of all, ns |")
    print("|---" * 6 + "|")
    for language in languages:
        cells = []
        for kind in ("call", "both"):
            taken = median(language, kind)
            cells.append(f"{taken:.0f}")
            if language == "C" or "C" not in languages:
                cells.append("")
            else:
                in_c = median("C", kind)
                cells.append(f"{taken - in_c:+.0f}, {taken / in_c:.2f} x")
        print(f"| {language} | {' | '.join(cells)} | {median(language, 'mean'):.0f} |")
    print()


def main() -> int:
    options = parse_arguments()
    options.library, options.jar = options.library.resolve(), options.jar.resolve()
    languages = present(options.languages)
    with tempfile.TemporaryDirectory() as work:
        commands = {
            language: build(language, Path(work), options.library, options.jar)
            for language in languages
        }
        found = measure(commands, options)
    for call in CALLS:
        print_table(call, languages, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
