#!/usr/bin/env python3
"""Write small image files, and what Pillow and transformers make of them.

    python tests/core/images/make_images.py

With bench/python/requirements.txt, torchvision==0.26.0 and pillow==12.0.0.
"""

from __future__ import annotations

import json
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from safetensors.numpy import save_file
from transformers import Qwen2VLImageProcessorFast, Qwen2VLVideoProcessor, Qwen3VLVideoProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize
from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as resize_frames

GOLDEN = Path(__file__).resolve().parent / "golden"

# As the published models' but for smaller patches.
PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2_5": {
        "min_pixels": 256,
        "max_pixels": 1600,
        "patch_size": 4,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711],
    },
    "qwen3": {
        "size": {"longest_edge": 2304, "shortest_edge": 1024},
        "patch_size": 6,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "image_mean": [0.5, 0.5, 0.5],
        "image_std": [0.5, 0.5, 0.5],
    },
}

# Qwen3-VL's sizes count the pixels of all frames together.
VIDEO_PROCESSORS: dict[str, dict[str, Any]] = {
    "qwen2_5": PROCESSORS["qwen2_5"],
    "qwen3": PROCESSORS["qwen3"] | {"size": {"longest_edge": 9216, "shortest_edge": 1024}},
}
FRAMES = {"even": [0, 1, 2, 3], "odd": [0, 1, 2, 3, 4]}


