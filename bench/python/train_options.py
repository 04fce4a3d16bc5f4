"""The options of a run of train_fsdp2.py."""

from __future__ import annotations

import argparse
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

import torch

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}


def option(default: Any, help_text: str, choices: list[str] | None = None) -> Any:
    """A dataclass field that is also a command-line option."""
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass
class TrainConfig:
    """Every option of a run; the command line is made from these fields."""

    model: str = field(
        metadata={"help": "directory with config.json and safetensors", "choices": None}
    )
    tokens: str = field(metadata={"help": "flat little-endian token file", "choices": None})
    steps: int = option(10, "total number of steps (also the length of the schedule)")
    stop_step: int = option(0, "stop before this step (0: run to --steps)")
    seq_len: int = option(32, "tokens a window feeds to the model")
    global_batch: int = option(8, "windows a step, over all ranks and micro steps")
    grad_accum: int = option(1, "micro steps a step")
    accum_sync: str = option(
        "every", "reduce gradients at every micro step or at the last", ["every", "last"]
    )
    fsdp_size: int = option(
        0, "ranks a shard group; 0: all (FSDP), less: replicate the rest (HSDP)"
    )
    reshard_after_forward: str = option(
        "default", "default (layers yes, root no), true, false, or a group size"
    )
    dtype: str = option("fp32", "dtype of the sharded parameters", list(DTYPES))
    param_dtype: str = option("none", "compute dtype (MixedPrecisionPolicy)", ["none", *DTYPES])
    reduce_dtype: str = option("none", "gradient reduction dtype", ["none", *DTYPES])
    attn: str = option("sdpa", "attention implementation", ["sdpa", "eager"])
    activation_checkpointing: bool = option(False, "recompute each decoder layer in backward")
    cpu_offload: bool = option(False, "keep parameters, gradients and optimizer state on the CPU")
    optimizer: str = option("adamw", "optimizer", ["adamw", "adam", "sgd"])
    optimizer_impl: str = option(
        "default", "torch.optim variant", ["default", "foreach", "fused", "forloop"]
    )
    lr: float = option(3e-3, "peak learning rate")
    beta1: float = option(0.9, "AdamW and Adam beta1")
    beta2: float = option(0.95, "AdamW and Adam beta2")
    eps: float = option(1e-8, "AdamW and Adam epsilon")
    momentum: float = option(0.9, "SGD momentum")
    weight_decay: float = option(0.1, "weight decay, applied to every parameter")
    clip: float = option(0.0, "clip the global gradient norm to this (0: off)")
    warmup: int = option(0, "linear warm-up steps")
    lr_schedule: str = option(
        "constant", "schedule after the warm-up", ["constant", "linear", "cosine"]
    )
    min_lr_ratio: float = option(0.0, "final learning rate as a part of --lr")
    save_dir: str = option("", "write a DCP checkpoint (model, optimizer, step) here at the end")
    resume: str = option("", "load a DCP checkpoint from here first")
    full_state_dict: str = option("", "write the full weights: FILE.pth or FILE.safetensors")
    matmul_precision: str = option(
        "highest",
        "float32 matmul precision; on some CPUs medium is faster at fp32 accuracy",
        ["highest", "high", "medium"],
    )
    device: str = option(
        "auto", "auto (CUDA if there is any), cpu or cuda", ["auto", "cpu", "cuda"]
    )
    exact_grad_norm: bool = option(False, "also emit grad_norm_fp64, accumulated in double")
    plain: bool = option(False, "no FSDP at all (one rank only); a cross-check")
    fsdp1: bool = option(False, "FullyShardedDataParallel, FSDP2's predecessor, in its place")
    compile: bool = option(False, "torch.compile each decoder layer, and the loss")


def parse_config(argv: list[str] | None = None) -> TrainConfig:
    parser = argparse.ArgumentParser(
        description="Train with PyTorch FSDP2.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    for spec in fields(TrainConfig):
        flag = "--" + spec.name.replace("_", "-")
        if spec.default is MISSING:
            parser.add_argument(flag, required=True, help=spec.metadata["help"])
        elif isinstance(spec.default, bool):
            parser.add_argument(flag, action="store_true", help=spec.metadata["help"])
        else:
            parser.add_argument(
                flag,
                type=type(spec.default),
                default=spec.default,
                choices=spec.metadata["choices"],
                help=spec.metadata["help"],
            )
    return TrainConfig(**vars(parser.parse_args(argv)))
