"""A Hugging Face style decoder, sharded by FSDP2, with the values of its checkpoint."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    fully_shard,
)
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import DTensor
from train_options import DTYPES, TrainConfig
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextScaledWordEmbedding
from transformers.models.gpt2.modeling_gpt2 import GPT2Attention
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."


def moe_forward_all_experts(
    self: Qwen3MoeSparseMoeBlock | MixtralSparseMoeBlock, hidden_states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The forward of these blocks, but running the experts without tokens too.

    The library's version skips those, so their gradients are None. FSDP2 reduces only parameters
    that have a gradient on this rank: ranks that skip different experts would reduce buffers of
    different layouts. An expert run on zero rows has a zero gradient instead.
    """
    batch, length, hidden = hidden_states.shape
    rows = hidden_states.view(-1, hidden)
    router_logits = self.gate(rows)
    weights = F.softmax(router_logits, dim=1, dtype=torch.float)
    weights, selected = torch.topk(weights, self.top_k, dim=-1)
    if getattr(self, "norm_topk_prob", True):  # Mixtral always does
        weights = weights / weights.sum(dim=-1, keepdim=True)
    weights = weights.to(rows.dtype)
    out = torch.zeros_like(rows)
    mask = F.one_hot(selected, num_classes=self.num_experts).permute(2, 1, 0)
    for index, expert in enumerate(self.experts):
        slot, token = torch.where(mask[index])
        expert_out = expert(rows[token]) * weights[token, slot, None]
        out.index_add_(0, token, expert_out.to(rows.dtype))
    return out.reshape(batch, length, hidden), router_logits


def parameter_name(name: str) -> str:
    """The checkpoint's name of a parameter (without the activation checkpointing wrapper)."""
    return name.replace(CHECKPOINT_PREFIX, "")


class CheckpointReader:
    """Reads rows of named tensors from model.safetensors or its sharded form."""

    def __init__(self, directory: str) -> None:
        root = Path(directory)
        index = root / "model.safetensors.index.json"
        names = ["model.safetensors"]
        if index.exists():
            names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        self.slices: dict[str, Any] = {}
        self._stack = contextlib.ExitStack()
        for name in names:
            handle = self._stack.enter_context(safe_open(root / name, framework="pt"))
            self.slices |= {key: handle.get_slice(key) for key in handle.keys()}  # noqa: SIM118

    def rows(self, name: str, start: int, stop: int) -> torch.Tensor:
        return self.slices[name][start:stop]

    def close(self) -> None:
        self._stack.close()


@torch.no_grad()
def load_weights(model: nn.Module, directory: str, tied: bool) -> None:
    """Copy the checkpoint into the (sharded) parameters; each rank reads only its own rows.

    FSDP2 shards dimension 0 like torch.chunk: rank r of n holds rows [r*c, (r+1)*c) with
    c = ceil(rows / n), cut at the end, so that the last ranks may hold fewer rows or none.
    """
    reader = CheckpointReader(directory)
    for raw_name, parameter in model.named_parameters():
        name = parameter_name(raw_name)
        if tied and name not in reader.slices and name == "lm_head.weight":
            name = "model.embed_tokens.weight"
        total = parameter.shape[0]
        start, stop = 0, total
        local: torch.Tensor = parameter
        if isinstance(parameter, DTensor):
            mesh = parameter.device_mesh
            shard_dim = mesh.ndim - 1  # the mesh is (shard) or (replicate, shard)
            ranks, rank = mesh.size(shard_dim), mesh.get_local_rank(shard_dim)
            chunk = -(-total // ranks)
            start, stop = min(rank * chunk, total), min((rank + 1) * chunk, total)
            local = parameter.to_local()
        if stop > start:
            local.copy_(reader.rows(name, start, stop))
    reader.close()


def decoder_layers(model: nn.Module) -> nn.ModuleList:
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def reset_buffers(model: nn.Module, device: torch.device) -> None:
    """Recompute what a model built on meta lacks: rotary tables, causal masks, Gemma 3's scale."""
    for module in model.modules():
        if isinstance(module, GPT2Attention) and hasattr(module, "bias"):  # not in transformers 5
            module.bias = torch.ones(module.bias.shape, dtype=torch.bool, device=device).tril()
        if hasattr(module, "inv_freq") and hasattr(module, "config"):
            with device:
                fresh = type(module)(config=module.config)
            module.inv_freq = fresh.inv_freq
            module.original_inv_freq = fresh.inv_freq
        if isinstance(module, Gemma3TextScaledWordEmbedding):
            module.embed_scale = torch.tensor(module.embedding_dim**0.5, device=device)


def wrap_by_fsdp1(cfg: TrainConfig, model: nn.Module, device: torch.device) -> nn.Module:
    """FSDP2's predecessor around the same units."""
    precision = None
    if cfg.param_dtype != "none" or cfg.reduce_dtype != "none":
        precision = MixedPrecision(
            param_dtype=DTYPES.get(cfg.param_dtype), reduce_dtype=DTYPES.get(cfg.reduce_dtype)
        )
    kinds = {type(layer) for layer in decoder_layers(model)}
    return FullyShardedDataParallel(
        model,
        auto_wrap_policy=ModuleWrapPolicy(kinds),
        mixed_precision=precision,
        device_id=device,
        use_orig_params=True,
    )


def build_model(cfg: TrainConfig, mesh: DeviceMesh | None, device: torch.device) -> nn.Module:
    """Build on meta, wrap, compile, shard, then materialise and load the shards."""
    config = AutoConfig.from_pretrained(cfg.model)
    for block in (Qwen3MoeSparseMoeBlock, MixtralSparseMoeBlock):
        setattr(block, "forward", moe_forward_all_experts)  # noqa: B010
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=cfg.attn, dtype=DTYPES[cfg.dtype]
        )
    layers = decoder_layers(model)
    if cfg.activation_checkpointing:
        for index, layer in enumerate(layers):
            layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False)
    if cfg.compile:
        for layer in layers:
            layer.compile()
    if mesh is not None and not cfg.fsdp1:
        options: dict[str, Any] = {"mesh": mesh}
        if cfg.reshard_after_forward != "default":
            text = cfg.reshard_after_forward
            named = {"true": True, "false": False}
            options["reshard_after_forward"] = named[text] if text in named else int(text)
        if cfg.param_dtype != "none" or cfg.reduce_dtype != "none":
            options["mp_policy"] = MixedPrecisionPolicy(
                param_dtype=DTYPES.get(cfg.param_dtype), reduce_dtype=DTYPES.get(cfg.reduce_dtype)
            )
        if cfg.cpu_offload:
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=device.type == "cuda")
        for layer in layers:
            fully_shard(layer, **options)
        fully_shard(model, **options)
    model.to_empty(device=torch.device("cpu") if cfg.cpu_offload else device)
    model.tie_weights()  # to_empty made two parameters of a shared one
    reset_buffers(model, device)
    load_weights(model, cfg.model, config.tie_word_embeddings)
    if cfg.fsdp1:
        model = wrap_by_fsdp1(cfg, model, device)
    return model.train()
