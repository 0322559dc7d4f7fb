"""The acts of `make demo`, and the moments that its picture shows (docs/demo.svg).

A moment is one line of the picture. Names in braces stand for what differs from run to run. Acts and moments are in
the order in which they come; a test holds the picture to them.
"""

from __future__ import annotations

import re
import string
from enum import StrEnum


class Line(StrEnum):
    """A line with names in braces."""

    def said(self, **values: object) -> str:
        """The line, with values for its names."""
        return self.value.format(**values)

    @property
    def pattern(self) -> re.Pattern[str]:
        """What matches the line with any values."""
        parts = string.Formatter().parse(self.value)
        return re.compile("".join(re.escape(text) + (".+" if name is not None else "") for text, name, _, _ in parts))


class Act(Line):
    """The titles of the acts, the first one's number being 1."""

    TAB = "A client opens a tab: the one thing that its wallet signs"
    ANSWERS = "Questions are answered at once; the client draws which answers are checked"
    CHEAT = "The node {node} serves int8 weights until a draw hits it"
    COURT = "A rejecting verifier goes to court by itself; nodes judge, the chain decides"
    REFUSAL = "A scheduler refuses a check, and pays for it"
    MONEY = "Who is paid, and what it costs"
    AUDIT = "Anyone re-checks: a receipt that proves itself, the scheduler's log, the whole chain"

    @property
    def number(self) -> int:
        """Its place among the acts."""
        return list(Act).index(self) + 1


class Moment(Line):
    """The lines of the picture."""

    READY = (
        "ready: a chain, two schedulers, {nodes} nodes, {members} committee members, {relays} relays, a process each"
    )
    WINDOWS = (
        "short windows: blocks of {block} s, {percent} % of answers checked (usual: 5 %), "
        "logs each {log} s (usual: 1 h)"
    )
    TAB = "tab {tab} with the scheduler ({gas} gas); no other transaction is needed"
    GATEWAY = "`troth client serve` is ready at {address}/v1"
    QUESTION = "question: {question}"
    ANSWER = "answer: {answer}"
    PATHS = "nobody sees who asked: it went as cloves (S-IDA) over relays, which cannot read them:"
    PATH = "  {relays} → scheduler"
    SPEED = "first word after {first} s, whole after {whole} s, no transaction; it costs {cost}; {outcome}"
    CHECKED = (
        "the draw hit answer {number}: verifiers computed it again and agree, {seconds} s after the answer's last word"
    )
    CHEATING = "the client asks until a draw hits the cheat; {percent} % of answers are drawn (usual: 5 %)"
    CAUGHT = "question {number}: {question} {answer} by {node}: {outcome}"
    REJECTED = (
        "its verifiers reject it {seconds} s after its last word; "
        "{asked} asked, {cheated} served by the cheat, {drawn} drawn"
    )
    OPENED = "block {block}: a case is opened: the node's penalty is locked, the opener's bond is at stake"
    OPENER = "  the opener is {node}, one of the verifiers that rejected"
    REVIEWERS = "block {block}: reviewers are drawn by a RANDAO that nobody knew before"
    RESTARTED = "block {block}: too few reviewers committed in time: another committee is drawn"
    COMMITTED = "block {block}: commit: every reviewer has sealed what it computed"
    SEEDED = "block {block}: sample: a later RANDAO says which tiles are opened"
    DECIDED = "block {block}: reveal: everybody shows its part, and the contract compares, clusters and decides"
    CONVICTED = "convicted: {taken} of {node}'s stake of {stake} is taken"
    REFUND = "refund: the fee of {fee} is not owed any more, and nothing was paid for it"
    SECOND_TAB = "another client opens a tab with another scheduler ({gas} gas)"
    REFUSED = "question {number} at that scheduler: {question} {answer}: {outcome}"
    SUMMONED = "block {block}: the client's own software summons the check on chain"
    SILENT = "block {block}: nobody answered in time: the scheduler is convicted, without a committee"
    SCHEDULER_PAYS = "the scheduler loses {lost} of its stake for an answer that it would not have checked"
    CLIENT_PAID = "the client, which had put up {deposit}, is paid {paid}"
    REDEEMED = "{node} redeems {amount} for its answers and checks so far ({gas} gas)"
    LOGGED = (
        "block {block}: the scheduler posts entry {entry} of its log: {orders} answers, {drawn} drawn, "
        "{rejected} rejected"
    )
    AUDITED = "troth audit {what} exits 0: nothing is out of order"
    NAMED = "troth audit market exits 1: it names the scheduler that refused ({scheduler})"
    DONE = "done in {seconds} s; everything is stopped, nothing is left behind"
