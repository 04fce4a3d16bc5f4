#!/usr/bin/env python3
"""Write generations.json: how transformers continues prompts, and which tokens its filters keep.

    python tests/parity/generation/make_generations.py       (with bench/python/requirements.txt)

For models of tests/parity/golden: prompts of different lengths, continued as one batch by greedy
search, until a stop token or to the end. For some logits: the tokens that are left after
temperature, top-k and top-p. And for each kind of model: the token that ends a text if config.json
does not say, and there is no generation_config.json.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, GenerationConfig
from transformers.generation.logits_process import (
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

HERE = Path(__file__).resolve().parent
GOLDEN = HERE.parent / "golden"
MODELS = ["tiny-llama", "tiny-gpt2", "tiny-qwen3", "tiny-qwen3-moe"]
KINDS = [
    "gemma",
    "gemma2",
    "gemma3_text",
    "gpt2",
    "llama",
    "mistral",
    "mixtral",
    "phi3",
    "qwen2",
    "qwen2_5_vl",
    "qwen3",
    "qwen3_moe",
    "qwen3_vl",
]
LENGTHS = [9, 1, 5, 12]
NEW_TOKENS = 10
MARGIN = 1e-4  # between the two most likely tokens, so that rounding cannot decide


def prompts_of(name: str) -> list[list[int]]:
    tokens = np.fromfile(GOLDEN / "tokens" / f"{name}.bin", dtype=np.uint16).astype(np.int64)
    starts = np.cumsum([0, *LENGTHS])
    return [tokens[a:b].tolist() for a, b in itertools.pairwise(starts)]


def generate(model: torch.nn.Module, prompts: list[list[int]], stop: list[int]) -> list[list[int]]:
    longest = max(map(len, prompts))
    tokens = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
    mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
    made = model.generate(
        tokens,
        attention_mask=mask,
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        eos_token_id=stop or None,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    rows: list[list[int]] = []
    for row in range(len(prompts)):
        new = made.sequences[row, longest:].tolist()
        ends = [i for i, token in enumerate(new) if token in stop]
        rows.append(new[: ends[0] + 1] if ends else new)
        for step in range(len(rows[-1])):
            first, second = made.logits[step][row].topk(2).values.tolist()
            assert first - second > MARGIN, (row, step, first, second)
    return rows


def continue_prompts(name: str) -> dict[str, Any]:
    model = AutoModelForCausalLM.from_pretrained(
        GOLDEN / "models" / name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    prompts = prompts_of(name)
    to_the_end = generate(model, prompts, [])
    # The first row's fourth token, and the third row's last one: two rows end early.
    stop = [to_the_end[0][3], to_the_end[2][6]]
    return {
        "prompts": prompts,
        "to_the_end": to_the_end,
        "stop_tokens": stop,
        "stopped": generate(model, prompts, stop),
    }


def kept(logits: list[float], temperature: float, top_k: int, top_p: float) -> dict[str, Any]:
    filters = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k > 0:
        filters.append(TopKLogitsWarper(top_k))
    if 0.0 < top_p < 1.0:
        filters.append(TopPLogitsWarper(top_p))
    left = filters(torch.zeros(1, 1, dtype=torch.long), torch.tensor([logits]))[0]
    return {
        "temperature": temperature,
        "top_k": top_k,
        "top_p": top_p,
        "kept": torch.isfinite(left).nonzero().flatten().tolist(),
    }


def end_of(kind: str) -> int | None:
    config = CONFIG_MAPPING[kind].from_dict({"model_type": kind})
    return GenerationConfig.from_model_config(config).eos_token_id


def main() -> None:
    torch.manual_seed(0)
    logits = [round(value, 3) for value in (torch.randn(24) * 2).tolist()]
    filters = [
        kept(logits, *options)
        for options in [
            (1.0, 0, 0.0),
            (1.0, 5, 0.0),
            (1.0, 0, 0.5),
            (1.0, 0, 0.9),
            (0.5, 0, 0.9),
            (2.0, 7, 0.8),
            (1.0, 3, 0.01),
        ]
    ]
    out = {
        "models": {name: continue_prompts(name) for name in MODELS},
        "logits": logits,
        "filters": filters,
        "ends": {kind: end_of(kind) for kind in KINDS},
    }
    (HERE / "generations.json").write_text(json.dumps(out, indent=1) + "\n")


if __name__ == "__main__":
    main()
