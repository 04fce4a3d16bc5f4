#!/usr/bin/env python3
"""Write router_losses.json: one step of models whose routers have a loss, by transformers.

    python tests/parity/router_loss/make_router_losses.py       (with bench/python/requirements.txt)

The models are those of tests/parity/golden, with output_router_logits true. A batch of four rows is
divided over 1, 2 or 4 ranks, each of which takes the loss of its own rows, as under FSDP2; recorded
are the mean of these, the routers' part of it, and the norms of its gradients. Rows may end in padding,
which the attention mask and the labels leave out.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModelForCausalLM

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
LENGTH = 32
ROWS = 4

CASES: list[dict[str, Any]] = [
    {"name": "qwen3-moe", "model": "tiny-qwen3-moe", "factor": 0.5, "lengths": None},
    {"name": "qwen3-moe-padded", "model": "tiny-qwen3-moe", "factor": 0.5, "lengths": [32, 20, 9, 31]},
    {
        "name": "qwen3-moe-three-picks", "model": "tiny-qwen3-moe", "factor": 0.5,
        "lengths": [30, 32, 32, 11], "changes": {"num_experts_per_tok": 3},
    },
    {"name": "mixtral", "model": "tiny-mixtral", "factor": 0.7, "lengths": None},
    {"name": "mixtral-padded", "model": "tiny-mixtral", "factor": 0.7, "lengths": [5, 32, 32, 17]},
]  # fmt: skip
IGNORED = -100


def rows_of(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels [ROWS, LENGTH]."""
    raw = np.fromfile(GOLDEN / "tokens" / f"{model}.bin", dtype="<u2").astype(np.int64)
    windows = torch.stack(
        [torch.from_numpy(raw[i * LENGTH : (i + 1) * LENGTH + 1]) for i in range(ROWS)]
    )
    return windows[:, :-1], windows[:, 1:].clone()


def build(case: dict[str, Any]) -> Any:
    directory = GOLDEN / "models" / case["model"]
    content = json.loads((directory / "config.json").read_text()) | case["changes"]
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(json.dumps(content))
        config = AutoConfig.from_pretrained(scratch)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    model.load_state_dict(load_file(directory / "model.safetensors"), strict=True)
    return model


def record(case: dict[str, Any], ranks: int) -> dict[str, Any]:
    model = build(case)
    tokens, labels = rows_of(case["model"])
    mask = None
    if case["lengths"] is not None:
        mask = (torch.arange(LENGTH)[None, :] < torch.tensor(case["lengths"])[:, None]).long()
        labels[mask == 0] = IGNORED
    total = torch.zeros(())
    of_routers = 0.0
    share = ROWS // ranks
    for first in range(0, ROWS, share):
        part = slice(first, first + share)
        output = model(
            input_ids=tokens[part],
            attention_mask=None if mask is None else mask[part],
            use_cache=False,
        )
        routers = model.router_aux_loss_coef * output.aux_loss
        loss = F.cross_entropy(output.logits.flatten(0, 1), labels[part].flatten()) + routers
        total = total + loss / ranks
        of_routers += routers.item() / ranks
    total.backward()
    return {
        "ranks": ranks,
        "loss": total.item(),
        "loss_of_routers": of_routers,
        "grad_norms": {n: p.grad.double().norm().item() for n, p in model.named_parameters()},
    }


def main() -> None:
    torch.set_num_threads(1)
    records = []
    for case in CASES:
        case["changes"] = {
            "output_router_logits": True,
            "router_aux_loss_coef": case.pop("factor"),
        } | case.get("changes", {})
        records.append(case | {"runs": [record(case, ranks) for ranks in (1, 2, 4)]})
    lines = ",\n".join(json.dumps(r) for r in records)
    (HERE / "router_losses.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
