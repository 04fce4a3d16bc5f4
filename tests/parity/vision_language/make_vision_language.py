#!/usr/bin/env python3
"""Write tiny vision-language models, inputs for them, and what transformers makes of these.

    python tests/parity/vision_language/make_vision_language.py

With bench/python/requirements.txt.

For each model a directory as transformers saves it. Beside it lie inputs (MODEL-CASE.safetensors),
and what is expected of each case (MODEL.json): some logits, the loss, and of each gradient of one
step its norm and its product with cos(0), cos(1), ... .
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForImageTextToText

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[2] / "bench" / "python"))
from make_model import seeded_tensor, uniforms

IMAGE, VIDEO, START, END = 8, 9, 6, 7
TOKENS = {
    "image_token_id": IMAGE,
    "video_token_id": VIDEO,
    "vision_start_token_id": START,
    "vision_end_token_id": END,
}
MERGE = 2
LENGTH = 44

QWEN2_5_VL: dict[str, Any] = TOKENS | {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"],
    "model_type": "qwen2_5_vl",
    "vocab_size": 96,
    "hidden_size": 32,
    "intermediate_size": 56,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
    "max_window_layers": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]},
    "tie_word_embeddings": False,
    "use_cache": False,
    "vision_config": {
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "tokens_per_second": 2,
        "window_size": 16,
        "out_hidden_size": 32,
        "fullatt_block_indexes": [1],
    },
}

# Two merged layers out of order, of which the decoder has more: each goes to a layer of its own.
QWEN3_VL: dict[str, Any] = TOKENS | {
    "architectures": ["Qwen3VLForConditionalGeneration"],
    "model_type": "qwen3_vl",
    "tie_word_embeddings": True,
    "text_config": {
        "model_type": "qwen3_vl_text",
        "vocab_size": 96,
        "hidden_size": 32,
        "intermediate_size": 56,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 128,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000.0,
        "rope_scaling": {
            "rope_type": "default",
            "mrope_interleaved": True,
            "mrope_section": [4, 2, 2],
        },
        "tie_word_embeddings": True,
        "use_cache": False,
    },
    "vision_config": {
        "model_type": "qwen3_vl",
        "depth": 3,
        "hidden_size": 32,
        "intermediate_size": 44,
        "num_heads": 2,
        "patch_size": 4,
        "spatial_merge_size": MERGE,
        "temporal_patch_size": 2,
        "out_hidden_size": 32,
        "num_position_embeddings": 16,
        "deepstack_visual_indexes": [2, 0],
    },
}

MODELS = {"tiny-qwen2.5-vl": QWEN2_5_VL, "tiny-qwen3-vl": QWEN3_VL}

Grid = tuple[int, int, int]
# Rows of pieces: a number of text tokens, an image ("image", grid), or a video ("video", grid).
Row = list[Any]
SMALL, TALL, WIDE = (1, 4, 6), (1, 8, 4), (1, 6, 10)
MIXED: list[Row] = [
    [3, ("image", SMALL), 2, ("image", TALL)],
    [],
    [0, ("image", WIDE), 4],
    [],
]
CASES: dict[str, dict[str, Any]] = {
    "images": {"rows": MIXED},
    "text": {"rows": [[], [], [], []]},
    "frozen": {"rows": MIXED, "inputs": "images", "frozen": True},
    "videos": {
        "rows": [[2, ("video", (2, 4, 4)), 1, ("image", SMALL)], [5, ("video", (3, 4, 6))]],
        "seconds": [1.0, 2.5],
    },
    "padded": {"rows": [[3, ("image", SMALL)], [1, ("image", TALL), 1]], "padding": [9, 0]},
    "bfloat16": {"rows": MIXED, "inputs": "images", "dtype": torch.bfloat16},
}


def write_model(name: str, content: dict[str, Any]) -> Path:
    directory = HERE / name
    directory.mkdir(exist_ok=True)
    (directory / "config.json").write_text(json.dumps(content))
    config = AutoConfig.from_pretrained(directory)
    model = AutoModelForImageTextToText.from_config(config)
    state = {n: seeded_tensor(n, t.shape, 0) for n, t in model.state_dict().items()}
    model.load_state_dict(state)
    model.tie_weights()
    model.save_pretrained(directory)
    (directory / "generation_config.json").unlink(missing_ok=True)
    return directory


def vision_tokens(kind: int, grid: Grid, frames_are_apart: bool) -> list[int]:
    frames, rows, columns = grid
    of_frame = [kind] * (rows * columns // MERGE**2)
    if frames_are_apart:
        return [token for i in range(frames) for token in (40 + i, START, *of_frame, END)]
    return [START, *(of_frame * frames), END]


def tokens_of(row: Row, number: int, frames_are_apart: bool) -> list[int]:
    """A row of LENGTH tokens; text from 10 on."""
    text = iter((10 + uniforms(7, number, LENGTH) * 80).astype(np.int64).tolist())
    tokens: list[int] = []
    for piece in row:
        if isinstance(piece, int):
            tokens += [next(text) for _ in range(piece)]
        else:
            kind, grid = piece
            tokens += vision_tokens(
                IMAGE if kind == "image" else VIDEO, grid, frames_are_apart and kind == "video"
            )
    assert len(tokens) <= LENGTH, len(tokens)
    return tokens + [next(text) for _ in range(LENGTH - len(tokens))]


def pixels_of(grids: list[Grid], stream: int) -> torch.Tensor:
    count = sum(t * h * w for t, h, w in grids)
    numbers = uniforms(11, stream, count * 3 * 2 * 4 * 4) * 4 - 2
    return torch.from_numpy(numbers.astype(np.float32)).view(count, -1)


def inputs_of(case: dict[str, Any], is_qwen3: bool) -> dict[str, torch.Tensor]:
    rows = case["rows"]
    tokens = [tokens_of(row, i, is_qwen3) for i, row in enumerate(rows)]
    labels = (uniforms(13, 0, len(rows) * LENGTH) * 96).astype(np.int64).reshape(-1, LENGTH)
    mask = torch.ones(len(rows), LENGTH, dtype=torch.int64)
    for i, padding in enumerate(case.get("padding", [])):
        mask[i, :padding] = 0
        tokens[i] = ([0] * padding + tokens[i])[:LENGTH]
    inputs = {
        "input_ids": torch.tensor(tokens),
        "labels": torch.from_numpy(labels),
        "attention_mask": mask,
    }
    for stream, kind, pixels, name in (
        (1, "image", "pixel_values", "image_grid_thw"),
        (2, "video", "pixel_values_videos", "video_grid_thw"),
    ):
        grids = [p[1] for row in rows for p in row if not isinstance(p, int) and p[0] == kind]
        if grids:
            inputs |= {pixels: pixels_of(grids, stream), name: torch.tensor(grids)}
    if "seconds" in case and not is_qwen3:
        inputs["second_per_grid_ts"] = torch.tensor(case["seconds"])
    return inputs


def stored_name(name: str, is_qwen3: bool) -> str:
    """The name of a parameter in the files."""
    if is_qwen3:
        return name
    return name.removeprefix("model.").replace("language_model.", "model.")


def digest(gradient: torch.Tensor) -> dict[str, float]:
    wide = gradient.double().flatten()
    wave = torch.arange(wide.numel(), dtype=torch.float64).cos()
    return {"norm": wide.norm().item(), "wave": wide.dot(wave).item()}


def record(directory: Path, name: str, case: dict[str, Any]) -> dict[str, Any]:
    is_qwen3 = "qwen3" in directory.name
    model = AutoModelForImageTextToText.from_pretrained(
        directory, dtype=case.get("dtype", torch.float32), attn_implementation="sdpa"
    )
    if case.get("frozen"):
        model.model.visual.requires_grad_(False)
    inputs = inputs_of(case, is_qwen3)
    file = f"{directory.name}-{case.get('inputs', name)}.safetensors"
    save_file(inputs, HERE / file)
    labels = inputs.pop("labels")
    logits = model(**inputs, use_cache=False).logits.float()
    counted = labels.masked_fill(inputs["attention_mask"] == 0, -100)
    loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), counted.reshape(-1))
    loss.backward()
    positions = [[b, t] for b in range(len(labels)) for t in (12, 13, 27, LENGTH - 1)]
    return {
        "name": name,
        "inputs": file,
        "positions": positions,
        "first_8": [logits[b, t, :8].tolist() for b, t in positions],
        "loss": loss.item(),
        "gradients": {
            stored_name(n, is_qwen3): digest(p.grad)
            for n, p in model.named_parameters()
            if p.grad is not None
        },
    }


def main() -> None:
    torch.set_num_threads(1)
    for model, content in MODELS.items():
        directory = write_model(model, content)
        records = [record(directory, name, case) for name, case in CASES.items()]
        lines = ",\n".join(json.dumps(r) for r in records)
        (HERE / f"{model}.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
