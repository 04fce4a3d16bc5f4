#!/usr/bin/env python3
"""Write MODEL-generations.json: how transformers continues prompts with several images, one and none.

    python tests/parity/vision_language/make_generations.py

With bench/python/requirements.txt. The models and the images are those that make_vision_language.py
has written; prompts are the beginnings of the rows of their inputs.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from make_vision_language import HERE, IMAGE, MODELS, VIDEO
from safetensors.torch import load_file
from transformers import AutoModelForImageTextToText

LENGTHS = [26, 5, 19, 1]  # behind two images, none, one, none
NEW_TOKENS = 10
MARGIN = 1e-4  # between the two most likely tokens, so that rounding cannot decide


def continue_prompts(name: str) -> dict[str, Any]:
    model = AutoModelForImageTextToText.from_pretrained(
        HERE / name, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    inputs = load_file(HERE / f"{name}-images.safetensors")
    prompts = [row[:n].tolist() for row, n in zip(inputs["input_ids"], LENGTHS, strict=True)]
    longest = max(LENGTHS)
    made = model.generate(
        torch.tensor([[0] * (longest - len(p)) + p for p in prompts]),
        attention_mask=torch.tensor([[0] * (longest - n) + [1] * n for n in LENGTHS]),
        pixel_values=inputs["pixel_values"],
        image_grid_thw=inputs["image_grid_thw"],
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        use_cache=True,
        eos_token_id=None,
        pad_token_id=0,
        suppress_tokens=[IMAGE, VIDEO],  # nothing would stand in for them
        output_scores=True,
        return_dict_in_generate=True,
    )
    for scores in made.scores:
        first, second = scores.topk(2).values.unbind(1)
        assert (first - second).min().item() > MARGIN, (name, first, second)
    return {"prompts": prompts, "made": made.sequences[:, longest:].tolist()}


def main() -> None:
    torch.set_num_threads(1)
    for name in MODELS:
        text = json.dumps(continue_prompts(name))
        (HERE / f"{name}-generations.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
