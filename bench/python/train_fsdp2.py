#!/usr/bin/env python3
"""Train a Hugging Face style decoder with PyTorch's FSDP2; the reference program.

    torchrun --standalone --nproc-per-node 2 train_fsdp2.py --model DIR --tokens F --steps 10

Rank 0 prints one JSON line a step and a summary line at the end (see README.md for the fields,
the batch order, the loss, the schedule and the sharding rule).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

DTYPES: dict[str, torch.dtype] = {
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}
CHECKPOINT_PREFIX = "_checkpoint_wrapped_module."

Emit = Callable[[dict[str, Any]], None]


# --------------------------------------------------------------------------------- options


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
    optimizer: str = option("adamw", "optimizer", ["adamw", "sgd"])
    optimizer_impl: str = option(
        "default", "torch.optim variant", ["default", "foreach", "fused", "forloop"]
    )
    lr: float = option(3e-3, "peak learning rate")
    beta1: float = option(0.9, "AdamW beta1")
    beta2: float = option(0.95, "AdamW beta2")
    eps: float = option(1e-8, "AdamW epsilon")
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


# --------------------------------------------------------------------------------- data


class TokenWindows:
    """The token file cut into windows of seq_len + 1 tokens that overlap by one.

    Window w is tokens[w*S : w*S + S + 1]; there are (count - 1) // S of them.
    """

    def __init__(self, path: str, vocab_size: int, seq_len: int) -> None:
        dtype = np.dtype("<u2") if vocab_size <= 65536 else np.dtype("<u4")
        self.tokens = np.memmap(path, dtype=dtype, mode="r")
        self.seq_len = seq_len
        self.count = (len(self.tokens) - 1) // seq_len
        if self.count < 1:
            raise ValueError(f"{path} holds no window of {seq_len} + 1 tokens")

    def batch(self, windows: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """(inputs, labels), both [len(windows), seq_len], labels shifted by one."""
        s = self.seq_len
        rows = np.stack([self.tokens[w * s : w * s + s + 1] for w in windows]).astype(np.int64)
        data = torch.from_numpy(rows)
        return data[:, :-1].contiguous(), data[:, 1:].contiguous()


def micro_batch_windows(
    step: int, micro: int, rank: int, world: int, accum: int, global_batch: int, count: int
) -> list[int]:
    """The windows of one rank at one micro step: micro batch number micro*world + rank."""
    size = global_batch // (world * accum)
    first = step * global_batch + (micro * world + rank) * size
    return [(first + j) % count for j in range(size)]


def learning_rate(cfg: TrainConfig, step: int) -> float:
    """Learning rate of a step (0-based): linear warm-up, then the schedule down to the minimum."""
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    if cfg.lr_schedule == "constant":
        return cfg.lr
    progress = min(1.0, (step - cfg.warmup) / max(1, cfg.steps - cfg.warmup))
    low = cfg.lr * cfg.min_lr_ratio
    if cfg.lr_schedule == "linear":
        return low + (cfg.lr - low) * (1.0 - progress)
    return low + (cfg.lr - low) * 0.5 * (1.0 + math.cos(math.pi * progress))


# --------------------------------------------------------------------------------- model


def moe_forward_all_experts(
    self: Qwen3MoeSparseMoeBlock, hidden_states: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Qwen3MoeSparseMoeBlock.forward, but running the experts without tokens too.

    The library's version skips those, so their gradients are None. FSDP2 reduces only parameters
    that have a gradient on this rank: ranks that skip different experts would reduce buffers of
    different layouts. An expert run on zero rows has a zero gradient instead.
    """
    batch, length, hidden = hidden_states.shape
    rows = hidden_states.view(-1, hidden)
    router_logits = self.gate(rows)
    weights = F.softmax(router_logits, dim=1, dtype=torch.float)
    weights, selected = torch.topk(weights, self.top_k, dim=-1)
    if self.norm_topk_prob:
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


def reset_rotary_buffers(model: nn.Module, device: torch.device) -> None:
    """Recompute the non-persistent rotary tables, which a model built on meta lacks."""
    for module in model.modules():
        if hasattr(module, "inv_freq") and hasattr(module, "config"):
            fresh = type(module)(config=module.config, device=device)
            module.inv_freq = fresh.inv_freq
            module.original_inv_freq = fresh.inv_freq


def build_model(cfg: TrainConfig, mesh: DeviceMesh | None, device: torch.device) -> nn.Module:
    """Build on meta, wrap, shard, then materialise and load the shards."""
    config = AutoConfig.from_pretrained(cfg.model)
    setattr(Qwen3MoeSparseMoeBlock, "forward", moe_forward_all_experts)  # noqa: B010
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=cfg.attn, dtype=DTYPES[cfg.dtype]
        )
    layers = model.model.layers
    if cfg.activation_checkpointing:
        for index, layer in enumerate(layers):
            layers[index] = checkpoint_wrapper(layer, preserve_rng_state=False)
    if mesh is not None:
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
    reset_rotary_buffers(model, device)
    load_weights(model, cfg.model, config.tie_word_embeddings)
    return model.train()


