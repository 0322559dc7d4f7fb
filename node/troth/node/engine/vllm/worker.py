"""What Troth adds to vLLM's worker: rows of every step go out, the head is lent, and the process ends with the node.

vLLM mixes `RowTap` into its own worker class (`worker_extension_cls`); methods are reached by `collective_rpc`. A
forward hook on the whole model sees the post-norm states of every position of a step, in exactly the words that the
head reads. It is never called inside of a captured graph: the engine runs with `enforce_eager`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from typing import Any

import torch

from troth.node.engine.exact_layers import in_fixed_rows
from troth.node.engine.vllm.row_frames import LENGTH, Part, frame_to_bytes

LOADING = "vllm.model_executor.models.utils"
CAST = "Attempted to load weight %s with dtype"
# Folders hold float32: that each weight is cast to the class's dtype is meant so, and not worth a warning each.
logging.getLogger(LOADING).addFilter(lambda record: not str(record.msg).startswith(CAST))


class RowTap:
    """Methods get names that no worker has; state lives in the hook."""

    model_runner: Any
    _troth_rows: Any = None
    _troth_hook: Any = None
    _troth_seconds = 0.0

    def troth_tap(self, address: str) -> list[int]:
        """Send rows to a Unix socket from now on; returns hidden size and vocabulary."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(address)
        threading.Thread(target=_end_with_node, args=(connection,), daemon=True).start()
        runner = self.model_runner
        # The forward pass waits where the node does not take its rows: memory stays bounded.
        self._troth_rows = lambda module, given, made: self._troth_timed(connection, made)
        self.troth_send(True)
        config = runner.model_config
        return [int(config.get_hidden_size()), int(config.get_vocab_size())]

    def _troth_timed(self, connection: socket.socket, made: Any) -> None:
        began = time.thread_time()
        _send(self.model_runner, connection, made)
        self._troth_seconds += time.thread_time() - began

    def troth_row_seconds(self) -> float:
        """Processor seconds that sending rows has taken so far."""
        return self._troth_seconds

    def troth_send(self, wanted: bool) -> None:
        """Send rows, or stop sending them: for measuring what they cost."""
        if self._troth_hook is not None:
            self._troth_hook.remove()
        self._troth_hook = self.model_runner.model.register_forward_hook(self._troth_rows) if wanted else None

    def troth_fix_rows(self, rows: int) -> int:
        """Have every matrix product run over so many rows at a time, 0 for any number; returns how many layers have
        one. Only CPU kernels need it."""
        layers = [module for module in self.model_runner.model.modules() if hasattr(module, "cpu_linear")]
        for layer in layers:
            layer.troth_linear = getattr(layer, "troth_linear", layer.cpu_linear)
            layer.cpu_linear = _fixed(layer.troth_linear, rows) if rows else layer.troth_linear
        return len(layers)

    def troth_head(self, rows: bytes, wide: bool) -> bytes:
        """Float32 logits of post-norm rows, (positions, vocabulary), as bytes; `wide` for float32 rows."""
        runner = self.model_runner
        kind = torch.float32 if wide else torch.int16
        states = torch.frombuffer(bytearray(rows), dtype=kind)
        states = states if wide else states.view(torch.bfloat16)
        states = states.reshape(-1, runner.model_config.get_hidden_size()).to(runner.device, runner.model_config.dtype)
        with torch.inference_mode():
            logits: bytes = runner.model.compute_logits(states).float().cpu().numpy().tobytes()
        return logits


def _fixed(linear: Any, rows: int) -> Any:
    def fixed(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return in_fixed_rows(lambda part: linear(part, weight, bias), states, rows)

    return fixed


def _send(runner: Any, connection: socket.socket, states: Any) -> None:
    parts = _parts(runner)
    count = sum(part[2] for part in parts)
    if not count:
        return
    words = states[:count]
    words = words.view(torch.int16) if words.dtype == torch.bfloat16 else words
    frame = frame_to_bytes(parts, words.contiguous().cpu().numpy().tobytes())
    connection.sendall(LENGTH.pack(len(frame)) + frame)


def _parts(runner: Any) -> list[Part]:
    """Which request's positions stand in this step's batch, in order. vLLM adds a dash and letters to our names."""
    batch = runner.input_batch
    ends = runner.query_start_loc.np
    return [
        (request.partition("-")[0], int(batch.num_computed_tokens_cpu[index]), int(ends[index + 1] - ends[index]))
        for index, request in enumerate(batch.req_ids)
    ]


def _end_with_node(connection: socket.socket) -> None:
    """The node sends nothing; when its end closes it is gone, however it died, and vLLM's processes must not stay."""
    with contextlib.suppress(OSError):
        connection.recv(1)
    parent = os.getppid()
    if parent > 1:
        os.kill(parent, signal.SIGTERM)
    os._exit(0)
