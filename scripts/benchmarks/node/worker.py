"""In place of vLLM's worker: rows of all running sequences, step by step, over a Unix socket. Run as a process."""

from __future__ import annotations

import os
import queue
import socket
import sys
import threading
import time

import numpy as np

from troth.node.engine.vllm.row_frames import LENGTH, frame_to_bytes
from troth.node.engine.vllm.settings import BLOCK

FIRST_PROMPT = 64
"""A longer one is of a text that goes on."""


def main() -> None:
    """Arguments: socket, hidden size, rows a second (0: no pause). Standard input: lines of "name prompt tokens", of
    which no tokens end a text; nothing begins before "go"."""
    address, hidden, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rows = np.random.default_rng(0).integers(0, 1 << 14, (4096, hidden), dtype=np.uint16)
    asked: queue.SimpleQueue[tuple[str, int, int]] = queue.SimpleQueue()
    go = threading.Event()
    threading.Thread(target=_listen, args=(asked, go), daemon=True).start()
    go.wait()
    running: dict[str, list[int]] = {}
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(address)
        due = time.perf_counter()
        while True:
            begun = _take(asked, running)
            if begun:
                _send(out, begun, rows)
            parts = [(name, position, 1) for name, (position, end) in running.items() if position < end]
            due = max(due, time.perf_counter() - 0.1) + (max(len(parts), 1) / rate if rate else 0.0)
            time.sleep(max(0.0 if parts else 0.001, due - time.perf_counter()))
            if parts:
                _send(out, parts, rows)
            running = {name: [position + 1, end] for name, (position, end) in running.items() if position + 1 < end}


def _listen(asked: queue.SimpleQueue[tuple[str, int, int]], go: threading.Event) -> None:
    for line in sys.stdin:
        if line.strip() == "go":
            go.set()
            continue
        name, prompt, tokens = line.split()
        asked.put((name, int(prompt), int(tokens)))
    os._exit(0)


def _take(asked: queue.SimpleQueue[tuple[str, int, int]], running: dict[str, list[int]]) -> list[tuple[str, int, int]]:
    """Texts that begin now, each with the rows of its prompt that no cache of whole blocks has."""
    begun = []
    while not asked.empty():
        name, prompt, tokens = asked.get()
        running.pop(name, None)
        if tokens:
            first = prompt // BLOCK * BLOCK if prompt % BLOCK and prompt > FIRST_PROMPT else 0
            running[name] = [prompt, prompt + tokens - 1]
            begun.append((name, first, prompt - first))
    return begun


def _send(out: socket.socket, parts: list[tuple[str, int, int]], rows: np.ndarray) -> None:
    count = sum(part[2] for part in parts)
    taken = rows[np.arange(count) % len(rows)] if count > len(rows) else rows[:count]
    frame = frame_to_bytes(parts, memoryview(np.ascontiguousarray(taken)).cast("B"))
    out.sendall(LENGTH.pack(len(frame)) + frame)


if __name__ == "__main__":
    main()