def build_optimizer(cfg: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """One parameter group with every parameter."""
    variants: dict[str, dict[str, bool]] = {
        "default": {},
        "foreach": {"foreach": True},
        "fused": {"fused": True},
        "forloop": {"foreach": False},
    }
    variant = variants[cfg.optimizer_impl]
    if cfg.optimizer == "sgd":
        return torch.optim.SGD(
            model.parameters(),
            lr=cfg.lr,
            momentum=cfg.momentum,
            weight_decay=cfg.weight_decay,
            **variant,
        )
    return torch.optim.AdamW(
        model.parameters(),
        lr=cfg.lr,
        betas=(cfg.beta1, cfg.beta2),
        eps=cfg.eps,
        weight_decay=cfg.weight_decay,
        **variant,
    )


# --------------------------------------------------------------------------------- checkpoints


def save_checkpoint(
    directory: str, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    dcp.save(
        {"model": model_state, "optim": optimizer_state, "step": step}, checkpoint_id=directory
    )


def load_checkpoint(directory: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load a DCP checkpoint (from any world size); returns the step to go on with."""
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state: dict[str, Any] = {"model": model_state, "optim": optimizer_state, "step": 0}
    dcp.load(state, checkpoint_id=directory)
    set_state_dict(
        model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"]
    )
    return int(state["step"])


def save_full_state_dict(path: str, model: nn.Module, tied: bool) -> None:
    """Gather the full weights; rank 0 writes them by the checkpoint's names."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    state: dict[str, Any] = get_model_state_dict(model, options=options)
    if dist.get_rank() == 0:
        if path.endswith(".safetensors"):
            if tied:
                state.pop("lm_head.weight", None)
            save_file(
                {k: v.contiguous() for k, v in state.items()}, path, metadata={"format": "pt"}
            )
        else:
            torch.save(state, path)
    dist.barrier()


# --------------------------------------------------------------------------------- measuring


def status_bytes(key: str) -> int:
    """A memory figure of this process from /proc/self/status (VmRSS, VmHWM), in bytes."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    return 0


def full(value: torch.Tensor) -> torch.Tensor:
    return value.full_tensor() if isinstance(value, DTensor) else value


def gather(value: Any) -> list[Any]:
    """One Python value of each rank, on every rank."""
    values: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def memory_summary(device: torch.device, rss_before_model: int) -> dict[str, Any]:
    own: dict[str, int] = {
        "peak_rss_bytes": status_bytes("VmHWM"),
        "rss_before_model_bytes": rss_before_model,
    }
    if device.type == "cuda":
        own["cuda_peak_allocated_bytes"] = torch.cuda.max_memory_allocated(device)
        own["cuda_peak_reserved_bytes"] = torch.cuda.max_memory_reserved(device)
    every = gather(own)
    return {key: [rank[key] for rank in every] for key in own}


# --------------------------------------------------------------------------------- training


def make_mesh(cfg: TrainConfig, device: torch.device) -> DeviceMesh | None:
    """One dimension for FSDP, (replicate, shard) for HSDP; consecutive ranks form a shard group."""
    world = dist.get_world_size()
    shard = cfg.fsdp_size or world
    if cfg.plain:
        if world != 1 or cfg.param_dtype != "none" or cfg.reduce_dtype != "none":
            raise ValueError("--plain needs one rank and no mixed precision")
        return None
    if world % shard:
        raise ValueError(f"--fsdp-size {shard} does not divide the world size {world}")
    if shard == world:
        return init_device_mesh(device.type, (world,), mesh_dim_names=("dp_shard",))
    return init_device_mesh(
        device.type, (world // shard, shard), mesh_dim_names=("dp_replicate", "dp_shard")
    )


def gradient_norm(model: nn.Module) -> torch.Tensor:
    """Global L2 norm of the averaged gradients, before clipping, as clip_grad_norm_ has it."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return full(torch.nn.utils.get_total_norm(grads, norm_type=2.0))


def exact_gradient_norm(model: nn.Module, mesh: DeviceMesh | None) -> float:
    """The same norm, accumulated in double: torch's CPU norm of a large fp32 tensor drifts."""
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in grads]
    total = torch.stack([g.double().square().sum() for g in local]).sum()
    if mesh is not None:
        dist.all_reduce(total, group=mesh.get_group("dp_shard"))
    return total.sqrt().item()


def parameter_norms(model: nn.Module, of_grad: bool) -> dict[str, float]:
    """L2 norm of each full parameter, or of its gradient, by the checkpoint's names."""
    norms: dict[str, float] = {}
    for name, parameter in model.named_parameters():
        value = parameter.grad if of_grad else parameter.detach()
        if value is not None:
            norms[parameter_name(name)] = full(value).double().norm().item()
    return norms


def run(
    cfg: TrainConfig, device: torch.device, emit: Emit, norms: dict[str, Any] | None = None
) -> None:
    """One training run in an initialised process group; `emit` is called on rank 0 only.

    With `norms`, the gradient norm of each parameter at the first step and the norm of each
    parameter at the end are put into it.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    if cfg.global_batch % (world * cfg.grad_accum):
        raise ValueError("--global-batch must be a multiple of ranks x --grad-accum")
    rss_before_model = status_bytes("VmRSS")
    mesh = make_mesh(cfg, device)
    model = build_model(cfg, mesh, device)
    config: Any = model.config
    optimizer = build_optimizer(cfg, model)
    parameters = list(model.parameters())
    vocab, tied = config.vocab_size, config.tie_word_embeddings
    windows = TokenWindows(cfg.tokens, vocab, cfg.seq_len)
    first = load_checkpoint(cfg.resume, model, optimizer) if cfg.resume else 0
    stop = min(cfg.stop_step or cfg.steps, cfg.steps)
    step_times: list[float] = []
    tokens_a_step = cfg.global_batch * cfg.seq_len

    for step in range(first, stop):
        started = time.perf_counter()
        lr = learning_rate(cfg, step)
        for group in optimizer.param_groups:
            group["lr"] = lr
        loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        for micro in range(cfg.grad_accum):
            last = micro == cfg.grad_accum - 1
            if mesh is not None:
                cast(FSDPModule, model).set_requires_gradient_sync(
                    last or cfg.accum_sync == "every"
                )
            chosen = micro_batch_windows(
                step, micro, rank, world, cfg.grad_accum, cfg.global_batch, windows.count
            )
            inputs, labels = (t.to(device) for t in windows.batch(chosen))
            logits = model(input_ids=inputs, use_cache=False).logits
            loss = F.cross_entropy(logits.float().view(-1, vocab), labels.view(-1))
            (loss / cfg.grad_accum).backward()
            loss_sum += loss.detach().double()
            del logits, loss
        norm = gradient_norm(model)
        exact = {"grad_norm_fp64": exact_gradient_norm(model, mesh)} if cfg.exact_grad_norm else {}
        if norms is not None and step == first:
            norms["first_step_grad_norms"] = parameter_norms(model, of_grad=True)
        if cfg.clip > 0:
            torch.nn.utils.clip_grads_with_norm_(parameters, cfg.clip, norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.all_reduce(loss_sum)
        mean_loss = loss_sum.item() / (world * cfg.grad_accum)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        elapsed = time.perf_counter() - started
        step_times.append(elapsed)
        if rank == 0:
            emit(
                {
                    "event": "step",
                    "step": step,
                    "loss": mean_loss,
                    "grad_norm": norm.item(),
                    **exact,
                    "lr": lr,
                    "step_time_s": round(elapsed, 6),
                    "tokens_per_s": round(tokens_a_step / elapsed, 2),
                }
            )

    memory = memory_summary(device, rss_before_model)
    if norms is not None:
        norms["final_param_norms"] = parameter_norms(model, of_grad=False)
    local = sum((p.to_local() if isinstance(p, DTensor) else p).numel() for p in parameters)
    locals_by_rank = gather(local)
    if cfg.save_dir:
        save_checkpoint(cfg.save_dir, model, optimizer, stop)
    if cfg.full_state_dict:
        save_full_state_dict(cfg.full_state_dict, model, tied)
    if rank == 0:
        median = sorted(step_times)[len(step_times) // 2] if step_times else 0.0
        emit(
            {
                "event": "summary",
                "world_size": world,
                "fsdp_size": cfg.fsdp_size or world,
                "device": device.type,
                "parameters": sum(p.numel() for p in parameters),
                "local_parameters": locals_by_rank,
                "steps": len(step_times),
                "median_step_time_s": round(median, 6),
                "median_tokens_per_s": round(tokens_a_step / median, 2) if median else 0.0,
                **memory,
                "torch": torch.__version__,
                "transformers": transformers.__version__,
            }
        )


@contextlib.contextmanager
def process_group(device_choice: str = "auto") -> Iterator[torch.device]:
    """Join the process group that torchrun describes; a lone process makes a group of one."""
    use_cuda = device_choice == "cuda" or (device_choice == "auto" and torch.cuda.is_available())
    if "RANK" not in os.environ:
        os.environ.update(
            RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="localhost", MASTER_PORT="0"
        )
    if use_cuda:
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
        dist.init_process_group("cpu:gloo,cuda:nccl", device_id=device)
    else:
        device = torch.device("cpu")
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
        dist.init_process_group("gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def leave(code: int = 0) -> NoReturn:
    """End the process without tearing the interpreter down.

    A Gloo worker thread may still be about to drop its last finished work; if it asks for the
    interpreter lock while the interpreter ends, the process aborts after all its work is done.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def main() -> None:
    cfg = parse_config()
    torch.set_float32_matmul_precision(cfg.matmul_precision)
    transformers.logging.set_verbosity_error()
    with process_group(cfg.device) as device:
        run(cfg, device, lambda line: print(json.dumps(line), flush=True))


if __name__ == "__main__":
    main()
    leave()
