"""Logs: human on a terminal, one JSON object per line otherwise; the task id in each line, never a prompt.

Modules log with Python's own loggers, `logging.getLogger(__name__)`. What they and all libraries say is written by
structlog, as `configure` sets it up. Callers log identifiers and counts. Nothing here sees request bodies, so nothing
here can leak one.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import msgspec
from structlog.contextvars import bound_contextvars, merge_contextvars
from structlog.dev import ConsoleRenderer
from structlog.processors import EventRenamer, JSONRenderer, TimeStamper, format_exc_info
from structlog.stdlib import ProcessorFormatter, add_log_level, add_logger_name
from structlog.typing import EventDict, Processor

SHOWN_CHARACTERS = 10
"""Of a task id on a terminal, 0x included."""
QUIET = ("httpx", "websockets", "uvicorn", "web3")
"""Libraries of which warnings are enough. httpx logs every URL at INFO, and a receipt is fetched by task id every
second; web3 says at INFO where it was connected to, with the credentials that an RPC address may hold."""


@contextmanager
def task_bound(task_id: bytes) -> Iterator[None]:
    """Every log line of the block, and of asyncio tasks started inside it, carries the task id."""
    with bound_contextvars(task="0x" + task_id.hex()):
        yield


class StandardError(logging.StreamHandler[TextIO]):
    """Writes to what standard error is at the time of each line: who replaced and closed it disturbs no later line."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        self.stream = sys.stderr
        super().emit(record)


def configure(level: str = "INFO", stream: TextIO | None = None) -> None:
    """Send the root logger to `stream` (standard error by default) in the form that suits it.

    A JSON line has time (UTC), level, logger, message, the task if one is bound, and the traceback if there is one.
    """
    target = stream or sys.stderr
    handler = logging.StreamHandler(stream) if stream else StandardError()
    known: list[Processor] = [merge_contextvars, add_log_level, add_logger_name]
    handler.setFormatter(
        ProcessorFormatter(
            foreign_pre_chain=known,
            processors=[ProcessorFormatter.remove_processors_meta, *(_words() if target.isatty() else _json())],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)


def _json() -> list[Processor]:
    return [
        TimeStamper(fmt="iso", utc=True, key="time"),
        format_exc_info,
        EventRenamer("message"),
        _named_traceback,
        JSONRenderer(serializer=lambda line, **_: msgspec.json.encode(line).decode()),
    ]


def _words() -> list[Processor]:
    return [TimeStamper(fmt="%H:%M:%S", utc=False), _printable, ConsoleRenderer(pad_event_to=0)]


def _named_traceback(_logger: object, _method: str, line: EventDict) -> EventDict:
    if "exception" in line:
        line["traceback"] = line.pop("exception")
    return line


def _printable(_logger: object, _method: str, line: EventDict) -> EventDict:
    """What others sent may be part of a message: it begins no line of its own, and changes no terminal."""
    line["event"] = "".join(one if one.isprintable() else ascii(one)[1:-1] for one in str(line["event"]))
    if "task" in line:
        line["task"] = line["task"][:SHOWN_CHARACTERS] + "…"
    return line
