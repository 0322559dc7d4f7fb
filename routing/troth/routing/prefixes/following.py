"""In which order a member's updates are believed: each once, none skipped; after a gap only a snapshot helps."""

from __future__ import annotations

from enum import Enum

from troth.routing.prefixes.update import Heartbeat, Update


class UpdateFate(Enum):
    """What becomes of an update."""

    APPLY = "apply"
    REPEATED = "repeated"
    """Seen, overtaken, or from before the member's restart: nothing changes."""
    GAP = "gap"
    """One before it is missing: ask for a snapshot."""
    OTHER_CHUNKING = "other_chunking"
    """Its names are under another key, or of another chunk-length array."""


class UpdateFollower:
    """How far one member's updates were followed. What was seen stays so when it leaves and comes back."""

    def __init__(self) -> None:
        self.epoch = -1
        self.sequence = 0
        self._forgotten = False
        self._heartbeat = (-1, 0, 0)

    def forget(self) -> None:
        """What the member said is held no more: only a snapshot brings it back, the last one's number included."""
        self._forgotten = True

    def judge(self, update: Update, chunking: bytes) -> UpdateFate:
        """Whether to apply this update now; notes it where the answer is APPLY, or where its names cannot be used."""
        place, seen = (update.epoch, update.sequence), (self.epoch, self.sequence)
        ours = update.chunking == chunking
        if place < seen or (place == seen and not (ours and update.whole and self._forgotten)):
            return UpdateFate.REPEATED
        if not ours:
            self.epoch, self.sequence, self._forgotten = *place, True
            return UpdateFate.OTHER_CHUNKING
        if not update.whole and (self._forgotten or place != (self.epoch, self.sequence + 1)):
            return UpdateFate.GAP
        self.epoch, self.sequence = place
        self._forgotten = False
        return UpdateFate.APPLY

    def judge_heartbeat(self, heartbeat: Heartbeat, chunking: bytes) -> UpdateFate:
        """What a heartbeat says beside its load. It is noted, and moves no sequence: what was missed stays missed."""
        said = (heartbeat.epoch, heartbeat.sequence, heartbeat.number)
        if said <= self._heartbeat or said[:2] < (self.epoch, self.sequence):
            return UpdateFate.REPEATED
        self._heartbeat = said
        if heartbeat.chunking != chunking:
            return UpdateFate.OTHER_CHUNKING
        missed = heartbeat.sequence and (self._forgotten or said[:2] != (self.epoch, self.sequence))
        return UpdateFate.GAP if missed else UpdateFate.APPLY
