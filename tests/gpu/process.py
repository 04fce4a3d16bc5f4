"""Programs that are given a time, and end with all that they have started."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Ended:
    status: int | None  # None: it was killed when its time was over
    out: str
    errors: str


def run(
    command: list[str],
    folder: Path,
    environment: dict[str, str],
    limit_s: float,
    show_errors: bool = False,
) -> Ended:
    """Run a program in `folder` as the leader of a session of its own.

    With show_errors, what it says of itself goes where this program's does, and not to `errors`.
    """
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE,
        stderr=None if show_errors else subprocess.PIPE, text=True, errors="replace",
        start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = process.communicate(timeout=limit_s)
        return Ended(process.returncode, out, errors or "")
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        return Ended(None, out, f"{errors or ''}\nno end after {limit_s:.0f} s")
