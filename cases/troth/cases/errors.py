"""What can go wrong around a case; each error says what happened, the offending value and the remedy.

ProtocolError
└── CaseError
    ├── EvidenceRefused   a file or a delivery that is not what was signed, or not of this case
    ├── NothingToDo       evidence from which nothing can be done, or not any more
    ├── NotYours          who asks has no part in the case
    ├── AlreadyPledged    something else was signed for this hearing
    └── CaseStorageError  a journal or record that cannot be read or written
"""

from __future__ import annotations

from troth.protocol.errors import ProtocolError


class CaseError(ProtocolError):
    """Base of this package's errors."""


class EvidenceRefused(CaseError):
    """A file or a delivery that is not what was signed, or that belongs to another case."""


class NothingToDo(CaseError):
    """Evidence from which nothing can be done, or not any more, or not by this account."""


class NotYours(CaseError):
    """Who asks has no part in the case."""


class AlreadyPledged(CaseError):
    """Something else was signed for this hearing; nothing new is signed."""


class CaseStorageError(CaseError):
    """A journal or record that cannot be read or written; so nothing is sent."""
