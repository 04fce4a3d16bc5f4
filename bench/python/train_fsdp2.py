#!/usr/bin/env python3
"""Train a Hugging Face style decoder with PyTorch's FSDP2; the reference program.

    torchrun --standalone --nproc-per-node 2 train_fsdp2.py --model DIR --tokens F --steps 10

Rank 0 prints one JSON line a step and a summary line at the end (see README.md for the fields,
the batch order, the loss, the schedule and the sharding rule).
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file
from sharded_model import build_model, parameter_name
from token_windows import TokenWindows, micro_batch_windows
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from train_options import TrainConfig, parse_config

Emit = Callable[[dict[str, Any]], None]


# --------------------------------------------------------------------------------- optimizer


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
    algorithm = torch.optim.Adam if cfg.optimizer == "adam" else torch.optim.AdamW
    return algorithm(
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
        own["peak_device_bytes"] = torch.cuda.max_memory_allocated(device)
        own["peak_reserved_device_bytes"] = torch.cuda.max_memory_reserved(device)
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


def mean_cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), labels.view(-1))


def gradient_norm(model: nn.Module) -> torch.Tensor:
    """Global L2 norm of the averaged gradients, before clipping, as clip_grad_norm_ has it."""
    if isinstance(model, FullyShardedDataParallel):
        return model.clip_grad_norm_(math.inf)
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
    if cfg.fsdp1 and (cfg.plain or cfg.grad_accum != 1 or cfg.clip or cfg.fsdp_size):
        raise ValueError("--fsdp1 is for speed alone: no micro steps, no clipping, one shard group")
    rss_before_model = status_bytes("VmRSS")
    mesh = make_mesh(cfg, device)
    model = build_model(cfg, mesh, device)
    config: Any = model.config
    optimizer = build_optimizer(cfg, model)
    parameters = list(model.parameters())
    vocab, tied = config.vocab_size, config.tie_word_embeddings
    windows = TokenWindows(cfg.tokens, vocab, cfg.seq_len)
    loss_of = torch.compile(mean_cross_entropy) if cfg.compile else mean_cross_entropy
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
            if mesh is not None and not cfg.fsdp1:
                cast(FSDPModule, model).set_requires_gradient_sync(
                    last or cfg.accum_sync == "every"
                )
            chosen = micro_batch_windows(
                step, micro, rank, world, cfg.grad_accum, cfg.global_batch, windows.count
            )
            inputs, labels = (t.to(device) for t in windows.batch(chosen))
            logits = model(input_ids=inputs, use_cache=False).logits
            loss = loss_of(logits, labels)
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
                "parameters": sum(locals_by_rank if cfg.fsdp1 else (p.numel() for p in parameters)),
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
