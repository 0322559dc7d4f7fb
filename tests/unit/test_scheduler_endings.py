"""Ends that a reorganisation may take back are watched, and no longer than it may."""

from __future__ import annotations

from troth.chain.store import WINDOW
from troth.protocol.state import State
from troth.protocol.types import Hash32
from troth.scheduler.endings import Endings
from troth.scheduler.records import Aborted, Failed, Reopened, Settled
from troth.scheduler.story import Story

FIRST, SECOND = Hash32(b"1" * 32), Hash32(b"2" * 32)


def test_an_end_that_the_chain_does_not_know_is_undone_until_it_is_final() -> None:
    endings = Endings()
    endings.note(FIRST, Story.of([Settled(b"t", 100, 0, "accepted")]), newest=100)
    endings.note(SECOND, Story.of([Aborted(b"t", 101, 0)]), newest=99 + WINDOW)
    assert endings.undone(State()) == [FIRST, SECOND]
    endings.note(SECOND, Story.of([Aborted(b"t", 101, 0)]), newest=100 + WINDOW)
    assert endings.undone(State()) == [SECOND], "what is final is forgotten, or a long life would fill the memory"
    endings.forget(SECOND)
    assert endings.undone(State()) == []


def test_what_never_came_to_the_chain_is_not_watched() -> None:
    endings = Endings()
    endings.note(FIRST, Story.of([Failed("refused", "no", False)]))
    endings.note(SECOND, Story.of([Settled(b"t", 9, 0, "accepted"), Reopened()]))
    assert endings.undone(State()) == []
