#!/usr/bin/env python3
"""What a trainer does on the GPU in a step: kernels by time, copies that overlap compute, host waits.

    python bench/gpu_trace.py --preset qwen2.5-0.5b --side ours --out trace.json.gz

Runs one side of gpu.py under gpu_activity.c, which it compiles (needs cc and CUDA's headers). Prints one
JSON line, and writes the last step as a trace that chrome://tracing and Perfetto show.
"""

from __future__ import annotations

import argparse
import bisect
import gzip
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu import (
    SIDES,
    add_run_arguments,
    command_of,
    flags_of,
    parse_run_arguments,
    prepare,
    setting_of,
)
from side_by_side import HERE, run_once

# What kernels are for, by the first pattern that their mangled name matches.
PURPOSES = {
    "collectives": r"nccl",
    "attention": r"flash|fmha|attention|cudnn.*sdpa",
    "products": r"gemm|gemv|cutlass|nvjet|cublas|splitK",
    "copies": r"copy|Copy|CatArray|memcpy",
    "optimizer and norm": r"[Aa]dam|multi_tensor|square_sum|lpnorm|LpNorm",
}
TOP = 30  # kernels listed by name

Interval = tuple[int, int]


@dataclass(frozen=True)
class Activity:
    kind: str  # "kernel", "copy", "fill", "wait"
    start: int  # ns since the epoch
    end: int
    stream: int
    name: str


# --------------------------------------------------------------------------------- recording


def include_folders() -> list[Path]:
    """CUDA's headers, of Python's packages and of the toolkit: of either, some may be missing."""
    spec = importlib.util.find_spec("nvidia")
    packages = [Path(path) for path in spec.submodule_search_locations] if spec else []
    folders = [package / "cu13" / "include" for package in packages]
    compiler = shutil.which("nvcc")
    toolkits = [Path(compiler).resolve().parents[1]] if compiler else []
    for toolkit in [*toolkits, Path("/usr/local/cuda")]:
        folders += [toolkit / "include", toolkit / "extras" / "CUPTI" / "include"]
    return [folder for folder in folders if folder.is_dir()]


def build_recorder(work_dir: Path, more_includes: list[str]) -> Path:
    library = work_dir / "gpu_activity.so"
    includes = [*map(Path, more_includes), *include_folders()]
    found = next((f for f in includes if (f.parent / "lib" / "libcupti.so.13").exists()), None)
    link = [f"-L{found.parent / 'lib'}", f"-Wl,-rpath,{found.parent / 'lib'}"] if found else []
    subprocess.run(
        ["cc", "-std=gnu11", "-O2", "-shared", "-fPIC", *(f"-I{folder}" for folder in includes),
         str(HERE / "gpu_activity.c"), "-o", str(library), *link, "-l:libcupti.so.13"],
        check=True,
    )  # fmt: skip
    return library


def read_activities(path: Path) -> list[Activity]:
    found = []
    for line in path.read_text(errors="replace").splitlines():
        fields = line.split("\t", 4)
        if len(fields) == 5:  # the last line may be cut off
            kind, start, end, stream, name = fields
            found.append(Activity(kind, int(start), int(end), int(stream), name))
    return sorted(found, key=lambda a: a.start)


def within(activities: list[Activity], begin: int, end: int) -> list[Activity]:
    return [a for a in activities if a.start >= begin and a.end <= end]


# --------------------------------------------------------------------------------- sums


def merged(intervals: list[Interval]) -> list[Interval]:
    """Disjoint intervals over the same time, in order."""
    out: list[Interval] = []
    for start, end in sorted(intervals):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def length(intervals: list[Interval]) -> int:
    return sum(end - start for start, end in intervals)


def overlap(a: list[Interval], b: list[Interval]) -> int:
    """The time that both cover; each is merged."""
    starts = [start for start, _ in b]
    total = 0
    for start, end in a:
        index = max(0, bisect.bisect_right(starts, start) - 1)
        while index < len(b) and b[index][0] < end:
            total += max(0, min(end, b[index][1]) - max(start, b[index][0]))
            index += 1
    return total


def purpose_of(activity: Activity) -> str:
    if activity.kind != "kernel":
        return "copies"
    for purpose, pattern in PURPOSES.items():
        if re.search(pattern, activity.name):
            return purpose
    return "other kernels"


