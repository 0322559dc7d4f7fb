"""Logs: human on a terminal, one JSON object per line otherwise; the task id in each line, never a prompt.

Callers log identifiers and counts. Nothing here sees request bodies, so nothing here can leak one.
"""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

import msgspec
from rich.console import Console
from rich.logging import RichHandler

_task: ContextVar[str | None] = ContextVar("task", default=None)


@contextmanager
def task_bound(task_id: bytes) -> Iterator[None]:
    """Every log line of the block, and of asyncio tasks started inside it, carries the task id."""
    token = _task.set("0x" + task_id.hex())
    try:
        yield
    finally:
        _task.reset(token)


def current_task() -> str | None:
    """The bound task id as 0x-hexadecimal, or None."""
    return _task.get()


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the root logger to `stream` (standard error by default) in the form that suits it."""
    target = stream or sys.stderr
    handler: logging.Handler = _human(target) if target.isatty() else logging.StreamHandler(target)
    if not target.isatty():
        handler.setFormatter(JsonLines())
    handler.addFilter(_bind_task)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # httpx logs every URL at INFO; a scheduler's receipts are fetched by task id every second.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("websockets").setLevel(logging.WARNING)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    # web3 says at INFO where it was connected to, with the credentials that an RPC address may hold.
    logging.getLogger("web3").setLevel(logging.WARNING)


class JsonLines(logging.Formatter):
    """One JSON object per record: time (UTC), level, logger, task, message, and the traceback if there is one."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "time": datetime.datetime.fromtimestamp(record.created, datetime.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        task = getattr(record, "task", None)
        if task is not None:
            line["task"] = task
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def _bind_task(record: logging.LogRecord) -> bool:
    record.task = current_task()
    return True


class _TaskPrefix(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        task = getattr(record, "task", None)
        message = record.getMessage()
        return message if task is None else f"{task[:10]}… {message}"


def _human(stream: TextIO) -> logging.Handler:
    handler = RichHandler(console=Console(file=stream), show_path=False, rich_tracebacks=False)
    handler.setFormatter(_TaskPrefix())
    return handler
