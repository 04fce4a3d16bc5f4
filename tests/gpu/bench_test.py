"""The sums of bench/gpu.py and bench/gpu_trace.py, for numbers that are known."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))
from gpu import compare, flops_of_a_token
from gpu_trace import Activity, describe, merged, overlap

PEAK = 989.4e12


class Mfu(unittest.TestCase):
    def test_of_an_untied_model_leaves_the_embedding_out(self) -> None:
        """LLM.Q's Qwen2.5 7B on an H100: 13,863 tokens/s are 61.2 %."""
        config = {
            "vocab_size": 152064, "hidden_size": 3584, "num_hidden_layers": 28,
            "tie_word_embeddings": False,
        }  # fmt: skip
        mfu = 13863 * flops_of_a_token(config, 7_615_616_512, 1024) / PEAK
        self.assertAlmostEqual(mfu, 0.612, places=3)

    def test_of_a_tied_model_counts_the_head_once(self) -> None:
        """The same for 0.5B: 149.5k tokens/s are 48.8 %."""
        config = {
            "vocab_size": 151936, "hidden_size": 896, "num_hidden_layers": 24,
            "tie_word_embeddings": True,
        }  # fmt: skip
        mfu = 149_500 * flops_of_a_token(config, 494_032_768, 1024) / PEAK
        self.assertAlmostEqual(mfu, 0.488, places=3)


class Rounds(unittest.TestCase):
    def test_ratios_are_those_within_a_round(self) -> None:
        ours = [{"tokens_per_s": 20.0}, {"tokens_per_s": 60.0}]
        theirs = [{"tokens_per_s": 10.0}, {"tokens_per_s": 20.0}]
        ratio = compare({"ours": ours, "eager": theirs})["ours_divided_by"]["eager"]
        self.assertEqual(ratio["tokens_per_s"], {"median": 2.5, "lowest": 2.0, "highest": 3.0})

    def test_a_side_that_failed_has_no_ratio(self) -> None:
        result = compare({"ours": [{"tokens_per_s": 20.0}], "eager": []})
        self.assertEqual(list(result["sides"]), ["ours"])
        self.assertEqual(result["ours_divided_by"], {})


class Trace(unittest.TestCase):
    def test_intervals_that_touch_are_one(self) -> None:
        self.assertEqual(merged([(5, 9), (0, 3), (3, 4), (6, 7)]), [(0, 4), (5, 9)])

    def test_overlap_is_time_that_both_cover(self) -> None:
        self.assertEqual(overlap([(0, 10), (20, 30)], [(5, 25)]), 10)
        self.assertEqual(overlap([(0, 10)], [(10, 20)]), 0)
        self.assertEqual(overlap([(50, 120)], [(0, 60), (100, 110)]), 20)

    def test_of_a_step_by_purpose_stream_and_wait(self) -> None:
        activities = [
            Activity("kernel", 0, 100_000, 7, "nvjet_tst_128x256"),
            Activity("kernel", 50_000, 120_000, 9, "ncclDevKernel_AllGather"),
            Activity("copy", 150_000, 160_000, 11, "device to host"),
            Activity("wait", 160_000, 170_000, 0, "for a stream"),
        ]
        step = describe(activities, 0, 200_000, steps=1)
        self.assertEqual(step["step_us"], 200.0)
        self.assertEqual(step["gpu_busy_us"], 130.0)
        self.assertEqual(
            step["by_purpose_us"], {"products": 100.0, "collectives": 70.0, "copies": 10.0}
        )
        hidden = {of["stream"]: of["under_compute_us"] for of in step["other_streams"]}
        self.assertEqual(hidden, {9: 50.0, 11: 0.0})
        self.assertEqual(step["host_waits_a_step"], {"for a stream": 1.0})


if __name__ == "__main__":
    unittest.main()
