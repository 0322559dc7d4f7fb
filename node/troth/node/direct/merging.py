"""One answer from two mouths: the scheduler tells each token, and so does the node that chooses it.

Whoever comes first is passed on, and the other must say the same. Where they differ the node is not listened to any
more: the scheduler's word is what is committed on chain, so it stands for all that follows. What was passed on stays;
the client sees the contradiction in the hash of the whole answer.
"""

from __future__ import annotations

from collections.abc import Sequence


class Contradiction(Exception):
    """The node and the scheduler say different tokens for a position."""

    def __init__(self, position: int) -> None:
        super().__init__(f"two tokens for position {position}")
        self.position = position


class Merging:
    """The tokens that were passed on so far, at most `longest`.

    Args:
        longest: tokens that the order allows.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._listening = True
        self.tokens: list[int] = []

    @property
    def listening(self) -> bool:
        """Whether the node is still believed."""
        return self._listening

    def from_scheduler(self, position: object, token: object) -> bool:
        """Whether the scheduler's token is to be passed on; raises Contradiction where the node said another one.

        What is no token in its turn is passed on as it is, for the client to judge, and nothing after it is merged.
        """
        if not isinstance(position, int) or not isinstance(token, int) or not 0 <= position <= len(self.tokens):
            self._listening = False
            return True
        if position == len(self.tokens):
            self.tokens.append(token)
            return True
        if self.tokens[position] == token:
            return False
        self._listening = False
        raise Contradiction(position)

    def from_node(self, start: int, tokens: Sequence[int]) -> Sequence[int]:
        """Those of the node's tokens that are to be passed on: they follow `self.tokens` as it was.

        Raises:
            Contradiction: it says another token than was passed on, leaves one out, or does not end.
        """
        if not self._listening:
            return ()
        known = self.tokens[start : start + len(tokens)]
        differing = next((i for i, (one, other) in enumerate(zip(known, tokens, strict=False)) if one != other), None)
        if differing is not None or start > len(self.tokens) or start + len(tokens) > self._longest:
            self._listening = False
            raise Contradiction(start + (differing or 0))
        fresh = tokens[len(known) :]
        self.tokens += fresh
        return fresh

    def stop(self) -> None:
        """The scheduler has told the end: nothing of the node is passed on any more."""
        self._listening = False
