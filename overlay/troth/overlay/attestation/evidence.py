"""Evidence as it travels from a machine to a member: what the hardware signed, and what its vendor signed about it.

MessagePack of arrays, in one encoding only:

    [1, machine, report, endorsements, [[report, certificates], …]]

`report` is the TDX quote or the SEV-SNP report. `endorsements` of TDX is the collateral of Intel's service as JSON, of
SEV-SNP `[VCEK, ASK, ARK, revocation list]` in DER. A device's report is NVIDIA's SPDM exchange, its certificates are
PEM. All of it is public and none of it is trusted: each signature leads to a root that this program holds.
"""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from troth.overlay.attestation.errors import EvidenceMalformed
from troth.protocol.struct_kinds import prepared

VERSION = 1
MOST_DEVICES = 16
LARGEST_EVIDENCE = 512 * 1024
"""Bytes; about 25 KiB without devices, and 10 KiB for each."""

_Report = Annotated[bytes, Meta(min_length=1, max_length=16 * 1024)]
_Endorsements = Annotated[bytes, Meta(max_length=128 * 1024)]
_Certificate = Annotated[bytes, Meta(min_length=1, max_length=8 * 1024)]


class _EvidenceRow(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A row of fixed length."""


class DeviceReport(_EvidenceRow, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What one graphics processor signed, and its certificates (PEM, its own first)."""

    report: _Report
    certificates: Annotated[bytes, Meta(min_length=1, max_length=32 * 1024)]


class MachineEvidence(_EvidenceRow, frozen=True, array_like=True, forbid_unknown_fields=True):
    """All that a machine says of itself."""

    version: int
    machine: Literal["tdx", "sev-snp"]
    report: _Report
    endorsements: _Endorsements
    devices: Annotated[list[DeviceReport], Meta(max_length=MOST_DEVICES)]


class SnpEndorsements(_EvidenceRow, frozen=True, array_like=True, forbid_unknown_fields=True):
    """AMD's certificates of one chip, and its list of revoked ones; DER."""

    vcek: _Certificate
    ask: _Certificate
    ark: _Certificate
    revoked: Annotated[bytes, Meta(min_length=1, max_length=64 * 1024)]


_Row = TypeVar("_Row", bound=_EvidenceRow)


def encode_evidence(evidence: MachineEvidence) -> bytes:
    """The bytes of evidence."""
    return msgspec.msgpack.encode(evidence)


def decode_evidence(data: bytes) -> MachineEvidence:
    """The evidence in these bytes, nothing in it checked; raises EvidenceMalformed."""
    found = _decoded(data, MachineEvidence, LARGEST_EVIDENCE)
    if found.version != VERSION:
        raise EvidenceMalformed(f"The evidence has version {found.version}, this is for {VERSION}")
    if encode_evidence(found) != data:
        raise EvidenceMalformed("The evidence is not in its one encoding", len(data))
    return found


def decode_endorsements(data: bytes) -> SnpEndorsements:
    """AMD's certificates; raises EvidenceMalformed."""
    return _decoded(data, SnpEndorsements, LARGEST_EVIDENCE)


def _decoded(data: bytes, kind: type[_Row], most: int) -> _Row:
    if len(data) > most:
        raise EvidenceMalformed(f"Evidence has at most {most} bytes", len(data), "Send one machine's alone.")
    try:
        return msgspec.msgpack.decode(data, type=prepared(kind))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise EvidenceMalformed("The bytes are no evidence", str(error)[:200]) from error
