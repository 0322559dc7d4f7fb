"""Changes of recorded evidence by name, for tables of tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from support.audit_tampering import audited, recorded, result, with_call, with_event

from troth.audit.evidence import Evidence
from troth.audit.report import Kind, Report
from troth.protocol.events import TaskCommitted
from troth.protocol.types import Hash32

OTHER = Hash32(b"\x07" * 32)
Tamper = Callable[[Evidence], Evidence]


@lru_cache
def untouched(name: str) -> Report:
    return audited(recorded(), name)


def kinds(report: Report, number: str) -> set[Kind]:
    return {finding.kind for entry in result(report, number).results for finding in entry.findings}


def changed(kind: type, name: str | None, skip: int = 0, **fields: Any) -> Tamper:
    return lambda evidence: with_event(evidence, kind, name, lambda _: fields, skip)


def called(kind: type, name: str, change: Callable[[dict[str, Any]], dict[str, Any]], skip: int = 0) -> Tamper:
    return lambda evidence: with_call(evidence, kind, name, change, skip)


def opening(place: int, field: int, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(arguments: dict[str, Any]) -> dict[str, Any]:
        openings = [list(entry) for entry in arguments["openings"]]
        openings[place][field] = value(openings[place][field])
        return {"openings": [tuple(entry) for entry in openings]}

    return change


def single_opening(field: int, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], dict[str, Any]]:
    def change(arguments: dict[str, Any]) -> dict[str, Any]:
        fields = list(arguments["opening"])
        fields[field] = value(fields[field])
        return {"opening": tuple(fields)}

    return change


def other_parameters(**fields: int) -> Tamper:
    return lambda evidence: replace(evidence, parameters=replace(evidence.parameters, **fields))


def fewer_segments_posts(event: TaskCommitted) -> dict[str, Any]:
    return {"posts": (event.posts[0], *(Hash32(bytes(32)) for _ in event.posts[1:]))}
