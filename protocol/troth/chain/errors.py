"""Errors of the chain adapter and of the keystore. Each says what happened, the offending value and what to do.

ChainError
├── ChainUnavailable         the node does not answer, or not in JSON-RPC
├── RpcRefused               the node answered with a JSON-RPC error that is no revert
├── WrongChain               the node serves another chain, or there is no contract at the address
├── GasTooDear               gas costs more than this process may pay
├── ChainRejected            the contract reverts, with the decoded custom error
├── TransactionTimeout       sent, but not seen in a block in time
├── TransactionDropped       the node forgot it, and another one has taken its nonce
├── EventFileUnusable        the file of followed events is of another version
├── NothingFree              a withdrawal would pay nothing now
├── NotFollowed              what the node said could not be kept: a full disk, say
└── FollowTimeout            a condition on the folded state did not come true in time
KeystoreError
├── KeystoreMissing          no such file
├── KeystoreExists           would overwrite a key
├── KeystoreExposed          other users of the machine can read the file
├── KeystoreMalformed        no Ethereum keyfile version 3, or of another purpose
├── WrongPassword
├── PasswordMissing          no terminal, file or environment variable gave one
└── RawKeyRefused            a private key stands where a path to a keystore belongs
"""

from __future__ import annotations

from urllib.parse import urlsplit

from troth.protocol.contract_errors import ContractError
from troth.protocol.errors import TrothError


def without_credentials(url: str) -> str:
    """Scheme, host and port of ``url``: user, password, path and query may carry a provider's secret."""
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "an unreadable URL"
    return f"{parts.scheme or 'no scheme'}://{parts.hostname or 'no host'}{port}"


class ChainError(TrothError):
    """Base of every error of the adapter: ``what`` happened, the offending ``value``, and the ``remedy``."""


class ChainUnavailable(ChainError):
    """No usable answer from the node; ``value`` is its URL without credentials."""


class RpcRefused(ChainError):
    """A JSON-RPC error object; ``code``, ``message`` and ``data`` are the node's, ``place`` its URL without
    credentials."""

    def __init__(self, place: str, method: str, code: int, message: str, data: object) -> None:
        super().__init__(
            f"The chain node refused {method}: {message}",
            f"{place}, code {code}",
            "Check the node's own limits and its log, then repeat.",
        )
        self.code = code
        self.message = message
        self.data = data


class GasTooDear(ChainError):
    """Gas costs more per unit than the cap; nothing was signed."""


class WrongChain(ChainError):
    """The node is on another chain than expected, or no contract lives at the address."""


class NothingFree(ChainError):
    """There is nothing to withdraw now; ``value`` says what is there and until when it is bound."""


class NotFollowed(ChainError):
    """The node answers, and this process cannot keep or fold what it says; following goes on by itself."""


class EventFileInUse(ChainError):
    """Another process follows the chain in the same file."""


class EventFileUnusable(ChainError):
    """The file of followed events is another version's; the chain has all that is in it."""


class ChainRejected(ChainError):
    """The contract refuses a call; ``name`` and ``arguments`` are those of its decoded error."""

    def __init__(self, function: str, error: ContractError) -> None:
        super().__init__(f"The contract refuses {function}", error, error.remedy)
        self.function = function
        self.error = error
        self.name = error.name
        self.arguments = error.arguments


class TransactionTimeout(ChainError):
    """Sent, but no receipt in time; ``value`` is the transaction hash, so that the caller can go on waiting."""

    def __init__(self, transaction: bytes, seconds: float) -> None:
        super().__init__(
            f"The transaction was not mined within {seconds:g} s",
            "0x" + transaction.hex(),
            "Wait for its receipt again; where the base fee is above `troth --max-fee`, it goes through once it falls.",
        )
        self.transaction = transaction


class TransactionDropped(ChainError):
    """It can never be mined: another transaction of the sender has its nonce; ``value`` is the transaction hash."""

    def __init__(self, transaction: bytes) -> None:
        super().__init__(
            "The node dropped the transaction, and another one has taken its nonce",
            "0x" + transaction.hex(),
            "See what the chain says by now, and send it again if it is still wanted.",
        )
        self.transaction = transaction


class FollowTimeout(ChainError):
    """``EventFollower.wait_until`` gave up; ``value`` is the last block that was followed."""


class KeystoreError(TrothError):
    """Base of every keystore error: ``what`` happened, the offending ``value`` (never a secret), the ``remedy``."""


class KeystoreMissing(KeystoreError):
    """There is no file at the path."""


class KeystoreExists(KeystoreError):
    """A file is there already; a key is never overwritten."""


class KeystoreExposed(KeystoreError):
    """Group or others may read the file."""


class KeystoreMalformed(KeystoreError):
    """The file is no Ethereum keyfile version 3, or it holds a key for another purpose."""


class WrongPassword(KeystoreError):
    """The password does not open the keyfile."""


class PasswordMissing(KeystoreError):
    """No source gave a password."""


class RawKeyRefused(KeystoreError):
    """A raw private key was given where a keystore path belongs; ``value`` never shows it."""
