"""Where tests of this folder compute: on a graphics card that torch finds, else on one that is pretended.

Tests marked `gpu` ask for bits, memory or processes that only a real card has, and are skipped where there is none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")

from support.pretended_card import NAME, Traffic, pretended_card  # noqa: E402


@dataclass(frozen=True)
class Card:
    """A card that torch calls `name`; what goes between a pretended one and the host is in `traffic`."""

    name: str
    traffic: Traffic | None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a card, say of what needs one why it does not run."""
    if torch.cuda.is_available():
        return
    reason = pytest.mark.skip(reason="torch finds no CUDA card here")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(reason)


@pytest.fixture
def card(monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    """A real card, or a pretended one."""
    if torch.cuda.is_available():
        yield Card(NAME, None)
        return
    torch.set_num_threads(1)
    with pretended_card(monkeypatch) as traffic:
        yield Card(NAME, traffic)