def picture(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Waves, an edge and some noise."""
    rows, columns = np.mgrid[0:height, 0:width]
    waves = [np.sin(rows / (3 + i)) + np.cos(columns / (4 + 2 * i)) for i in range(channels)]
    image = np.stack(waves, axis=-1) * 60 + 128
    image[height // 3 :, : width // 2] += 50
    noise = np.random.default_rng(height * 1000 + width).normal(0, 12, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8)


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(header: tuple[int, ...], rows: bytes) -> bytes:
    """What Pillow does not write itself: 16 bits a sample, and interlaced."""
    start = chunk(b"IHDR", struct.pack(">IIBBBBB", *header))
    return b"\x89PNG\r\n\x1a\n" + start + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def interlaced(image: np.ndarray) -> bytes:
    passes = [
        (0, 0, 8, 8),
        (0, 4, 8, 8),
        (4, 0, 8, 4),
        (0, 2, 4, 4),
        (2, 0, 4, 2),
        (0, 1, 2, 2),
        (1, 0, 2, 1),
    ]
    rows = b"".join(
        b"\0" + row.tobytes()
        for top, left, down, right in passes
        for row in image[top::down, left::right]
        if row.size
    )
    height, width = image.shape[:2]
    return png((width, height, 8, 2, 0, 0, 1), rows)


def write_files() -> None:
    Image.fromarray(picture(37, 61)).save(GOLDEN / "rgb.png")
    Image.fromarray(picture(30, 20, 4), "RGBA").save(GOLDEN / "alpha.png")
    grey = Image.fromarray(picture(19, 33, 1)[..., 0])
    grey.save(GOLDEN / "grey.png")
    grey.convert("1").save(GOLDEN / "black-and-white.png")
    Image.fromarray(picture(26, 24)).quantize(13).save(GOLDEN / "palette.png")
    clear = Image.fromarray(picture(16, 18)).quantize(16)
    clear.save(GOLDEN / "transparent-palette.png", transparency=3)
    deep = picture(9, 14).astype(np.uint16) * 257 + 100
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in deep)
    (GOLDEN / "sixteen-bits.png").write_bytes(png((14, 9, 16, 2, 0, 0, 0), rows))
    text = b"Comment\0\0" + zlib.compress(b"a" * 7_000_000, 9)
    whole = png((1, 1, 8, 0, 0, 0, 0), b"\0\0")
    (GOLDEN / "long-text.png").write_bytes(whole[:33] + chunk(b"zTXt", text) + whole[33:])
    (GOLDEN / "interlaced.png").write_bytes(interlaced(picture(21, 27)))
    photo = Image.fromarray(picture(45, 70))
    photo.save(GOLDEN / "photo.jpg", quality=80)
    photo.save(GOLDEN / "full-colour.jpg", quality=92, subsampling=0)
    photo.save(GOLDEN / "half-colour.jpg", quality=85, subsampling=1)
    photo.save(GOLDEN / "progressive.jpg", quality=80, progressive=True)
    photo.save(GOLDEN / "restarts.jpg", quality=75, restart_marker_blocks=3)
    grey.save(GOLDEN / "grey.jpg")
    photo.convert("CMYK").save(GOLDEN / "cmyk.jpg")
    small = Image.fromarray(picture(11, 17))
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[0x0112] = orientation
        small.save(GOLDEN / f"turned-{orientation}.jpg", exif=exif, quality=90, subsampling=0)


def opened(path: Path) -> Image.Image:
    """As transformers' load_image opens it."""
    return ImageOps.exif_transpose(Image.open(path)).convert("RGB")


def write_pixels() -> None:
    refused = ("cmyk", "long-text")  # the former by us, the latter by Pillow
    images = (p for p in GOLDEN.iterdir() if p.suffix in (".png", ".jpg"))
    paths = sorted(p for p in images if p.stem not in refused and not p.stem.startswith("frame-"))
    save_file({path.name: np.array(opened(path)) for path in paths}, GOLDEN / "pixels.safetensors")


def write_patches() -> None:
    values: dict[str, np.ndarray] = {}
    for name, config in PROCESSORS.items():
        folder = GOLDEN / name
        folder.mkdir(exist_ok=True)
        (folder / "preprocessor_config.json").write_text(json.dumps(config))
        processor = Qwen2VLImageProcessorFast(**config)
        for file in ("rgb.png", "photo.jpg", "sixteen-bits.png", "turned-6.jpg"):
            made = processor(images=[opened(GOLDEN / file)], return_tensors="pt")
            values[f"{name}/{file}"] = made["pixel_values"].numpy()
            values[f"{name}/{file}/grid"] = made["image_grid_thw"].numpy()
    save_file(values, GOLDEN / "patches.safetensors")


def write_frames() -> None:
    """Five frames, on which something moves."""
    for frame in range(5):
        image = picture(33, 47)
        image[5:15, 4 + 7 * frame : 14 + 7 * frame] = 40 * frame
        Image.fromarray(image).save(GOLDEN / f"frame-{frame}.png")


def write_videos() -> None:
    values: dict[str, np.ndarray] = {}
    for name, config in VIDEO_PROCESSORS.items():
        path = GOLDEN / name / "video_preprocessor_config.json"
        path.write_text(json.dumps(config))
        kind = Qwen2VLVideoProcessor if name == "qwen2_5" else Qwen3VLVideoProcessor
        # A copy: the processor changes what it is given.
        processor = kind(**json.loads(path.read_text()))
        for key, frames in FRAMES.items():
            video = np.stack([np.array(opened(GOLDEN / f"frame-{i}.png")) for i in frames])
            made = processor(videos=[video], do_sample_frames=False, return_tensors="pt")
            values[f"{name}/{key}"] = made["pixel_values_videos"].numpy()
            values[f"{name}/{key}/grid"] = made["video_grid_thw"].numpy()
    save_file(values, GOLDEN / "videos.safetensors")


def write_video_sizes() -> None:
    pick = random.Random(6)
    lines = []
    for _ in range(300):
        factor, least = pick.choice([28, 32]), pick.choice([4096, 131072, 5000000])
        most = pick.choice([786432, 25165824, 6000000])
        frames = pick.randrange(2, 100)
        height = pick.choice([pick.randrange(32, 3000), 16 * pick.randrange(2, 100)])
        width = max(height // 200 + 32, min(height * 200, pick.randrange(32, 3000)))
        size = resize_frames(frames, height, width, 2, factor, least, most)
        lines.append(json.dumps([factor, least, most, frames, height, width, *size]))
    (GOLDEN / "video-sizes.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def write_times() -> None:
    """What Qwen3VLProcessor writes before the frames."""
    pick = random.Random(7)
    lines = []
    for _ in range(100):
        count = pick.randrange(2, 30)
        rate = pick.choice([1, 2, 0.5, 24, 29.97, 30, pick.uniform(0.1, 60)])
        times = Qwen3VLProcessor._calculate_timestamps(None, list(range(count)), rate, 2)
        lines.append(json.dumps([count, rate, [f"<{time:.1f} seconds>" for time in times]]))
    (GOLDEN / "times.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def write_sizes() -> None:
    pick = random.Random(5)
    lines = []
    for _ in range(300):
        factor, least = pick.choice([28, 32]), pick.choice([3136, 65536])
        most = pick.choice([12845056, 1003520, 16777216, 200704])
        height = pick.choice([pick.randrange(1, 5000), 14 * pick.randrange(1, 200)])
        width = max(height // 200 + 1, min(height * 200, pick.randrange(1, 5000)))
        size = smart_resize(height, width, factor, least, most)
        lines.append(json.dumps([factor, least, most, height, width, *size]))
    (GOLDEN / "sizes.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main() -> None:
    torch.set_num_threads(1)
    GOLDEN.mkdir(exist_ok=True)
    write_files()
    write_pixels()
    write_patches()
    write_sizes()
    write_frames()
    write_videos()
    write_video_sizes()
    write_times()


if __name__ == "__main__":
    main()