def describe(activities: list[Activity], begin: int, end: int, steps: int) -> dict[str, Any]:
    """Everything by step, in microseconds."""
    on_gpu = [a for a in activities if a.kind != "wait"]
    by_stream: dict[int, list[Activity]] = defaultdict(list)
    purposes: dict[str, int] = defaultdict(int)
    names: dict[str, list[int]] = defaultdict(list)
    for a in on_gpu:
        by_stream[a.stream].append(a)
        purposes[purpose_of(a)] += a.end - a.start
        names[a.name].append(a.end - a.start)
    times = {s: merged([(a.start, a.end) for a in of]) for s, of in by_stream.items()}
    compute = max(times, key=lambda stream: length(times[stream]), default=None)
    waits: dict[str, int] = defaultdict(int)
    for a in activities:
        if a.kind == "wait":
            waits[a.name] += 1

    def us(ns: float) -> float:
        return round(ns / steps / 1e3, 1)

    busy = merged([(a.start, a.end) for a in on_gpu])
    top = sorted(names.items(), key=lambda item: -sum(item[1]))[:TOP]
    return {
        "step_us": us(end - begin),
        "gpu_busy_us": us(length(busy)),
        "kernels_a_step": round(sum(a.kind == "kernel" for a in on_gpu) / steps, 1),
        "by_purpose_us": {k: us(v) for k, v in sorted(purposes.items(), key=lambda i: -i[1])},
        "other_streams": [
            {
                "stream": stream,
                "us": us(length(of)),
                "under_compute_us": us(overlap(of, times[compute])),
                "purposes": sorted({purpose_of(a) for a in by_stream[stream]}),
            }
            for stream, of in times.items()
            if stream != compute
        ],
        "host_waits_a_step": {name: round(count / steps, 2) for name, count in waits.items()},
        "top": [
            {"name": name, "us": us(sum(of)), "a_step": round(len(of) / steps, 1)}
            for name, of in top
        ],
    }


def write_chrome_trace(path: Path, activities: list[Activity], begin: int) -> None:
    events = [
        {
            "ph": "X", "pid": "host" if a.kind == "wait" else "GPU", "tid": f"stream {a.stream}",
            "ts": (a.start - begin) / 1e3, "dur": (a.end - a.start) / 1e3,
            "name": a.name, "cat": a.kind,
        }
        for a in activities
    ]  # fmt: skip
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "wt") as file:
        json.dump({"traceEvents": events}, file)


# --------------------------------------------------------------------------------- command line


def parse_arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        epilog="Options after -- go to the trainer as they are.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", required=True, help="of make_model.py")
    add("--side", default="ours", choices=list(SIDES), help="the program")
    add("--steps", type=int, default=5, help="steps looked at")
    add("--warmup-steps", type=int, default=5, help="steps before them")
    add("--out", type=Path, help="file for the trace of the last step: .json or .json.gz")
    add("--include", action="append", default=[], help="a further folder of CUDA's headers")
    add_run_arguments(parser)
    return parse_run_arguments(parser, argv)


def main(argv: list[str] | None = None) -> int:
    args = parse_arguments(list(sys.argv[1:] if argv is None else argv))
    setting = setting_of(args, args.preset)
    model, tokens = prepare(args, args.preset)
    # One step more: what happens at the end of a run is no part of a step.
    flags = flags_of(args, setting, model, tokens, args.warmup_steps + args.steps + 1)
    activity = args.work_dir / "activity.txt"
    recorder = build_recorder(args.work_dir, args.include)
    variables = {"CUDA_INJECTION64_PATH": str(recorder), "GPU_ACTIVITY": str(activity)}
    command = command_of(SIDES[args.side], args, flags)
    run = run_once(command, args.threads, args.work_dir / "trace.log", args.warmup_steps, variables)

    ends = [round(end * 1e9) for end in run.step_ends]
    begin, end = ends[args.warmup_steps - 1], ends[-2]
    activities = read_activities(activity)
    found = describe(within(activities, begin, end), begin, end, args.steps)
    if args.out:
        write_chrome_trace(args.out, within(activities, ends[-3], end), ends[-3])
    print(json.dumps({"bench": "gpu-trace", "preset": args.preset, "side": args.side, **found}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
