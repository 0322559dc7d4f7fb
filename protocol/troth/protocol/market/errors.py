"""Errors of the market's rules; each says what happened, the offending value and the remedy.

ProtocolError
└── MarketError
    ├── InvalidOrder        an order that its class, its tab or the time does not support
    ├── InvalidVoucher      a word on a tab that goes backwards, forgets or promises too little
    ├── InvalidClaim        leaves that cannot be claimed, or a path that leads to another root
    ├── InvalidDrawRequest  a draw that cannot be made, or hints that do not answer it
    ├── InvalidAdmission    nodes that were not drawn, or a proof that does not hold
    ├── InvalidPromise      a promise that does not pay for the work it names
    ├── InvalidResults      results that are not signed, do not meet or count wrongly
    ├── InvalidSecret       a secret that is not the one the order committed to
    ├── InvalidCheck        commitments, openings or verdicts that make no check
    ├── InvalidCase         findings that no case can be decided from
    ├── NotEvidence         signatures that convict nobody
    ├── WeakEconomy         a class in which cheating could pay
    └── InvalidReceipt      a receipt that is damaged, or that does not prove what it says
"""

from __future__ import annotations

from troth.protocol.errors import ProtocolError


class MarketError(ProtocolError):
    """Base of what the market's rules refuse."""


class InvalidOrder(MarketError):
    """An order that its class, its tab or the time does not support."""


class InvalidVoucher(MarketError):
    """A word on a tab that goes backwards, forgets what was acknowledged, or promises too little."""


class InvalidClaim(MarketError):
    """Leaves that cannot be claimed, or a path that leads to another root."""


class InvalidDrawRequest(MarketError):
    """A draw that cannot be made from this group, or hints that do not answer its look-ups."""


class InvalidAdmission(MarketError):
    """Nodes that were not drawn for the order, or a proof that does not hold."""


class InvalidPromise(MarketError):
    """A promise that does not pay for the work it names."""


class InvalidResults(MarketError):
    """Results that are not signed by the admitted nodes, do not meet, or count other positions."""


class InvalidSecret(MarketError):
    """A secret that is not the one the order committed to."""


class InvalidCheck(MarketError):
    """Commitments, openings or verdicts that make no check of these results."""


class InvalidCase(MarketError):
    """Findings that no case can be decided from."""


class NotEvidence(MarketError):
    """Signatures that convict nobody."""


class WeakEconomy(MarketError):
    """An execution class in which cheating could pay, or whose stake does not cover its penalties."""


class InvalidReceipt(MarketError):
    """A receipt that is damaged, or that does not prove what it says."""
