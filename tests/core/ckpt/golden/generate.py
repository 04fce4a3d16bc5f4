"""Makes the files of this directory with PyTorch: DCP directories, sharded safetensors and files of torch.save.

trainer.pth, ranks and ranks_fsdp1 are what trainers save with torch.save: objects of their own, DTensors and ShardedTensors.

    python generate.py            (torch 2.11; torch_2_15.metadata is the .metadata, and ranks_2_15 the models of ranks,
                                   that torch 2.15 makes of the same)

They are small and checked in; tests read them and know these values.
"""

import argparse
import collections
import enum
import os
import shutil
import sys

import numpy as np
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._shard.sharded_tensor import Shard as TensorShard
from torch.distributed._shard.sharded_tensor import init_from_local_shards
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor


def count_from(first, shape, dtype=torch.float32):
    numel = 1
    for size in shape:
        numel *= size
    return torch.arange(first, first + numel).to(dtype).reshape(shape)


def rank_main(rank, world_size, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (world_size,))

    def sharded(first, shape, dtype=torch.float32):
        return distribute_tensor(count_from(first, shape, dtype), mesh, [Shard(0)])

    state = {
        "model": {
            "a.weight": sharded(0, (5, 3)),  # uneven: 3 + 2 rows
            "b.weight": sharded(100, (1, 4), torch.bfloat16),  # rank 1's shard is empty
            "buffer": count_from(7, (2, 2), torch.int64),
        },
        "optim": {
            "state": {"a.weight": {"step": torch.tensor(3.0), "exp_avg": sharded(50, (5, 3))}},
            "param_groups": [
                {
                    "lr": 0.25,
                    "betas": (0.9, 0.999),
                    "foreach": None,
                    "weight_decay": 0,
                    "params": ["a.weight", "b.weight"],
                }
            ],
        },
        "seed": 2**40,
        "name": "tiny \u00e9",
    }
    dcp.save(state, storage_writer=FileSystemWriter("dcp_two_ranks"))
    columns = distribute_tensor(count_from(0, (5, 3)), mesh, [Shard(1)])
    tensors = {"rows": sharded(0, (5, 3)), "columns": columns, "one": sharded(7, (1,))}
    dcp.save(tensors, storage_writer=HuggingFaceStorageWriter("shards", save_distributed=True))
    save_rank(rank, world_size)
    save_sharded_tensors(rank, world_size)
    dist.destroy_process_group()


class Phase(enum.Enum):
    WARM_UP = 0


def objects_of_trainers():
    """Values that torch.load makes only with the classes of the program that saved them."""
    generator = np.random.RandomState(0)
    return {
        "args": argparse.Namespace(lr=0.25),
        "numpy": generator.get_state(),
        "generator": np.random.PCG64(0).state,  # integers of 128 bits
        "phases": {Phase.WARM_UP: 3},
        "lr": np.float64(0.25),
    }


def save_rank(rank, world_size):
    """A file of each rank for model and optimizer, with names as verl's; the mesh has a dim of replicas."""
    mesh = init_device_mesh("cpu", (1, world_size), mesh_dim_names=("replicate", "shard"))

    def sharded(first, shape, dtype=torch.float32):
        return distribute_tensor(count_from(first, shape, dtype), mesh, [Replicate(), Shard(0)])

    of_rank = f"world_size_{world_size}_rank_{rank}.pt"
    a, b = sharded(0, (5, 3)), sharded(100, (1, 4), torch.bfloat16)  # uneven; one of them empty
    torch.save({"a.weight": a, "b.weight": torch.nn.Parameter(b)}, f"ranks/model_{of_rank}")
    state = {0: {"step": torch.tensor(3.0), "exp_avg": sharded(50, (5, 3))}}
    group = {"lr": 0.25, "betas": (0.9, 0.999), "params": [0, 1]}
    torch.save({"state": state, "param_groups": [group]}, f"ranks/optim_{of_rank}")
    torch.save({"lr_scheduler": {}, "rng": objects_of_trainers()}, f"ranks/extra_state_{of_rank}")


def save_sharded_tensors(rank, world_size):
    """A file of each rank with the ShardedTensors that FSDP1's state dict has."""

    def sharded(first, shape):
        chunks = count_from(first, shape).chunk(world_size)
        offsets = [-(-shape[0] // world_size) * rank, 0]
        shards = [
            TensorShard.from_tensor_and_offsets(c, offsets, rank) for c in chunks[rank : rank + 1]
        ]
        return init_from_local_shards(shards, *shape)

    state = {
        "a.weight": sharded(0, (5, 3)),
        "b.weight": sharded(100, (1, 4)),
    }  # uneven; rank 1 has none
    torch.save(state, f"ranks_fsdp1/model_world_size_{world_size}_rank_{rank}.pt")


def save_trainer():
    saved = {"model": {"a.weight": count_from(0, (5, 3))}, "step": 3}
    torch.save(saved | objects_of_trainers(), "trainer.pth")


def save_pth():
    module = torch.nn.Linear(3, 2)
    with torch.no_grad():
        module.weight.copy_(count_from(0, (2, 3)))
        module.bias.copy_(count_from(10, (2,)))
    torch.save(module.state_dict(), "linear.pth")

    shared = count_from(0, (4, 6))
    values = {
        "parameter": torch.nn.Parameter(count_from(1, (2,))),
        "tied": [shared, shared],
        "columns": shared[1:3, 2:5],
        "transposed": shared.t(),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "empty": torch.empty(0, 3),
        "bfloat16": count_from(3, (3,), torch.bfloat16),
        "bool": torch.tensor([True, False, True]),
        "float8": count_from(1, (4,)).to(torch.float8_e4m3fn),
        "uint16": torch.tensor([1, 65535], dtype=torch.uint16),
        "complex": torch.tensor([1 + 2j]),
        "int": [0, -1, 255, 256, 65536, -(2**31), 2**31, -(2**63), 2**63 - 1],
        "float": [0.1, float("inf"), -0.0],
        "text": "tiny \u00e9 \U0001f600",
        "bytes": b"\x00\x7f\x80\xff",
        "none": None,
        "flags": (True, False),
        "set": {1, 2},
        "size": torch.Size([2, 3]),
        "dtype": torch.bfloat16,
        "device": torch.device("cpu"),
        "ordered": collections.OrderedDict(z=1, a=2),
        "by number": {0: "zero", 1: "one"},
    }
    torch.save(values, "values.pth")
    torch.save({"a": count_from(0, (2,))}, "old_format.pth", _use_new_zipfile_serialization=False)


def main():
    os.chdir(os.path.dirname(os.path.abspath(__file__)))  # relative paths: one is in .metadata
    for directory in ("dcp_two_ranks", "ranks", "ranks_fsdp1", "shards"):
        shutil.rmtree(directory, ignore_errors=True)
    os.mkdir("ranks")
    os.mkdir("ranks_fsdp1")
    torch.multiprocessing.spawn(rank_main, (2, 29000 + os.getpid() % 1000), nprocs=2)
    save_pth()
    save_trainer()


if __name__ == "__main__":
    sys.exit(main())
