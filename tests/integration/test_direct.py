"""Orders that enter at a node: answered by whom the entry found, verified and paid as ever, and no worse for lies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from support.direct_stage import DirectStage, direct_stage

from troth.protocol.request import output_hash
from troth.protocol.typed_data import recover
from troth.protocol.types import Hash32, Served

pytestmark = [pytest.mark.chain, pytest.mark.slow]

Lines = list[dict[str, Any]]


def kinds(lines: Lines) -> list[str]:
    return [line["type"] for line in lines if line["type"] != "token"]


def tokens(lines: Lines) -> list[int]:
    found = [line for line in lines if line["type"] == "token"]
    assert [line["position"] for line in found] == list(range(len(found)))
    return [line["id"] for line in found]


def only(lines: Lines, kind: str) -> dict[str, Any]:
    (found,) = [line for line in lines if line["type"] == kind]
    return found


def signer(stage: DirectStage, lines: Lines, salt: Hash32) -> str:
    """Who signed that it gave this answer."""
    task = Hash32(bytes.fromhex(only(lines, "assigned")["task_id"][2:]))
    statement = Served(task, output_hash(salt, tokens(lines)))
    return recover(statement, stage.scene.chain.domain, bytes.fromhex(only(lines, "served")["signature"][2:]))


async def test_the_chosen_candidate_answers_and_is_paid(deployed: Any, tmp_path: Path) -> None:
    async with direct_stage(deployed, tmp_path) as stage:
        for preferred in list(stage.nodes):
            stage.prefer(preferred, *stage.nodes)
            submitted = await stage.scene.order(max_tokens=20, logprobs=2)
            lines = await stage.order(submitted)
            print(kinds(lines))
            assert only(lines, "settled")["outcome"] == "accepted"
            assert len(tokens(lines)) == 20
