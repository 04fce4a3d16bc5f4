#!/usr/bin/env python3
"""Write seeded Hugging Face style model directories and token files.

    make_model.py model  --preset tiny-llama --out DIR      config.json + model.safetensors
    make_model.py tokens --vocab 384 --count 1928 --out F   flat little-endian token file
    make_model.py list                                      the preset names

The weights depend on the seed, the tensor's name and its shape only (each tensor has a generator
of its own), so neither the order of the tensors nor the library's own initialisation matters.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from pathlib import Path

import numpy as np
import torch
from model_presets import PRESETS, ConfigDict
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
DTYPE_NAMES: dict[str, str] = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}

# --------------------------------------------------------------------------------- models


def seeded_tensor(
    name: str, shape: torch.Size, seed: int, device: str = "cpu", norm_center: float = 1.0
) -> torch.Tensor:
    """The initial value of one tensor, from its name, shape, the seed and the type of `device`.

    Matrices are normal with std 1/sqrt(last dimension), so that tiny models have logits and
    attention scores of order one. Norm weights are norm_center + 0.1 n (norm_center is 0 where
    the model adds 1) and biases 0.05 n (n standard normal), so that a norm weight or a bias put in
    the wrong place shows.
    """
    # The CPU generator uses the low 32 bits of a seed only: hash seed and name into those.
    generator = torch.Generator(device).manual_seed(zlib.crc32(f"{seed}:{name}".encode()))
    values = torch.randn(shape, generator=generator, dtype=torch.float32, device=device)
    if len(shape) >= 2:
        return values.mul_(shape[-1] ** -0.5)
    if name.endswith(".bias"):
        return values.mul_(0.05)
    return values.mul_(0.1).add_(norm_center)


def tensor_shapes(config_dir: Path) -> dict[str, torch.Size]:
    """Name -> shape of every tensor that the checkpoint holds (a tied lm_head is left out)."""
    config = AutoConfig.from_pretrained(config_dir)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        shapes.pop("lm_head.weight", None)
    return shapes


def split_by_size(sizes: dict[str, int], max_bytes: int) -> list[list[str]]:
    """Names in order, cut into consecutive groups of at most max_bytes (at least one name each)."""
    groups: list[list[str]] = []
    used = 0
    for name, size in sizes.items():
        if not groups or used + size > max_bytes:
            groups.append([])
            used = 0
        groups[-1].append(name)
        used += size
    return groups


def write_model(
    config: ConfigDict,
    out_dir: Path,
    seed: int = 0,
    dtype: str = "fp32",
    max_shard_bytes: int | None = None,
    device: str = "cpu",
) -> int:
    """Write config.json and the weights, drawn on `device`; returns the number of parameters."""
    out_dir.mkdir(parents=True, exist_ok=True)
    content = config | {"torch_dtype": DTYPE_NAMES[dtype]}
    (out_dir / "config.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n")
    shapes = tensor_shapes(out_dir)
    element_bytes = DTYPES[dtype].itemsize
    norm_center = 0.0 if config["model_type"].startswith("gemma") else 1.0
    sizes = {name: shape.numel() * element_bytes for name, shape in shapes.items()}

    def tensors(names: list[str]) -> dict[str, torch.Tensor]:
        return {
            n: seeded_tensor(n, shapes[n], seed, device, norm_center).to(DTYPES[dtype]).cpu()
            for n in names
        }

    metadata = {"format": "pt"}
    if max_shard_bytes is None:
        save_file(tensors(list(shapes)), out_dir / "model.safetensors", metadata=metadata)
    else:
        groups = split_by_size(sizes, max_shard_bytes)
        weight_map: dict[str, str] = {}
        for index, names in enumerate(groups, start=1):
            file_name = f"model-{index:05d}-of-{len(groups):05d}.safetensors"
            save_file(tensors(names), out_dir / file_name, metadata=metadata)
            weight_map |= dict.fromkeys(names, file_name)
        index_content = {
            "metadata": {"total_size": sum(sizes.values())},
            "weight_map": dict(sorted(weight_map.items())),
        }
        index_path = out_dir / "model.safetensors.index.json"
        index_path.write_text(json.dumps(index_content, indent=2) + "\n")
    return sum(shape.numel() for shape in shapes.values())


# --------------------------------------------------------------------------------- tokens


def uniforms(seed: int, stream: int, count: int) -> np.ndarray:
    """`count` doubles in [0, 1): splitmix64 over a counter, the same on every platform."""
    with np.errstate(over="ignore"):
        start = np.uint64(seed) * np.uint64(0xD1342543DE82EF95) + np.uint64(stream) * np.uint64(
            0xA0761D6478BD642F
        )
        z = start + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def markov_tokens(vocab: int, count: int, seed: int) -> np.ndarray:
    """A first-order Markov chain over [0, vocab) that a model can learn.

    Each token has three preferred successors (taken with 0.55, 0.2, 0.1); otherwise, and for the
    choice of the successors, a token is drawn from a Zipf-like law (weight 1/(rank + 3)). The low
    ids are thus frequent: the loss falls within a few steps.
    """
    weights = 1.0 / (np.arange(vocab, dtype=np.float64) + 3.0)
    cumulative = np.cumsum(weights / weights.sum())

    def zipf(stream: int, n: int) -> np.ndarray:
        drawn = np.searchsorted(cumulative, uniforms(seed, stream, n), side="right")
        return np.minimum(drawn, vocab - 1)

    successors = zipf(1, vocab * 3).reshape(vocab, 3).tolist()
    fallback = zipf(2, count).tolist()
    choice = uniforms(seed, 3, count).tolist()
    out = np.empty(count, dtype=np.int64)
    state = fallback[0] if count else 0
    for i in range(count):
        u = choice[i]
        if u < 0.55:
            state = successors[state][0]
        elif u < 0.75:
            state = successors[state][1]
        elif u < 0.85:
            state = successors[state][2]
        else:
            state = fallback[i]
        out[i] = state
    return out


def token_dtype(vocab: int) -> np.dtype:
    """Element type of a token file: uint16 up to a vocabulary of 65536, else uint32."""
    return np.dtype("<u2") if vocab <= 65536 else np.dtype("<u4")


def write_tokens(path: Path, vocab: int, count: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    markov_tokens(vocab, count, seed).astype(token_dtype(vocab)).tofile(path)


# --------------------------------------------------------------------------------- command line


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)

    model = commands.add_parser("model", help="write config.json and safetensors")
    source = model.add_mutually_exclusive_group(required=True)
    source.add_argument("--preset", choices=sorted(PRESETS))
    source.add_argument(
        "--config-json", type=Path, help="a config.json to take instead of a preset"
    )
    model.add_argument("--out", type=Path, required=True)
    model.add_argument("--seed", type=int, default=0)
    model.add_argument("--dtype", choices=sorted(DTYPES), default="fp32")
    model.add_argument("--device", default="cpu", help="device to draw the weights on")
    model.add_argument(
        "--max-shard-bytes", type=int, help="write sharded safetensors with an index file"
    )

    tokens = commands.add_parser("tokens", help="write a token file")
    tokens.add_argument("--vocab", type=int, required=True)
    tokens.add_argument("--count", type=int, required=True)
    tokens.add_argument("--seed", type=int, default=0)
    tokens.add_argument("--out", type=Path, required=True)

    commands.add_parser("list", help="print the preset names")

    args = parser.parse_args(argv)
    if args.command == "list":
        print("\n".join(PRESETS))
    elif args.command == "model":
        config = PRESETS[args.preset] if args.preset else json.loads(args.config_json.read_text())
        count = write_model(
            config, args.out, args.seed, args.dtype, args.max_shard_bytes, args.device
        )
        print(json.dumps({"out": str(args.out), "parameters": count}))
    else:
        write_tokens(args.out, args.vocab, args.count, args.seed)
        print(json.dumps({"out": str(args.out), "tokens": args.count}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
