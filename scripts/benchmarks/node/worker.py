"""In place of vLLM's worker: rows of all running sequences, step by step, over a Unix socket. Run as a process."""

from __future__ import annotations

import socket
import sys
import time

import numpy as np

from troth.node.engine.vllm.row_frames import LENGTH, frame_to_bytes


def main() -> None:
    """Arguments: socket, hidden size, rows a second (0: no pause). Standard input: "name prompt tokens" lines, "go"."""
    address, hidden, rate = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    rows = np.random.default_rng(0).integers(0, 1 << 14, (4096, hidden), dtype=np.uint16)
    waiting = []
    for line in sys.stdin:
        if line.strip() == "go":
            break
        name, prompt, tokens = line.split()
        waiting.append([name, int(prompt), int(tokens)])
    with socket.socket(socket.AF_UNIX) as out:
        out.connect(address)
        parts = [(name, 0, prompt) for name, prompt, _ in waiting]
        _send(out, parts, rows)
        running = {name: [prompt, prompt + tokens - 1] for name, prompt, tokens in waiting}
        due = time.perf_counter()
        while running:
            parts = [(name, position, 1) for name, (position, _) in running.items()]
            due = max(due, time.perf_counter() - 0.1) + (len(parts) / rate if rate else 0.0)
            time.sleep(max(0.0, due - time.perf_counter()))
            _send(out, parts, rows)
            running = {name: [position + 1, end] for name, (position, end) in running.items() if position + 1 < end}
        out.recv(1)


def _send(out: socket.socket, parts: list[tuple[str, int, int]], rows: np.ndarray) -> None:
    count = sum(part[2] for part in parts)
    taken = rows[np.arange(count) % len(rows)] if count > len(rows) else rows[:count]
    frame = frame_to_bytes(parts, memoryview(np.ascontiguousarray(taken)).cast("B"))
    out.sendall(LENGTH.pack(len(frame)) + frame)


if __name__ == "__main__":
    main()
