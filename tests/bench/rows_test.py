"""The table of bench/rows.py says what its runs printed; small programs stand for the trainers."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import rows

TRAINER = """
import json, sys
step_time, loss = float(sys.argv[1]), float(sys.argv[2])
for step in range(4):
    print(json.dumps({"event": "step", "step_time_s": step_time, "loss": loss, "grad_norm": 1.0}))
print(json.dumps({"event": "summary", "peak_rss_bytes": [int(sys.argv[3]), 10], "parameters": 100,
                  "rss_before_model_bytes": [5, 5]}))
"""


def trainer(step_time: float, loss: float, peak: int) -> list[str]:
    return [sys.executable, "-c", TRAINER, str(step_time), str(loss), str(peak)]


class Rows(unittest.TestCase):
    def measured(
        self,
        commands: dict[str, list[str]],
        peak: float | None,
        run_limit: float | None = None,
    ) -> dict:
        row = rows.Row("small", "none", 2, 8, 4, 4, tuple(k for k in commands if k != "ours"))
        with (
            tempfile.TemporaryDirectory() as work,
            mock.patch.object(rows, "commands_of", return_value=commands),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            args = argparse.Namespace(rounds=2, threads=1, work_dir=Path(work), run_limit=run_limit)
            return rows.figures_of(row, args, peak)

    def test_a_ratio_is_ours_by_theirs(self) -> None:
        found = self.measured(
            {
                "ours": trainer(0.5, 2.0, 300),
                "defaults": trainer(2.0, 2.0, 1000),
                "fused": trainer(1.0, 4.0, 600),
            },
            peak=38400.0,
        )
        self.assertEqual(found["beside"]["defaults"]["ratio"]["step_time_s"], 0.25)
        self.assertEqual(found["beside"]["fused"]["ratio"]["peak_rss_bytes"], 0.5)
        self.assertEqual(found["beside"]["fused"]["largest_relative_difference"]["loss"], 0.5)
        # 6 x 100 parameters x 64 tokens/s
        self.assertEqual(found["share_of_product_peak"], 1.0)
        line = next(text for text in rows.table([found]).splitlines() if "fused" in text)
        self.assertIn("| small | fused | 0.50 (0.50 to 0.50) | 0.50 (0.50 to 0.50) |", line)
        json.dumps(found)

    def test_without_a_peak_there_is_no_share(self) -> None:
        found = self.measured({"ours": trainer(1, 1, 1), "fused": trainer(1, 1, 1)}, peak=None)
        self.assertIsNone(found["share_of_product_peak"])
        self.assertTrue(rows.table([found]).endswith("| - |"))

    def test_a_run_that_fails_is_named(self) -> None:
        failing = [sys.executable, "-c", "import sys; sys.exit('no tokens here')"]
        with self.assertRaisesRegex(rows.bench.RunFailed, "no tokens here"):
            self.measured({"ours": failing, "fused": trainer(1, 1, 1)}, peak=1.0)

    def test_a_variant_over_the_limit_is_left_out(self) -> None:
        endless = [sys.executable, "-c", "import signal; signal.pause()"]
        found = self.measured(
            {"ours": trainer(1, 1, 1), "fused": endless}, peak=None, run_limit=0.5
        )
        self.assertEqual(found["over_run_limit"], ["fused"])
        self.assertIn("| small | fused | its run takes over 0.5 s | - |", rows.table([found]))

    def test_every_row_has_known_variants_and_enough_steps(self) -> None:
        self.assertEqual(len({row.name for row in rows.ROWS}), len(rows.ROWS))
        for row in rows.ROWS:
            self.assertTrue(row.variants)
            for variant in row.variants:
                self.assertIn(variant, rows.VARIANTS)
            for made in (row, rows.quick(row)):
                self.assertGreater(made.steps, rows.bench.WARMUP_STEPS)


if __name__ == "__main__":
    unittest.main()
