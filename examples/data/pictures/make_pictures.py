#!/usr/bin/env python3
"""Write the pictures of this folder, and records that ask for their colours and shapes.

    python examples/data/pictures/make_pictures.py

With numpy and safetensors. Each picture is 16 x 16 pixels in patches of 4 x 4, laid out as
transformers' processors of Qwen2.5-VL lay them out: what
`processor.image_processor(images=[...])` returns goes to `save_file` as it is.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

HERE = Path(__file__).resolve().parent
SIDE, PATCH, MERGE, FRAMES = 16, 4, 2, 2
COLOURS = {"red": (1, 0, 0), "green": (0, 1, 0), "blue": (0, 0, 1)}
SHAPES = ("square", "disc")


def picture(colour: tuple[int, ...], shape: str) -> np.ndarray:
    """[3, SIDE, SIDE] from -1 to 1, on black."""
    rows, columns = np.mgrid[0:SIDE, 0:SIDE] - (SIDE - 1) / 2
    inside = (
        np.maximum(abs(rows), abs(columns)) < 5
        if shape == "square"
        else np.hypot(rows, columns) < 6
    )
    return np.array(colour)[:, None, None] * inside * 2.0 - 1.0


def patches(pixels: np.ndarray) -> np.ndarray:
    """[patches, 3 * FRAMES * PATCH * PATCH], square by square of MERGE x MERGE patches."""
    frames = np.stack([pixels] * FRAMES)
    grid = SIDE // PATCH
    parts = frames.reshape(FRAMES, 3, grid // MERGE, MERGE, PATCH, grid // MERGE, MERGE, PATCH)
    return parts.transpose(2, 5, 3, 6, 1, 0, 4, 7).reshape(grid * grid, -1)


def main() -> None:
    grid = np.array([[1, SIDE // PATCH, SIDE // PATCH]], dtype=np.int64)
    lines = []
    for name, colour in COLOURS.items():
        for shape in SHAPES:
            file = f"{name}-{shape}.safetensors"
            values = patches(picture(colour, shape)).astype(np.float16)
            save_file({"pixel_values": values, "image_grid_thw": grid}, HERE / file)
            for question, answer in (("Which colour?", name), ("Which shape?", shape)):
                chat = [
                    {"role": "user", "content": f"<image>{question}"},
                    {"role": "assistant", "content": answer},
                ]
                lines.append(json.dumps({"messages": chat, "images": [file]}))
    (HERE / "records.jsonl").write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    main()
