"""How much of a GPU's memory is in use while something runs, as its driver (NVML) counts it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

PERIOD_S = 0.02


def first_gpu() -> Callable[[], int] | None:
    """A function that tells the bytes in use on the first GPU; None without NVML or a GPU."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    except pynvml.NVMLError:
        return None
    return lambda: int(pynvml.nvmlDeviceGetMemoryInfo(gpu).used)


class GpuMemory:
    """Samples the first GPU while it is entered; without NVML, `peak_bytes` stays None.

    The peak is what all processes hold together less what they held before: a program's tensors,
    what its allocator keeps, its code on the device and the workspaces of libraries.
    """

    def __init__(self) -> None:
        self.peak_bytes: int | None = None
        self._used = first_gpu()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        if self._used is None:
            return
        before = self._used()
        while not self._stop.wait(PERIOD_S):
            self.peak_bytes = max(self.peak_bytes or 0, self._used() - before)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
