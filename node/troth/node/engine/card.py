"""A graphics card that one process has to itself, how it multiplies, and how it is told that a card is gone.

Two engines on one card take each other's memory in the middle of an answer. So whoever loads weights onto a card holds
a lock on it, by the card's own id, until its process ends, however it ends.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from troth.node.errors import ConfigError

GONE = (
    "CUDA error",
    "device-side assert",
    "no CUDA-capable device",
    "CUDNN_STATUS_EXECUTION_FAILED",
    "CUBLAS_STATUS_EXECUTION_FAILED",
    "NVML",
    "device is lost",
)
"""Of errors after which a process can compute nothing more on its card: what torch says of them."""
KINDS = ("cpu", "cuda", "mps")
"""Of devices that torch computes on here, as engine.device and --device name them."""


class CardLock:
    """Held from `take` to the end of the process, or to `release`."""

    def __init__(self, cards: Sequence[str], folder: Path | None = None) -> None:
        """`cards`: names that mean the same card to every process of this machine."""
        self._folder = folder or Path(tempfile.gettempdir())
        self._cards = tuple(cards)
        self._held: list[int] = []

    def take(self) -> None:
        """Lock all cards, or none.

        Raises:
            ConfigError: another process has one of them.
        """
        try:
            for card in self._cards:
                self._held.append(self._locked(card))
        except ConfigError:
            self.release()
            raise

    def release(self) -> None:
        """Let other processes have them."""
        for descriptor in self._held:
            os.close(descriptor)
        self._held = []

    def _locked(self, card: str) -> int:
        path = self._folder / f"troth-card-{card}.lock"
        remedy = "Stop the other node, or choose another card: engine.device, or CUDA_VISIBLE_DEVICES for vllm."
        try:
            # No link of another user is followed, and what is there is not cut.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigError("another user's process may have this graphics card", str(path), remedy) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(descriptor, 32).decode("ascii", "replace").strip() or "unknown"
            os.close(descriptor)
            what = f"another process has this graphics card (process {holder})"
            raise ConfigError(what, card, remedy) from error
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        return descriptor


def require_device(device: str) -> None:
    """Raise ConfigError where torch cannot compute on this device of this machine: before anything is read."""
    kind, _, number = device.partition(":")
    if kind not in KINDS or (number and not number.isdecimal()):
        raise ConfigError("there is no such device", device, "Use cpu, cuda, cuda:1 for the second card, or mps.")
    cards_of(device)
    if kind == "mps":
        import torch

        if not torch.backends.mps.is_available():
            raise ConfigError("torch finds no Apple GPU here", device, "Use cpu.")


def cards_of(device: str, parallel: int = 1) -> list[str]:
    """The ids of the cards that an engine takes; none where it computes elsewhere.

    Raises:
        ConfigError: torch sees no such card.
    """
    kind, _, number = device.partition(":")
    if kind != "cuda":
        return []
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    first = int(number or 0)
    if first + parallel > count:
        remedy = "Look at nvidia-smi, or compute on cpu (engine.device, or --device)."
        raise ConfigError(f"torch finds {count} CUDA cards here, and {device} is asked for", parallel, remedy)
    indices = range(first, first + parallel)
    return [str(getattr(torch.cuda.get_device_properties(index), "uuid", index)) for index in indices]


def multiply_in_full() -> None:
    """Have torch multiply float32 as float32 in this process, and round sums of bfloat16 once, at their end.

    Containers for graphics cards ask for less by a variable: with 10 bits of each number, a float32 class' honest rows
    would be refused. Sums that are split are added in bfloat16 by itself.
    """
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def card_is_gone(error: BaseException) -> bool:
    """Whether an error of torch says that nothing more can be computed on this card by this process.

    Memory that is used up is no such error: the next request may find some.
    """
    import torch

    if isinstance(error, torch.OutOfMemoryError):
        return False
    if isinstance(error, torch.AcceleratorError):
        return True
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in GONE)
