#!/usr/bin/env python3
"""Run what tests/gpu/pack.sh has packed, on a machine with a GPU, and write one JSON file.

    python3 DIR/tests/gpu/run.py DIR --out gpu.json
    python3 DIR/tests/gpu/run.py DIR --out gpu.json --only goldens --match 'tiny-llama/*/1'
    python3 DIR/tests/gpu/run.py DIR --out gpu.json --only bench -- --preset qwen2.5-0.5b --rounds 2

Without a GPU it says so and leaves with status 0. The file is written anew after each case, so that
a run which is cut off leaves what it has found. tests/gpu/README.md says what is in it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))
import goldens
import machine
import process
import programs

PARTS = ["goldens", "tests", "graphs", "sanitizer", "bench", "trace"]

Record = dict[str, Any]


class Report:
    """The JSON file, with what is known so far."""

    def __init__(self, path: Path, head: Record) -> None:
        self.path = path
        self.content = head

    def add(self, part: str, result: Record) -> None:
        self.content.setdefault(part, []).append(result)
        self.content["outcomes"] = self.outcomes()
        self.write()

    def outcomes(self) -> Record:
        return {
            part: dict(Counter(result["outcome"] for result in self.content[part]))
            for part in PARTS
            if part in self.content
        }

    def failed(self) -> bool:
        return any("failed" in counts for counts in self.outcomes().values())

    def write(self) -> None:
        unfinished = self.path.with_suffix(".part")
        unfinished.write_text(json.dumps(self.content, indent=1) + "\n")
        unfinished.replace(self.path)


class Session:
    """What all parts of a run share: the pack, the device, the report and the time left."""

    def __init__(self, args: argparse.Namespace, report: Report) -> None:
        self.pack: Path = args.pack
        self.device: str = args.device
        self.jobs: int = args.jobs
        self.patterns: list[str] = args.match
        self.script_options: list[str] = args.script_options
        self.environment = machine.environment(args.pack)
        self.report = report

    def do(self, part: str, name: str, body: Callable[[], Record], key: str) -> Record:
        """One case, unless the time is over."""
        if process.time_left() == 0:
            return {key: name, "outcome": "not run", "message": "no time left"}
        result = body()
        if result["outcome"] == "failed" and process.time_left() == 0:
            result["outcome"] = "cut off"  # nothing runs any more
        message = " " + result["message"].strip().splitlines()[-1] if "message" in result else ""
        print(f"{result['outcome']}: {part} {name}{message}", file=sys.stderr, flush=True)
        return result

    def do_all(
        self, part: str, key: str, cases: Iterable[tuple[str, Callable[[], Record]]]
    ) -> None:
        with ThreadPoolExecutor(self.jobs) as pool:
            futures = [pool.submit(self.do, part, name, body, key) for name, body in cases]
            for future in as_completed(futures):
                self.report.add(part, future.result())


def run_goldens(session: Session) -> None:
    cases = goldens.cases_of(session.pack, session.patterns)

    def body(case: goldens.Case) -> Callable[[], Record]:
        return lambda: goldens.run(case, session.pack, session.device, session.environment)

    session.do_all("goldens", "case", [(case.name, body(case)) for case in cases])


def run_tests(session: Session) -> None:
    def body(path: str) -> Callable[[], Record]:
        return lambda: programs.run_test(path, session.pack, session.device, session.environment)

    paths = programs.tests_of(session.pack, session.patterns)
    session.do_all("tests", "test", [(path, body(path)) for path in paths])


def run_graphs(session: Session) -> None:
    if session.device != "cuda":
        session.report.add("graphs", {"outcome": "skipped", "message": "no graphs of the CPU"})
        return
    cases = goldens.cases_of_graphs(session.pack, session.patterns)

    def body(case: goldens.Case) -> Callable[[], Record]:
        return lambda: goldens.run_as_graph(case, session.pack, session.environment)

    session.do_all("graphs", "case", [(case.name, body(case)) for case in cases])


def run_sanitizer(session: Session) -> None:
    if session.device != "cuda" or programs.sanitizer() is None:
        why = (
            "no compute-sanitizer" if session.device == "cuda" else "no kernels of ours on the CPU"
        )
        session.report.add("sanitizer", {"outcome": "skipped", "message": why})
        return

    def body(tool: str, name: str, command: list[str]) -> Callable[[], Record]:
        return lambda: programs.run_sanitized(
            tool, name, command, session.pack, session.environment
        )

    cases = [
        (f"{tool} {name}", body(tool, name, command))
        for tool in ("memcheck", "racecheck")
        for name, command in programs.sanitized_commands(session.pack, tool).items()
    ]
    session.do_all("sanitizer", "program", cases)


def run_script(session: Session, part: str, script: str, options: list[str]) -> None:
    """A script of bench/, alone on the machine; each line of JSON is a result."""
    command = [
        sys.executable, str(session.pack / "bench" / script), "--device", session.device,
        "--fsdp2", str(session.pack / "bin" / "fsdp2"), *(session.script_options or options),
    ]  # fmt: skip

    def on_line(line: str) -> None:
        print(line, end="", flush=True)
        if line.startswith("{"):
            session.report.add(part, {"outcome": "passed", **json.loads(line)})

    status = process.follow(command, session.pack, session.environment, on_line)
    if status is None:
        session.report.add(part, {"outcome": "cut off", "message": "no time left"})
    elif status != 0:
        session.report.add(part, {"outcome": "failed", "message": f"exit status {status}"})


def run_bench(session: Session) -> None:
    run_script(session, "bench", "gpu.py", ["--preset", "gpt-124m", "--preset", "qwen2.5-0.5b"])


def run_trace(session: Session) -> None:
    out = str(session.report.path.resolve().with_suffix(".trace.json.gz"))
    run_script(session, "trace", "gpu_trace.py", ["--preset", "qwen2.5-0.5b", "--out", out])


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Options after -- go to bench/gpu.py or bench/gpu_trace.py as they are.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("pack", type=Path, help="the folder that pack.sh has made")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; may be repeated")
    parser.add_argument(
        "--match",
        action="append",
        help="only cases of this name, with *: MODEL/RUN/RANKS, or a test's path; may be repeated",
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument(
        "--jobs",
        type=int,
        default=max(1, (os.cpu_count() or 1) // 2),
        help="cases at a time; benchmarks are always alone",
    )
    parser.add_argument(
        "--limit-s",
        type=float,
        default=540.0,
        help="end, and all cases with it, after so many seconds",
    )
    split = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:split])
    args.script_options = argv[split + 1 :]
    args.match = args.match or ["*"]
    args.pack = args.pack.resolve()
    return args


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(list(sys.argv[1:] if argv is None else argv))
    here = machine.describe()
    revision = (args.pack / "revision").read_text().strip()
    report = Report(args.out, {"revision": revision, "device": args.device, "machine": here})
    if args.device == "cuda" and here["gpu"] is None:
        reason = "no GPU: nvidia-smi finds none"
        report.content["skipped"] = reason
        report.write()
        print(f"SKIPPED: {reason}")
        return 0
    process.end_all_at(time.monotonic() + args.limit_s)
    session = Session(args, report)
    runs = {
        "goldens": run_goldens,
        "tests": run_tests,
        "graphs": run_graphs,
        "sanitizer": run_sanitizer,
        "bench": run_bench,
        "trace": run_trace,
    }
    for part in args.only or PARTS:
        runs[part](session)
    report.write()
    print(json.dumps(report.outcomes()))
    return 1 if report.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
