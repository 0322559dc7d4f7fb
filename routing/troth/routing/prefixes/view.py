"""One node's view of its group: the tree and the node table, kept by updates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from troth.routing.prefixes.announcing import INTERVAL
from troth.routing.prefixes.claims import PrefixClaims
from troth.routing.prefixes.following import UpdateFate
from troth.routing.prefixes.local_blocks import Changes
from troth.routing.prefixes.members import LARGEST_GROUP, GroupMembers
from troth.routing.prefixes.naming import Naming
from troth.routing.prefixes.tree import HashRadixTree, Matches
from troth.routing.prefixes.update import ChunkRun, NodeLoad, Update, decode

PATIENCE = 4 * INTERVAL
"""Seconds that a prompt sent to a member counts as held without its word: it may queue, and its update be lost."""


class GroupView:
    """Updates in, matches out. Senders are authenticated before; `now` is always this node's own clock, in seconds.

    Args:
        naming: the group's names.
        most: members at most.
        claims: makes the bounded table of a new member.
    """

    def __init__(
        self, naming: Naming, most: int = LARGEST_GROUP, claims: Callable[[], PrefixClaims] = PrefixClaims
    ) -> None:
        self.naming = naming
        self.members = GroupMembers(most)
        self.tree = HashRadixTree()
        self._claims = claims

    def list_members(self, reputations: Mapping[str, float], now: float) -> None:
        """The signed directory's word: who is in the group, with the committee's reputation. Others are out."""
        for name in [name for name, _ in self.members.rows() if name not in reputations]:
            self._drop(self.members.dismiss(name))
        for name, reputation in reputations.items():
            known = name in self.members
            row = self.members.admit(name, reputation, now)
            if not known:
                self.members.followed(name).forget()
                self.tree.add(row.slot, self._claims())

    def rename(self, naming: Naming) -> None:
        """All names are other ones from now on: nothing is known until members say it again, loads apart."""
        self.naming = naming
        for name, row in self.members.rows():
            self.members.followed(name).forget()
            self.tree.add(row.slot, self._claims())

    def receive(self, sender: str, content: bytes, now: float) -> UpdateFate:
        """Apply an update or a heartbeat of `sender`; but for REPEATED its load is in the node table then.

        Raises UpdateMalformed; a stranger's is REPEATED, whatever is in it.
        """
        if sender not in self.members:
            return UpdateFate.REPEATED
        said, followed, ours = decode(content), self.members.followed(sender), self.naming.identity
        verdict = followed.judge(said, ours) if isinstance(said, Update) else followed.judge_heartbeat(said, ours)
        row = self.members[sender]
        if verdict is not UpdateFate.REPEATED:
            row.heard, row.load, row.alive = now, said.load, True
        if verdict is UpdateFate.APPLY and isinstance(said, Update):
            self._apply(row.slot, said)
        return verdict

    def may_ask(self, sender: str, now: float) -> bool:
        """Whether to ask this member for a snapshot now: once an interval, so that gaps cannot be used to make work."""
        row = self.members[sender]
        if now - row.asked < INTERVAL:
            return False
        row.asked = now
        return True

    def hear(self, name: str, load: NodeLoad, now: float) -> None:
        """A member's load as an answer of its own brought it, between two updates."""
        if name in self.members:
            row = self.members[name]
            row.heard, row.load, row.alive = now, load, True

    def own(self, name: str, changes: Changes) -> None:
        """Changes of this node's own cache, at once."""
        slot = self.members[name].slot
        if changes.cleared:
            self.tree.replace(slot, ())
        self.tree.remove(slot, changes.removed)
        self.tree.store(slot, (ChunkRun(parent, (child,)) for parent, child in changes.stored))

    def search(self, path: Iterable[tuple[int, int]], among: int) -> Matches:
        """Who holds how much of a prompt, of the members `among` (bits)."""
        return self.tree.search(path, among)

    def sent(self, name: str, path: Iterable[tuple[int, int]], now: float) -> None:
        """A prompt went to this member: it will hold it, unless it does not say so in time."""
        self.tree.expect(self.members[name].slot, path, now + PATIENCE)

    def expire(self, now: float) -> list[str]:
        """End unconfirmed expectations, and empty the rows of dead members, which are returned.

        A dead member stays listed, and is alive again with its next update; it needs a snapshot then.
        """
        self.tree.expire(now)
        dead = self.members.silent(now)
        for name in dead:
            row = self.members[name]
            row.alive = False
            self.members.followed(name).forget()
            self.tree.add(row.slot, self._claims())
        return dead

    def _apply(self, slot: int, update: Update) -> None:
        if update.whole:
            self.tree.replace(slot, update.stored)
        else:
            self.tree.remove(slot, update.removed)
            self.tree.store(slot, update.stored)

    def _drop(self, slot: int | None) -> None:
        if slot is not None:
            self.tree.drop(slot)
