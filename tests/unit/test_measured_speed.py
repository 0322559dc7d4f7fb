"""How fast a node is: by what all of its tokens took, not by its last answer."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.tab_scene import TabScene, history_of

from troth.scheduler.orders.hop import Hop


async def test_a_slow_node_is_not_fast_for_answering_its_last_question_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack 209: all orders that it was drawn for went to it, in place of those that are fast."""
    scene, noted = TabScene(tmp_path), dict[str, float]()
    scene.start()
    monkeypatch.setattr(scene.peers, "note_latency", noted.__setitem__)
    conclude = Hop.conclude

    async def at_once(self: Hop, positions: int, written: int, payload: bytes, timeout: float) -> object:
        found = await conclude(self, positions, written, payload, timeout)
        self.latency, self.decoding = 0.0001, 0.5  # half a second for each token, and nothing for the last question
        return found

    monkeypatch.setattr(Hop, "conclude", at_once)
    asked = await scene.send(scene.asked())
    assert noted == {history_of(scene, asked).admitted.nodes[0]: 0.5}
    await scene.stop()


async def test_a_long_prompt_of_one_token_says_nothing_of_a_nodes_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, noted = TabScene(tmp_path), dict[str, float]()
    scene.start()
    monkeypatch.setattr(scene.peers, "note_latency", noted.__setitem__)
    assert (await scene.send(scene.asked(max_tokens=1))).tokens
    assert not noted
    await scene.stop()
