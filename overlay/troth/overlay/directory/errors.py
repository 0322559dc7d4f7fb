"""What can be wrong with a list, a descriptor or a directory.

DirectoryError (an OverlayError)
 ├─ ListRefused             a list that is not believed; the one before it stays in use
 │   ├─ ListMalformed       bytes that are no list, or not in its one encoding
 │   ├─ ListStale           its time is over
 │   ├─ ListNotYetValid
 │   ├─ ListShortSigned     not more than 2/3 of the members signed
 │   ├─ ListForged          a signature that is none
 │   ├─ SignerUnknown       a signature of somebody who is no member, or of other words
 │   ├─ SignedTwice         one member's signature counted again
 │   └─ ListRolledBack      older than the list that is held already
 ├─ DescriptorRefused       what a relay or a destination says of itself is not believed
 ├─ CommitteeUnknown        there is no such contract, or it has no members
 └─ DirectoryUnavailable    no member gave a list that can be used
"""

from __future__ import annotations

from troth.transport.errors import OverlayError


class DirectoryError(OverlayError):
    """Base of the directory's errors."""

    code = "directory"


class ListRefused(DirectoryError):
    """A list that is not believed."""

    code = "list_refused"


class ListMalformed(ListRefused):
    """Bytes that are no list of this version, or a list in another encoding than the one there is."""

    code = "list_malformed"


class ListStale(ListRefused):
    """The list's time is over."""

    code = "list_stale"


class ListNotYetValid(ListRefused):
    """The list's time has not begun: somebody's clock is wrong."""

    code = "list_not_yet_valid"


class ListShortSigned(ListRefused):
    """Not more than 2/3 of the members signed."""

    code = "list_short_signed"


class ListForged(ListRefused):
    """A signature that no key can have made."""

    code = "list_forged"


class SignerUnknown(ListRefused):
    """A signature by nobody in the committee: a stranger's, a former member's, or one over other words."""

    code = "signer_unknown"


class SignedTwice(ListRefused):
    """One member's signature stands there twice, or signatures are out of order."""

    code = "signed_twice"


class ListRolledBack(ListRefused):
    """The list is older than the one that is held."""

    code = "list_rolled_back"


class DescriptorRefused(DirectoryError):
    """What a relay or a destination says of itself is not believed."""

    code = "descriptor_refused"


class CommitteeUnknown(DirectoryError):
    """The committee's members cannot be read."""

    code = "committee_unknown"


class DirectoryUnavailable(DirectoryError):
    """No member gave a list that can be used now."""

    code = "directory_unavailable"
