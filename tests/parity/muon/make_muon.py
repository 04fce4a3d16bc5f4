#!/usr/bin/env python3
"""Write muon.json: what torch.optim.Muon, with AdamW for the rest, makes of a few parameters.

    python tests/parity/muon/make_muon.py       (with bench/python/requirements.txt)

Gradients are given, so that nothing but the optimizers is compared. Values are float32.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent
STEPS = 4
LR = 0.02
WEIGHT_DECAY = 0.1
SHAPES: dict[str, list[int]] = {
    "embed.weight": [7, 4],
    "wide.weight": [6, 10],
    "tall.weight": [9, 5],
    "tall.bias": [9],
    "square.weight": [8, 8],
    "lm_head.weight": [7, 4],
}
MATRICES = ["wide.weight", "tall.weight", "square.weight"]

# matched_adamw_rms 0 stands for Jordan's own scale.
CASES: list[dict[str, Any]] = [
    {"momentum": 0.95, "nesterov": True, "ns_steps": 5, "matched_adamw_rms": 0.2},
    {"momentum": 0.9, "nesterov": False, "ns_steps": 3, "matched_adamw_rms": 0.0},
]


def run(
    case: dict[str, Any],
    initial: dict[str, torch.Tensor],
    grads: list[dict[str, torch.Tensor]],
) -> dict[str, Any]:
    params = {name: torch.nn.Parameter(value.clone()) for name, value in initial.items()}
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Muon(
            [params[name] for name in MATRICES],
            lr=LR,
            weight_decay=WEIGHT_DECAY,
            momentum=case["momentum"],
            nesterov=case["nesterov"],
            ns_steps=case["ns_steps"],
            adjust_lr_fn="match_rms_adamw" if case["matched_adamw_rms"] else "original",
        ),
        torch.optim.AdamW(
            [param for name, param in params.items() if name not in MATRICES],
            lr=LR,
            weight_decay=WEIGHT_DECAY,
        ),
    ]
    for step in grads:
        for name, param in params.items():
            param.grad = step[name].clone()
        for optimizer in optimizers:
            optimizer.step()
    state = optimizers[0].state
    momentum = {name: state[params[name]]["momentum_buffer"].tolist() for name in MATRICES}
    return {
        **case,
        "after": {name: param.detach().tolist() for name, param in params.items()},
        "momentum_buffer": momentum,
    }


def main() -> None:
    generator = torch.Generator().manual_seed(11)
    initial = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    grads = [
        {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
        for _ in range(STEPS)
    ]
    content = {
        "lr": LR,
        "weight_decay": WEIGHT_DECAY,
        "initial": {name: value.tolist() for name, value in initial.items()},
        "gradients": [{name: value.tolist() for name, value in step.items()} for step in grads],
        "cases": [run(case, initial, grads) for case in CASES],
    }
    (HERE / "muon.json").write_text(json.dumps(content) + "\n")


if __name__ == "__main__":
    main()
