"""How close a run of a model with experts comes to routing a token another way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch


@contextlib.contextmanager
def smallest_routing_gap() -> Iterator[Callable[[], float | None]]:
    """Yields a function that gives the least gap so far between the last expert that a router of
    transformers takes and the first that it leaves, as a difference of probabilities; None if
    nothing was routed. Ranks may route different tokens: each has its own least gap."""
    original, least = torch.topk, float("inf")

    def measured(scores: torch.Tensor, k: int, *args: Any, **kwargs: Any) -> Any:
        nonlocal least
        if 0 < k < scores.shape[-1] and scores.numel() > 0:
            best = original(scores.detach(), k + 1, dim=-1).values
            least = min(least, (best[..., k - 1] - best[..., k]).min().item())
        return original(scores, k, *args, **kwargs)

    torch.topk = measured  # type: ignore[assignment]
    try:
        yield lambda: None if least == float("inf") else least
    finally:
        torch.topk = original
