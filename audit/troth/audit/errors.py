"""Errors of the audit package. Each says what happened, the offending value and what to do.

AuditError                  exit code 3: the audit could not be completed, so it says nothing about the chain
├── ChainMoved              the chain was reorganised while it was read
├── SourceUnusable          the node does not answer, or not in a usable form
└── BundleRefused           the file is no bundle: malformed, oversized or tampered with
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class AuditError(TrothError):
    """Base of every error of this package: ``what`` happened, the offending ``value``, and the ``remedy``."""

    exit_code = 3


class ChainMoved(AuditError):
    """Logs and headers belong to different histories."""


class SourceUnusable(AuditError):
    """The node refused or failed; ``value`` never carries its credentials."""


class BundleRefused(AuditError):
    """A bundle that is not trusted far enough to audit it; ``value`` says where it is wrong."""
