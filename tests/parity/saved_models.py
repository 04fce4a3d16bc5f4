#!/usr/bin/env python3
"""Model directories that fsdp2 has written, read by transformers, or by PyTorch for a type that transformers does not
have: one model at least of every model_type.

    saved_models.py --fsdp2 PROGRAM

Two ranks load a model, train it for a step with a learning rate of 0, and save it; the logits that transformers computes with
what they saved are those that it once computed with the original (tests/parity/golden, tests/parity/variants). Encoders are
PyTorch's (tests/parity/encoder).
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
from safetensors.torch import load_model, save_model

sys.path[:0] = [str(Path(__file__).parent / folder) for folder in ("variants", "encoder")]
from make_encoder import CONFIGS as ENCODERS
from make_encoder import Encoder, batch_of, logits_of, make_model
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


def save_by_fsdp2(fsdp2: str, name: str, original: Path, tokens: torch.Tensor) -> Path:
    """What fsdp2 makes of a model directory, beside it."""
    saved, file = original.with_name("saved"), original.with_name("tokens.bin")
    file.write_bytes(tokens.numpy().astype("<u2").tobytes())
    train = [fsdp2, "train", "--model", str(original), "--tokens", str(file)]
    train += ["--seq-len", "16", "--steps", "1", "--global-batch", "2", "--lr", "0"]
    train += ["--weight-decay", "0", "--save-pretrained", str(saved)]
    command = [fsdp2, "run", "--nproc-per-node", "2", "--", *train]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, env=environment, capture_output=True, text=True, timeout=600
    )
    if done.returncode != 0:
        sys.exit(f"{name}: {' '.join(command)} failed:\n{done.stderr}")
    return saved


def write_original(case: Case, original: Path) -> None:
    original.mkdir(parents=True)
    (original / "config.json").write_text(json.dumps(case.config))
    for file in directory_of(case.base).glob("*.safetensors*"):  # and their index
        (original / file.name).symlink_to(file)


def difference_of_encoder(fsdp2: str, name: str, original: Path) -> float:
    """As `difference`, of one that PyTorch makes, saves and reads."""
    config = ENCODERS[name]
    model, batch = make_model(config), batch_of(name, config["vocab_size"])
    original.mkdir(parents=True)
    (original / "config.json").write_text(json.dumps(config))
    save_model(model, str(original / "model.safetensors"))
    saved = save_by_fsdp2(fsdp2, name, original, batch["tokens"])
    read = Encoder(json.loads((saved / "config.json").read_text()))
    load_model(read, saved / "model.safetensors")
    with torch.no_grad():
        return (logits_of(read, batch) - logits_of(model, batch)).abs().max().item()


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
    differences: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        tested = {case.config["model_type"] for case in cases}
        missing = supported_types(arguments.fsdp2, work) - tested - {"encoder"}
        failures += [f"no model of type {kind} is compared" for kind in sorted(missing)]
        for case in cases:
            original = work / case.name / "original"
            write_original(case, original)
            saved = save_by_fsdp2(arguments.fsdp2, case.name, original, tokens_of(case.base)[0])
            differences[case.name, case.config["model_type"]] = difference(case, saved)
        for name in ENCODERS:
            original = work / name / "original"
            differences[name, "encoder"] = difference_of_encoder(arguments.fsdp2, name, original)
    for (name, kind), worst in differences.items():
        print(f"{name} ({kind}): logits differ by {worst:.1e} at most")
        if not worst <= TOLERANCE:
            failures.append(f"{name}: logits differ by {worst}")
    print(
        "\n".join(failures)
        or f"{len(differences)} models saved by fsdp2 are read by transformers and PyTorch"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
