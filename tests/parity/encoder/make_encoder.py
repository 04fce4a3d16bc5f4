#!/usr/bin/env python3
"""Write encoder.json: what PyTorch's nn.TransformerEncoder, between embeddings and a head, makes of tokens.

    python tests/parity/encoder/make_encoder.py      (with bench/python/requirements.txt)

Three configurations, without dropout. For each, logits, the loss of some places and the norms of its gradients,
in float32 and in bfloat16. Weights follow from their names alone (`value_of`), so that no file has them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

HERE = Path(__file__).resolve().parent
ROWS, LENGTH = 4, 24
POSITIONS = [[0, 0], [0, 13], [1, 20], [2, 5], [3, 23]]
PLACES = range(1, 12, 2)  # whose tokens are told
LENGTHS = [24, 15, 19, 13]  # of padded rows
CUTS = [9, 14, 5, 20]  # where the second of two sequences in a row begins


def config(**changes: Any) -> dict[str, Any]:
    return {
        "architectures": ["EncoderForMaskedLM"],
        "model_type": "encoder",
        "vocab_size": 96,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "hidden_act": "gelu",
        "max_position_embeddings": 40,
        "layer_norm_eps": 1e-5,
        "dropout": 0.0,
        "tie_word_embeddings": True,
        "mask_token_id": 95,
    } | changes


CONFIGS = {
    "gelu": config(),
    # Nothing but the heads divides the width.
    "relu-padded": config(
        vocab_size=91, hidden_size=54, intermediate_size=75, num_hidden_layers=3, num_attention_heads=3,
        hidden_act="relu", layer_norm_eps=1e-3, tie_word_embeddings=False, mask_token_id=0,
    ),
    "gelu-packed": config(
        hidden_size=48, intermediate_size=192, num_hidden_layers=1, num_attention_heads=6, max_position_embeddings=24
    ),
}  # fmt: skip


class Body(nn.TransformerEncoder):
    """The encoder, with its embeddings beside its layers."""

    def __init__(self, config: dict[str, Any]) -> None:
        layer = nn.TransformerEncoderLayer(
            config["hidden_size"],
            config["num_attention_heads"],
            config["intermediate_size"],
            config["dropout"],
            config["hidden_act"],
            config["layer_norm_eps"],
            batch_first=True,
            norm_first=False,
        )
        super().__init__(layer, config["num_hidden_layers"], enable_nested_tensor=False)
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.embed_positions = nn.Embedding(
            config["max_position_embeddings"], config["hidden_size"]
        )

    def forward(self, tokens, positions, mask=None, padding=None):  # type: ignore[override]
        x = self.embed_tokens(tokens) + self.embed_positions(positions)
        return super().forward(x, mask=mask, src_key_padding_mask=padding)


class Encoder(nn.Module):
    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        self.encoder = Body(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.encoder.embed_tokens.weight

    def forward(self, tokens, positions=None, mask=None, padding=None):
        positions = torch.arange(tokens.shape[1]) if positions is None else positions
        return self.lm_head(self.encoder(tokens, positions, mask, padding))


def value_of(name: str, shape: torch.Size) -> torch.Tensor:
    index = torch.arange(shape.numel(), dtype=torch.float64)
    waves = torch.sin(index * index * 0.37 + sum(name.encode()))
    is_norm = ".norm" in name and name.endswith("weight")
    return (1 + 0.2 * waves if is_norm else 0.15 * waves).float().view(shape)


def make_model(config: dict[str, Any]) -> Encoder:
    model = Encoder(config).train()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(value_of(name, parameter.shape))
    return model


def batch_of(name: str, vocabulary: int) -> dict[str, torch.Tensor]:
    index = torch.arange(ROWS * LENGTH)
    batch = {"tokens": ((index * index * 31 + index * 7) % vocabulary).view(ROWS, LENGTH)}
    told = torch.zeros(LENGTH, dtype=torch.bool)
    told[list(PLACES)] = True
    targets = ((index * 17 + 3) % vocabulary).view(ROWS, LENGTH)
    batch["targets"] = torch.where(told, targets, -100)
    if name.endswith("padded"):
        batch["is_token"] = (torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]).long()
    if name.endswith("packed"):
        batch["cuts"] = torch.tensor(CUTS)
    return batch


def logits_of(model: Encoder, batch: dict[str, torch.Tensor]) -> torch.Tensor:
    tokens = batch["tokens"]
    if "is_token" in batch:
        return model(tokens, padding=batch["is_token"] == 0)
    if "cuts" not in batch:
        return model(tokens)
    place = torch.arange(LENGTH)
    rows = []
    for row, cut in zip(tokens, batch["cuts"], strict=True):
        is_second = place >= cut
        unseen = is_second[:, None] != is_second[None, :]
        rows.append(model(row[None], torch.where(is_second, place - cut, place), mask=unseen))
    return torch.cat(rows)


def numbers_of(model: Encoder, batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    model.zero_grad()
    logits = logits_of(model, batch)
    loss = F.cross_entropy(logits.float().flatten(0, 1), batch["targets"].flatten())
    loss.backward()
    return {
        "first_8": [logits[row, at, :8].tolist() for row, at in POSITIONS],
        "loss": loss.item(),
        "grad_norms": {n: p.grad.double().norm().item() for n, p in model.named_parameters()},
    }


def record(name: str, config: dict[str, Any]) -> dict[str, Any]:
    batch = batch_of(name, config["vocab_size"])
    model = make_model(config)
    return {
        "name": name,
        "config": config,
        "batch": {key: value.tolist() for key, value in batch.items()},
        "positions": POSITIONS,
        "fp32": numbers_of(model, batch),
        "bf16": numbers_of(model.bfloat16(), batch),
    }


def main() -> None:
    torch.set_num_threads(1)
    records = ",\n".join(json.dumps(record(name, config)) for name, config in CONFIGS.items())
    (HERE / "encoder.json").write_text(f"[\n{records}\n]\n")


if __name__ == "__main__":
    main()
