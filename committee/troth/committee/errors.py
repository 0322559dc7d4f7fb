"""What can go wrong at a member, each with what happened, the offending value and what to do.

CommitteeError
 ├─ MemberConfigurationInvalid  committee.toml, or what it names, cannot be used
 ├─ NotInCommittee          this operator is no member on chain
 ├─ EntryRefused            a relay or destination that this member will not list
 │   └─ Unreachable         it does not answer there with the keys that it names
 ├─ Full                    a bound is reached
 ├─ RequestRefused          a request that is not believed, or too large
 ├─ ProposalRefused         a proposal that this member will not sign
 │   └─ SignedOther         it has signed another list for that time
 ├─ NoAgreement             too few members agreed in this slot
 ├─ ChangeRefused           a change of members that this member will not propose, sign or send
 ├─ EpochRefused            an epoch of reputation that this member will not propose, sign or settle
 └─ TicketsRefused          a dealing, keys or points of tickets that this member will not take or sign
"""

from __future__ import annotations

from typing import ClassVar

from troth.protocol.errors import TrothError


class CommitteeError(TrothError):
    """Base of this package's errors: what happened, the offending value, the remedy."""

    code: ClassVar[str] = "committee"
    status: ClassVar[int] = 422


class MemberConfigurationInvalid(CommitteeError):
    """The configuration cannot be used."""

    code = "configuration_invalid"


class NotInCommittee(CommitteeError):
    """The operator of this process is no member."""

    code = "not_in_committee"


class EntryRefused(CommitteeError):
    """A relay or destination that will not be listed."""

    code = "entry_refused"


class Unreachable(EntryRefused):
    """The published address did not answer with the published keys."""

    code = "unreachable"


class Full(CommitteeError):
    """A bound is reached; later there may be room."""

    code = "full"
    status = 503


class RequestRefused(CommitteeError):
    """The request is not believed."""

    code = "request_refused"
    status = 400


class ProposalRefused(CommitteeError):
    """A proposal that this member will not sign."""

    code = "proposal_refused"


class SignedOther(ProposalRefused):
    """Another list has this member's signature for the same time."""

    code = "signed_other"


class NoAgreement(CommitteeError):
    """Not more than 2/3 of the members agreed on a list."""

    code = "no_agreement"


class EpochRefused(CommitteeError):
    """A file of an epoch of reputation that is not what the chain and this member's journal say."""

    code = "epoch_refused"


class ChangeRefused(CommitteeError):
    """A change of the committee's members that the contract would not take."""

    code = "change_refused"


class TicketsRefused(CommitteeError):
    """A dealing, keys or blinded points of tickets that this member will not take or sign."""

    code = "tickets_refused"
