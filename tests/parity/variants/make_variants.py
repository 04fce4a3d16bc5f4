#!/usr/bin/env python3
"""Write variants.json: what transformers makes of golden models whose config.json is changed.

    python tests/parity/variants/make_variants.py [NAME...]      (with bench/python/requirements.txt)

A variant has the weights of a model of tests/parity/golden, or of tests/parity/vision_language, and other
options: rope types, sliding windows, another model_type. For each, the first logits of two windows of
tokens, the loss, and the norms of the gradients of one step. Each model_type has three configurations at
least, those of the models themselves included. With names only these are made anew.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    PreTrainedModel,
)

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
VISION = HERE.parent / "vision_language"
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
    # As Qwen's models get it: the positions are those before it.
    "rope-yarn-stretched": (
        "tiny-llama",
        rope(type="yarn", factor=4.0, original_max_position_embeddings=16)
        | {"max_position_embeddings": 16},
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
    "gemma-relu": ("tiny-gemma", {"hidden_act": "relu", "pad_token_id": None}),
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
    "gpt2-scores-unscaled": ("tiny-gpt2", {"scale_attn_weights": False}),
    "gpt2-scores-by-layer": (
        "tiny-gpt2-untied",
        {"scale_attn_by_inverse_layer_idx": True, "activation_function": "relu"},
    ),
    "gpt2-scores-upcast": (
        "tiny-gpt2",
        {"reorder_and_upcast_attn": True, "scale_attn_by_inverse_layer_idx": True},
    ),
    "gpt2-null-is-false": (
        "tiny-gpt2-untied",
        {"tie_word_embeddings": None, "scale_attn_weights": None},
    ),
    "qwen2-gelu": ("tiny-qwen2", {"hidden_act": "gelu"}),
    "qwen3-rope-linear": ("tiny-qwen3", rope(rope_type="linear", factor=2.0)),
    "qwen3-moe-weights": ("tiny-qwen3-moe", {"norm_topk_prob": False, "num_experts_per_tok": 1}),
    "mistral-relu": ("tiny-llama", MISTRAL | {"sliding_window": 40, "hidden_act": "relu"}),
    "mixtral-sliding": ("tiny-mixtral", {"sliding_window": 7}),
    "mixtral-one-expert": ("tiny-mixtral", {"num_experts_per_tok": 1, "rope_theta": 5e5}),
    "gemma2-layer-types": (
        "tiny-gemma2",
        {"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 5},
    ),
    # In text_config, beside which the first model's file has the same keys.
    "qwen2.5-vl-rope-linear": (
        "tiny-qwen2.5-vl",
        {"text_config": rope(rope_type="linear", factor=3.0, mrope_section=[2, 3, 3])},
    ),
    "qwen2.5-vl-sliding": (
        "tiny-qwen2.5-vl",
        {
            "text_config": {
                "use_sliding_window": True,
                "sliding_window": 6,
                "max_window_layers": 1,
                "layer_types": None,
            }
        },
    ),
    "qwen3-vl-gelu": ("tiny-qwen3-vl", {"text_config": {"hidden_act": "gelu"}}),
    "qwen3-vl-sections": (
        "tiny-qwen3-vl",
        {
            "text_config": {
                "rope_theta": 1e4,
                "rope_scaling": {
                    "rope_type": "default",
                    "mrope_section": [2, 3, 3],
                    "mrope_interleaved": True,
                },
            }
        },
    ),
}


def directory_of(base: str) -> Path:
    return VISION / base if base.endswith("-vl") else GOLDEN / "models" / base


def changed(content: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """As nlohmann::json::merge_patch, but that null is a value."""
    return content | {
        key: changed(content[key], value) if key == "text_config" else value
        for key, value in changes.items()
    }


def tokens_of(base: str) -> tuple[torch.Tensor, torch.Tensor]:
    # Vision-language models take those of another, without the tokens that mean something to them.
    of = "tiny-llama" if base.endswith("-vl") else base
    raw = np.fromfile(GOLDEN / "tokens" / f"{of}.bin", dtype="<u2").astype(np.int64)
    raw = raw % 80 + 10 if base.endswith("-vl") else raw
    windows = torch.stack(
        [torch.from_numpy(raw[i * LENGTH : (i + 1) * LENGTH + 1]) for i in range(ROWS)]
    )
    return windows[:, :-1], windows[:, 1:]


def auto_class_of(base: str) -> Any:
    return AutoModelForImageTextToText if base.endswith("-vl") else AutoModelForCausalLM


def attention_of(base: str) -> str:
    """GPT-2's options of scores, and caps of scores, are those of one implementation alone."""
    return "eager" if "gpt2" in base or "gemma2" in base else "sdpa"


def model_of(base: str, changes: dict[str, Any]) -> PreTrainedModel:
    directory = directory_of(base)
    content = changed(json.loads((directory / "config.json").read_text()), changes)
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "config.json").write_text(json.dumps(content))
        config = AutoConfig.from_pretrained(scratch)
    model, info = auto_class_of(base).from_pretrained(
        directory, config=config, attn_implementation=attention_of(base), output_loading_info=True
    )
    assert not any(info.values()), info
    return model.train()


def own_name(base: str, name: str) -> str:
    """The parameter's name in published files."""
    return name.replace("model.language_model.", "model.") if base == "tiny-qwen2.5-vl" else name


def record(name: str, base: str, changes: dict[str, Any]) -> dict[str, Any]:
    model = model_of(base, changes)
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
            own_name(base, n): p.grad.double().norm().item()
            for n, p in model.named_parameters()
            if p.grad is not None
        },
    }


def main() -> None:
    torch.set_num_threads(1)
    file = HERE / "variants.json"
    known = {r["name"]: r for r in json.loads(file.read_text())} if sys.argv[1:] else {}
    records = [
        known[name] if known and name not in sys.argv[1:] else record(name, *variant)
        for name, variant in VARIANTS.items()
    ]
    lines = ",\n".join(json.dumps(r) for r in records)
    file.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
