"""Another node's client asks: will this one serve the task, if the scheduler sends it? And who may listen then."""

from __future__ import annotations

import hmac
import time
from collections import Counter, OrderedDict
from collections.abc import Callable

from troth.node.direct.seams import Group
from troth.overlay.forwarding.passage import Way
from troth.protocol.hashing import keccak256
from troth.protocol.types import Address, Hash32
from troth.protocol.wire_group import Take, Taken

MOST_EXPECTED = 4096
"""Tasks that may be awaited at once, of all entries."""
MOST_EXPECTED_PER_ENTRY = 80
"""The same of one entry: what it has under way at once, and so few that a whole group cannot use up all."""
EXPECTED_SECONDS = 60.0
"""How long a promise is remembered whose task does not come: an honest scheduler sends it at once."""
LONGEST_RETRY = 60


def request_name(task_id: bytes, salt_hash: bytes) -> bytes:
    """What a task is called where its way is decided. The salt is in it: who knows a task's id only, and that is soon
    public, cannot have it taken for one that was here before."""
    return keccak256(task_id + salt_hash)


class Taking:
    """Answers Take, and remembers which tasks were promised.

    Args:
        group: own load, and what was here before.
        leaving: whether this node is being stopped.
        clock: seconds, of the group's clock.
    """

    def __init__(self, group: Group, leaving: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._group, self._leaving, self._clock = group, leaving, clock
        self._expected: OrderedDict[bytes, tuple[Address, bytes, float]] = OrderedDict()
        self._of: Counter[Address] = Counter()

    def take(self, sender: Address, message: Take) -> Taken:
        """Whether this node will serve; a task that it will not take is not remembered."""
        self._forget_old()
        full = self._of[sender] >= MOST_EXPECTED_PER_ENTRY or len(self._expected) >= MOST_EXPECTED
        if self._leaving() or full:
            return Taken("overloaded", self._group.load_part(), LONGEST_RETRY)
        name = request_name(message.task_id, message.salt_hash)
        step = self._group.passage.take(name, self._group.load(), self._clock())
        if step.way is Way.OVERLOADED:
            return Taken("overloaded", self._group.load_part(), min(LONGEST_RETRY, int(step.retry_after)))
        if step.way is Way.CIRCLE:
            return Taken("circle", self._group.load_part())
        self._expect(sender, message.task_id, message.salt_hash)
        return Taken("serve", self._group.load_part())

    def expect(self, task_id: Hash32, salt_hash: bytes) -> None:
        """A client's request for this task entered here, and this node itself shall serve it."""
        self._forget_old()
        self._expect(self._group.own, task_id, salt_hash)

    def expects(self, task_id: bytes, salt: bytes) -> bool:
        """Whether the session of this task may be waited for by who has this salt."""
        self._forget_old()
        found = self._expected.get(task_id)
        return found is not None and hmac.compare_digest(found[1], keccak256(salt))

    def kept(self, task_id: bytes) -> None:
        """The task has come: whoever has its salt finds its session, and the promise needs no place any more."""
        self._drop(task_id)

    def _expect(self, sender: Address, task_id: bytes, salt_hash: bytes) -> None:
        self._drop(task_id)
        self._expected[task_id] = sender, salt_hash, self._clock()
        self._of[sender] += 1

    def _forget_old(self) -> None:
        oldest = self._clock() - EXPECTED_SECONDS
        while self._expected and next(iter(self._expected.values()))[2] < oldest:
            self._drop(next(iter(self._expected)))

    def _drop(self, task_id: bytes) -> None:
        dropped = self._expected.pop(task_id, None)
        if dropped is None:
            return
        self._of[dropped[0]] -= 1
        if not self._of[dropped[0]]:
            del self._of[dropped[0]]
