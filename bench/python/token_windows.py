"""The data of train_fsdp2.py: windows of a token file, and who trains on which of them."""

from __future__ import annotations

import numpy as np
import torch


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
