#!/usr/bin/env python3
"""Model directories that fsdp2 has written, read by transformers: one model at least of every model_type.

    saved_models.py --fsdp2 PROGRAM

Two ranks load a model, train it for a step with a learning rate of 0, and save it; the logits that transformers computes with
what they saved are those that it once computed with the original (tests/parity/golden, tests/parity/variants).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parent / "variants"))
from make_variants import (
    GOLDEN,
    HERE,
    LENGTH,
    attention_of,
    auto_class_of,
    changed,
    directory_of,
    tokens_of,
)

TOLERANCE = 1e-5
# Types that transformers has no class for, with the reason.
NOT_APPLICABLE: dict[str, str] = {}


class Case(NamedTuple):
    name: str
    base: str  # whose weights it has
    config: dict[str, Any]
    positions: list[list[int]]
    first_8: list[list[float]]


def golden_cases() -> list[Case]:
    cases = []
    for directory in sorted((GOLDEN / "models").iterdir()):
        recorded = json.loads((GOLDEN / f"{directory.name}.json").read_text())["logits"]
        assert recorded["seq_len"] == LENGTH and recorded["windows"] == [0, 1], directory
        config = json.loads((directory / "config.json").read_text())
        cases.append(
            Case(directory.name, directory.name, config, recorded["positions"], recorded["first_8"])
        )
    return cases


def variant_cases(known_types: set[str]) -> list[Case]:
    """The first of each type that no golden model is of."""
    cases: dict[str, Case] = {}
    for variant in json.loads((HERE / "variants.json").read_text()):
        base = variant["model"]
        config = json.loads((directory_of(base) / "config.json").read_text())
        config = changed(config, variant["changes"])
        kind = config["model_type"]
        if kind not in known_types and kind not in cases:
            cases[kind] = Case(
                variant["name"], base, config, variant["positions"], variant["first_8"]
            )
    return list(cases.values())


def supported_types(fsdp2: str, work: Path) -> set[str]:
    """As the error for an unknown one lists them."""
    (work / "config.json").write_text('{"model_type": "none"}')
    done = subprocess.run(
        [fsdp2, "plan", "--model", str(work)], check=False, capture_output=True, text=True
    )
    listed = re.search(r"; supported: ([a-z0-9_, ]+);", done.stderr)
    assert listed, done.stderr
    return set(listed[1].split(", "))


def save_by_fsdp2(fsdp2: str, case: Case, work: Path) -> Path:
    original, saved = work / "original", work / "saved"
    original.mkdir(parents=True)
    (original / "config.json").write_text(json.dumps(case.config))
    for file in directory_of(case.base).glob("*.safetensors*"):  # and their index
        (original / file.name).symlink_to(file)
    tokens = work / "tokens.bin"
    tokens.write_bytes(tokens_of(case.base)[0].numpy().astype("<u2").tobytes())
    train = [fsdp2, "train", "--model", str(original), "--tokens", str(tokens)]
    train += ["--seq-len", "16", "--steps", "1", "--global-batch", "2", "--lr", "0"]
    train += ["--weight-decay", "0", "--save-pretrained", str(saved)]
    command = [fsdp2, "run", "--nproc-per-node", "2", "--", *train]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=120
    )
    if done.returncode != 0:
        sys.exit(f"{case.name}: {' '.join(command)} failed:\n{done.stderr}")
    return saved


def difference(case: Case, saved: Path) -> float:
    model, info = auto_class_of(case.base).from_pretrained(
        saved,
        attn_implementation=attention_of(case.base),
        dtype=torch.float32,
        output_loading_info=True,
    )
    assert not any(info.values()), (case.name, info)
    with torch.no_grad():
        logits = model(input_ids=tokens_of(case.base)[0], use_cache=False).logits
    found = torch.stack([logits[row, at, :8] for row, at in case.positions])
    return (found - torch.tensor(case.first_8)).abs().max().item()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fsdp2", required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    cases = golden_cases()
    cases += variant_cases({case.config["model_type"] for case in cases})
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        tested = {case.config["model_type"] for case in cases}
        missing = supported_types(arguments.fsdp2, work) - tested - set(NOT_APPLICABLE)
        failures += [f"no model of type {kind} is compared" for kind in sorted(missing)]
        for case in cases:
            worst = difference(case, save_by_fsdp2(arguments.fsdp2, case, work / case.name))
            print(
                f"{case.name} ({case.config['model_type']}): logits differ by {worst:.1e} at most"
            )
            if worst > TOLERANCE:
                failures.append(f"{case.name}: logits differ by {worst}")
    print("\n".join(failures) or f"{len(cases)} models saved by fsdp2 are read by transformers")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
