"""How much of a text a client could have foreseen when it typed the prompt.

Who wants an honest node suspected looks for a row in which that node's rounding and its verifiers' lie apart, and asks
for the token of that row again and again. It can look for rows that prompts end in, and for a few after them. What
comes later hangs on the tokens in between, which public noise chose under a seed that nobody knew. So evidence over
many texts counts a token only after the tokens before it were surprising enough together: a text comes to any one of
its possible beginnings as seldom as their probabilities multiply to.

Someone who draws the order, and so knows the seed beforehand, is not kept from choosing: a scheduler that works
together with the client can send those orders alone that come out well for it, at the price of running all of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from troth.protocol.masks import RowRule
from troth.protocol.tokens import Logits, Sampling, likeliest, ranked, reach, require_logits

FORESEEN = 20 * math.log(2)
"""Nats of surprise up to which a client may have foreseen a text: it comes to one of ten thousand beginnings that were
looked at with a chance of one in a hundred."""


def surprise(logits: Logits, token: int, sampling: Sampling, rule: RowRule | None = None) -> float:
    """Minus the logarithm of a token's probability under what is asked for, in nats; 0 for one that is not left there.

    At temperature 0 nothing surprises.
    """
    require_logits(logits)
    if sampling.temperature == 0:
        return 0.0
    if rule is not None:
        place = rule.place(token)
        return 0.0 if place is None else surprise(rule.kept(rule.apply(logits)), place, sampling)
    if sampling.cuts:
        left = likeliest(logits, sampling)
        where = int(np.searchsorted(left, token))
        if where == len(left) or left[where] != token:
            return 0.0
        return surprise(logits[left], where, sampling.nucleus)
    if sampling.top_p == 1:
        shares = (logits - logits.max()).astype(np.float64) / sampling.temperature
        return float(np.log(np.exp(shares).sum()) - shares[token])
    likely, mass = ranked(logits, sampling.temperature, sampling.top_p)
    count = reach(mass, sampling.top_p)
    (places,) = np.nonzero(likely[:count] == token)
    if not len(places):
        return 0.0
    place = int(places[0])
    return float(np.log(mass[count - 1]) - np.log(mass[place] - (mass[place - 1] if place else 0.0)))


class Foresight:
    """Follows a text from its first token to the one from which on nobody foresaw it."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._surprised = 0.0
        self.foreseen = 0
        """How many of the tokens that were followed a client may have foreseen."""

    def follow(self, logits: Logits, tokens: Sequence[int], rules: Sequence[RowRule] | None = None) -> None:
        """The next tokens, with the rows of logits that chose them (tokens x vocabulary) and what transforms those.

        Rows behind the last foreseen token are not looked at.
        """
        for index, token in enumerate(tokens):
            if self._surprised >= FORESEEN:
                return
            rule = None if rules is None else rules[index]
            self._surprised += surprise(logits[index], token, self._sampling, rule)
            self.foreseen += 1
