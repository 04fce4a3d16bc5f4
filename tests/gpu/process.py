"""Programs that are given a time, and end with all that they have started."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_end_of_all = math.inf


@dataclass
class Ended:
    status: int | None  # None: it was killed when its time was over
    out: str
    errors: str


def end_all_at(moment: float) -> None:
    """No program runs beyond this moment of time.monotonic(), whatever time it is given."""
    global _end_of_all
    _end_of_all = moment


def time_left() -> float:
    return max(0.0, _end_of_all - time.monotonic())


def run(command: list[str], folder: Path, environment: dict[str, str], limit_s: float) -> Ended:
    """Run a program in `folder` as the leader of a session of its own."""
    limit_s = min(limit_s, time_left())
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, errors="replace", start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=limit_s)
        return Ended(process.returncode, out, errors)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        return Ended(None, out, f"{errors}\nno end after {limit_s:.0f} s")


def follow(
    command: list[str], folder: Path, environment: dict[str, str], on_line: Callable[[str], None]
) -> int | None:
    """Run a program until the end of all, and hand on each line that it prints when it does.

    What it says of itself goes where this program's does. Returns its status, as in Ended.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    was_killed = threading.Event()

    def kill() -> None:
        was_killed.set()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    timer = threading.Timer(min(time_left(), threading.TIMEOUT_MAX), kill)
    timer.start()
    try:
        with process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    on_line(line)
            except BaseException:
                kill()
                raise
    finally:
        timer.cancel()
    return None if was_killed.is_set() else process.returncode
