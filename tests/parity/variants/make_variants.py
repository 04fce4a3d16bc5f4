#!/usr/bin/env python3
"""Write variants.json: what transformers makes of golden models whose config.json is changed.

    python tests/parity/variants/make_variants.py       (with bench/python/requirements.txt)

A variant has the weights and tokens of a model of tests/parity/golden and other options: rope types,
sliding windows, another model_type. For each, the first logits of two windows of tokens, the loss,
and the norms of the gradients of one step.
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
POSITIONS = [[0, 0], [0, 13], [0, 31], [1, 20], [3, 31]]

HALF = 8  # of the dim of a head in tiny-llama


def rope(**scaling: Any) -> dict[str, Any]:
    return {"rope_scaling": scaling}


def longrope(**scaling: Any) -> dict[str, Any]:
    return rope(
        rope_type="longrope",
        short_factor=[1.0 + 0.1 * i for i in range(HALF)],
        long_factor=[1.5 + 0.7 * i for i in range(HALF)],
        **scaling,
    )


MISTRAL = {"model_type": "mistral", "architectures": ["MistralForCausalLM"]}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "rope-linear": ("tiny-llama", rope(rope_type="linear", factor=4.0)),
    "rope-dynamic-short": ("tiny-llama", rope(rope_type="dynamic", factor=2.0)),
    "rope-dynamic-long": (
        "tiny-llama",
        rope(type="dynamic", factor=3.0) | {"max_position_embeddings": 20},
    ),
    "rope-yarn": (
        "tiny-llama",
        rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    ),
    "rope-llama3": (
        "tiny-llama",
        rope(
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
    ),
    "rope-longrope-short": ("tiny-llama", longrope(factor=4.0)),
    "rope-longrope-long": (
        "tiny-llama",
        longrope() | {"max_position_embeddings": 64, "original_max_position_embeddings": 16},
    ),
    "qwen2-sliding": (
        "tiny-qwen2",
        {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 1},
    ),
    "qwen3-layer-types": (
        "tiny-qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 5,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "qwen3-moe-sliding": ("tiny-qwen3-moe", {"use_sliding_window": True, "sliding_window": 6}),
    "mistral": ("tiny-llama", MISTRAL | {"sliding_window": None}),
    "mistral-sliding": ("tiny-llama-gqa-tied", MISTRAL | {"sliding_window": 9}),
    "llama-gelu": ("tiny-llama", {"hidden_act": "gelu"}),
    "llama-padding-token": ("tiny-llama", {"pad_token_id": 1}),
    "gemma-gelu": ("tiny-gemma", {"hidden_act": "gelu", "pad_token_id": None}),
    "gemma-rope-yarn": (
        "tiny-gemma",
        rope(rope_type="yarn", factor=4.0, original_max_position_embeddings=16),
    ),
    "gemma2-uncapped": (
        "tiny-gemma2",
        {"attn_logit_softcapping": None, "final_logit_softcapping": None},
    ),
    "gemma3-logit-cap": ("tiny-gemma3", {"final_logit_softcapping": 3.0}),
    "gemma3-pattern": (
        "tiny-gemma3",
        {"layer_types": None, "sliding_window_pattern": 2, "query_pre_attn_scalar": 24},
    ),
    "gemma3-full": (
        "tiny-gemma3",
        {"layer_types": ["full_attention"] * 3, "rope_scaling": None, "hidden_activation": "silu"},
    ),
    "phi3-plain": ("tiny-phi3", {"rope_scaling": None, "sliding_window": None}),
    "phi3-whole-heads": ("tiny-phi3", {"rope_scaling": None, "partial_rotary_factor": 1.0}),
    "phi3-longrope-short": ("tiny-phi3", {"original_max_position_embeddings": 32}),
}


def weights_of(directory: Path) -> dict[str, torch.Tensor]:
    weights: dict[str, torch.Tensor] = {}
    for file in sorted(directory.glob("*.safetensors")):
        weights |= load_file(file)
    return weights


def tokens_of(model: str) -> tuple[torch.Tensor, torch.Tensor]:
    raw = np.fromfile(GOLDEN / "tokens" / f"{model}.bin", dtype="<u2").astype(np.int64)
    windows = torch.stack(
        [torch.from_numpy(raw[i * LENGTH : (i + 1) * LENGTH + 1]) for i in range(ROWS)]
    )
    return windows[:, :-1], windows[:, 1:]


def record(name: str, base: str, changes: dict[str, Any]) -> dict[str, Any]:
    content = json.loads((GOLDEN / "models" / base / "config.json").read_text()) | changes
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(json.dumps(content))
        config = AutoConfig.from_pretrained(scratch)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa")
    missing, unexpected = model.load_state_dict(weights_of(GOLDEN / "models" / base), strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected, (missing, unexpected)
    model.tie_weights()
    inputs, labels = tokens_of(base)
    logits = model(input_ids=inputs, use_cache=False).logits
    loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.reshape(-1))
    loss.backward()
    return {
        "name": name,
        "model": base,
        "changes": changes,
        "positions": POSITIONS,
        "first_8": [logits[b, t, :8].tolist() for b, t in POSITIONS],
        "loss": loss.item(),
        "grad_norms": {
            n: p.grad.double().norm().item()
            for n, p in model.named_parameters()
            if p.grad is not None
        },
    }


def main() -> None:
    torch.set_num_threads(1)
    records = [record(name, *variant) for name, variant in VARIANTS.items()]
    lines = ",\n".join(json.dumps(r) for r in records)
    (HERE / "variants.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
