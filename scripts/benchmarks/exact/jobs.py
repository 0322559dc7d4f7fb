"""What the parties of the benchmark are told, and what they answer."""

from __future__ import annotations

import msgspec


class Claim(msgspec.Struct):
    """What an inferencer says of one task."""

    number: int
    tokens: list[int]
    root: str


class Job(msgspec.Struct):
    """What a party does: `claims` to verify, by kind, or none to infer the first `count` tasks."""

    folder: str
    out: str
    count: int
    dtype: int
    threads: int
    step_tokens: int
    at_once: int = 0
    claims: dict[str, list[Claim]] = {}


class Report(msgspec.Struct):
    """What came out: claims made, or for each kind of claim how many roots were equal and tokens replayed."""

    probe: str
    claims: list[Claim] = []
    equal: dict[str, list[int]] = {}
    replayed: dict[str, int] = {}
    tokens: dict[str, int] = {}
    cached_tokens: int = 0
    prompt_tokens: int = 0
    chunked: int = 0
