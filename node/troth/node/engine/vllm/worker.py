"""What Troth adds to vLLM's worker: rows of every step go out, the head is lent, and the process ends with the node.

vLLM mixes `RowTap` into its own worker class (`worker_extension_cls`); methods are reached by `collective_rpc`. Rows
are the post-norm states of every position of a step, in exactly the words that the head reads. They are taken between a
step's forward pass and the choice of its tokens, from what vLLM's model runner keeps between the two. So the pass may
be one captured graph, and both of vLLM's model runners are looked at in one way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import socket
import threading
import time
from typing import Any

import torch

from troth.node.engine.card import multiply_in_full
from troth.node.engine.choice import choose_tokens
from troth.node.engine.interface import TokenDraw
from troth.node.engine.vllm.processor_kernels import attend_one_by_one, fix_rows, linear_layers, widen
from troth.node.engine.vllm.row_frames import LENGTH, Part, frame_to_bytes
from troth.node.engine.vllm.shaken_rows import ShakenRows, parts_of
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32

LOADING = "vllm.model_executor.models.utils"
CAST = "Attempted to load weight %s with dtype"
# Folders hold float32: that each weight is cast to the class's dtype is meant so, and not worth a warning each.
logging.getLogger(LOADING).addFilter(lambda record: not str(record.msg).startswith(CAST))
# vLLM imports this before it captures a graph, which keeps how its products round.
multiply_in_full()

AHEAD = 2
"""Steps whose rows may be on their way from a graphics card while the next ones are computed."""


class RowSender:
    """Rows on their way to the node, one frame a step.

    On a CPU they are sent at once: the forward pass waits where the node does not take them, so that memory stays
    bounded. From a graphics card they are copied into pinned memory by its own queue, behind the kernels that made
    them and before the next step may write there again; a thread waits for the copy and sends it.
    """

    def __init__(self, connection: socket.socket, *, beside: bool) -> None:
        self.seconds = 0.0
        """Processor seconds that it has taken so far."""
        self._connection = connection
        self._waiting: queue.SimpleQueue[tuple[list[Part], torch.Tensor, Any]] = queue.SimpleQueue()
        self._room = threading.Semaphore(AHEAD)
        if beside:
            threading.Thread(target=self._run, name="rows", daemon=True).start()
        self._beside = beside

    def send(self, parts: list[Part], states: torch.Tensor) -> None:
        """Send the rows that a step made, (positions, hidden size) and perhaps more below them."""
        began = time.thread_time()
        count = sum(part[2] for part in parts)
        if count:
            self._take(parts, states[:count])
        self.seconds += time.thread_time() - began

    def _take(self, parts: list[Part], rows: torch.Tensor) -> None:
        if not self._beside:
            self._write(parts, rows)
            return
        self._room.acquire()
        copied = pinned(rows)
        copied.copy_(rows, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        self._waiting.put((parts, copied, done))

    def _run(self) -> None:
        while True:
            parts, copied, done = self._waiting.get()
            done.synchronize()
            began = time.thread_time()
            try:
                self._write(parts, copied)
            except OSError:
                return  # the node is gone, which ends this process
            finally:
                self._room.release()
                self.seconds += time.thread_time() - began

    def _write(self, parts: list[Part], rows: torch.Tensor) -> None:
        words = rows.view(torch.int16) if rows.dtype == torch.bfloat16 else rows
        frame = frame_to_bytes(parts, words.contiguous().cpu().numpy().tobytes())
        self._connection.sendall(LENGTH.pack(len(frame)) + frame)


class RowTap:
    """Methods get names that no worker has. Where layers are shared out, each process has all rows: the first sends."""

    model_runner: Any
    rank: int
    _troth_sender: RowSender | None = None
    _troth_plain: Any = None
    _troth_shaken: ShakenRows

    def troth_tap(self, address: str) -> list[int]:
        """Send rows to a Unix socket from now on; returns hidden size, vocabulary, and bytes of keys and values."""
        runner = self.model_runner
        for layer in linear_layers(runner.model):
            widen(layer)
        self._troth_shaken = ShakenRows(runner)
        self._troth_shaken.install()
        if self.rank == 0:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.connect(address)
            threading.Thread(target=_end_with_node, args=(connection,), daemon=True).start()
            self._troth_sender = RowSender(connection, beside=runner.device.type == "cuda")
            self.troth_send(True)
        config = runner.model_config
        return [int(config.get_hidden_size()), int(config.get_vocab_size()), _bytes_of(runner.kv_caches)]

    def troth_changed(self, name: str) -> int:
        """How many entering rows of a request were changed, once it is over."""
        return self._troth_shaken.take_changed(name)

    def troth_row_seconds(self) -> float:
        """Processor seconds that sending rows has taken so far."""
        return 0.0 if self._troth_sender is None else self._troth_sender.seconds

    def troth_send(self, wanted: bool) -> None:
        """Send rows, or stop sending them: for measuring what they cost."""
        runner, sender = self.model_runner, self._troth_sender
        if sender is None:
            return
        self._troth_plain = self._troth_plain or runner.execute_model
        plain = self._troth_plain

        def execute_model(*given: Any, **named: Any) -> Any:
            made = plain(*given, **named)
            state = runner.execute_model_state
            # It is there between a step's forward pass, in a graph or not, and the choice of its tokens.
            if made is None and state is not None:
                sender.send(parts_of(runner, getattr(state, "input_batch", None)), state.hidden_states)
            return made

        runner.execute_model = execute_model if wanted else plain

    def troth_fix_rows(self, rows: int) -> int:
        """Have every matrix product give what it gives over so many rows at a time, and attention over one query; 0 for
        any number. Returns how many layers have a product. Only CPU kernels need it."""
        layers = linear_layers(self.model_runner.model)
        for layer in layers:
            fix_rows(layer, rows)
        if layers:
            attend_one_by_one(bool(rows))
        return len(layers)

    def troth_head(self, rows: bytes, wide: bool) -> bytes:
        """Float32 logits of post-norm rows, (positions, vocabulary), as bytes; `wide` for float32 rows."""
        logits = self._troth_logits(rows, wide=wide)
        return b"" if logits is None else bytes(logits.float().cpu().numpy().tobytes())

    def troth_choices(
        self, rows: bytes, cuts: tuple[float, float, int, float], seed: bytes, first_position: int
    ) -> list[int]:
        """The tokens of consecutive post-norm rows; `cuts` are temperature, top_p, top_k and min_p."""
        logits = self._troth_logits(rows, wide=self.model_runner.model_config.dtype == torch.float32)
        if logits is None:
            return []
        sampling = Sampling(*cuts)
        draws = [TokenDraw(sampling, Hash32(seed), first_position + index) for index in range(len(logits))]
        with torch.inference_mode():
            return choose_tokens(logits.float(), draws)

    def _troth_logits(self, rows: bytes, *, wide: bool) -> torch.Tensor | None:
        runner = self.model_runner
        kind = torch.float32 if wide else torch.int16
        states = torch.frombuffer(bytearray(rows), dtype=kind)
        states = states if wide else states.view(torch.bfloat16)
        states = states.reshape(-1, runner.model_config.get_hidden_size()).to(runner.device, runner.model_config.dtype)
        with torch.inference_mode():
            # All processes take part, and some gather logits in the first one only.
            made: torch.Tensor | None = runner.model.compute_logits(states)
            return made


def pinned(rows: torch.Tensor) -> torch.Tensor:
    """Room of the same shape in memory that a card writes to by itself."""
    return torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)


def _bytes_of(caches: Any) -> int:
    if isinstance(caches, torch.Tensor):
        return int(caches.numel() * caches.element_size())
    return sum(map(_bytes_of, caches)) if isinstance(caches, list | tuple) else 0


def _end_with_node(connection: socket.socket) -> None:
    """The node sends nothing; when its end closes it is gone, however it died, and vLLM's processes must not stay."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    parent = os.getppid()
    if parent > 1:
        os.kill(parent, signal.SIGTERM)
    os._exit(0)
