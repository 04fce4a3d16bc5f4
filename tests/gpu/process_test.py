#!/usr/bin/env python3
"""What process.py promises of time."""

from __future__ import annotations

import os
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import process

HERE = Path(__file__).resolve().parent
# Prints a line, and then sleeps with a child that would keep its output open.
SLEEPER = ["sh", "-c", "echo first; sleep 60 & sleep 60; echo last"]


class Process(unittest.TestCase):
    def setUp(self) -> None:
        self.started = time.monotonic()
        process.end_all_at(self.started + 3)

    def seconds(self) -> float:
        return time.monotonic() - self.started

    def test_what_has_more_time_ends_with_all_and_leaves_what_it_has_printed(self) -> None:
        ended = process.run(SLEEPER, HERE, dict(os.environ), limit_s=60)
        self.assertIsNone(ended.status)
        self.assertEqual(ended.out, "first\n")
        self.assertLess(self.seconds(), 10)

    def test_lines_are_handed_on_when_they_come(self) -> None:
        times: list[float] = []
        status = process.follow(
            SLEEPER, HERE, dict(os.environ), lambda _: times.append(self.seconds())
        )
        self.assertIsNone(status)
        self.assertEqual(len(times), 1)
        self.assertLess(times[0], 2.5)
        self.assertLess(self.seconds(), 10)

    def test_a_program_whose_lines_are_refused_is_ended(self) -> None:
        process.end_all_at(self.started + 30)

        def refuse(line: str) -> None:
            raise ValueError(line)

        with self.assertRaises(ValueError):
            process.follow(SLEEPER, HERE, dict(os.environ), refuse)
        self.assertLess(self.seconds(), 10)

    def test_a_program_that_ends_in_time_has_its_status(self) -> None:
        lines: list[str] = []
        command = ["sh", "-c", "echo one; echo two; exit 3"]
        self.assertEqual(process.follow(command, HERE, dict(os.environ), lines.append), 3)
        self.assertEqual(lines, ["one\n", "two\n"])


if __name__ == "__main__":
    unittest.main()
