"""Errors of the client. Each says what happened, the offending value, and what to do.

ClientError
├── ConfigurationError      client.toml or an option cannot be used
├── WalletError             the keystore is missing or does not open
├── AmountError             an amount of money cannot be read
├── PromptError             the question is empty, too long, or not text
├── ModelUnavailable        no such execution class, or its tokenizer is not what the chain says
├── FeeTooHigh              the fee is above --max-cost
├── InsufficientBalance     the escrow balance does not cover the fee
├── SchedulerUnreachable    no answer from the scheduler's registered endpoint
│   └── WrongSchedulerKey   somebody else answers there
├── SchedulerRefused        the scheduler answered with an error
├── StreamError             the scheduler's answer or stream was malformed
│   └── StreamLost          the stream broke off; the task itself may go on
├── ProofError              what the scheduler sent contradicts the chain or its own proofs
├── AnswerNotAccepted       the verifiers did not accept the answer
├── TransactionRefused      the chain would not, or did not, take a transaction
└── ReceiptNotFound         no such task in this wallet's receipts
"""

from __future__ import annotations


class ClientError(Exception):
    """Base of the client's errors: what happened, the offending value, and what to do about it."""

    def __init__(self, what: str, value: object, remedy: str) -> None:
        super().__init__(f"{what} ({value}). {remedy}")
        self.what = what
        self.value = value
        self.remedy = remedy


class ConfigurationError(ClientError):
    """A configuration file or option cannot be used."""


class WalletError(ClientError):
    """The keystore is missing or does not open."""


class AmountError(ClientError):
    """An amount of money cannot be read."""


class PromptError(ClientError):
    """The question is empty, too long, or not text."""


class ModelUnavailable(ClientError):
    """No such execution class, or its tokenizer is not what the chain says it is."""


class FeeTooHigh(ClientError):
    """The fee is above what the user allowed."""


class InsufficientBalance(ClientError):
    """The escrow balance does not cover the fee."""


class SchedulerUnreachable(ClientError):
    """No answer from the scheduler's registered endpoint."""


class WrongSchedulerKey(SchedulerUnreachable):
    """The endpoint shows another TLS key than the registered one; nothing was sent."""


class SchedulerRefused(ClientError):
    """The scheduler answered with an error; `code` is its name for it."""

    def __init__(self, what: str, value: object, remedy: str, code: str = "") -> None:
        super().__init__(what, value, remedy)
        self.code = code


class StreamError(ClientError):
    """The scheduler's answer or stream was malformed; the task itself may still settle."""


class StreamLost(StreamError):
    """The scheduler's stream broke off before the verdict; the task itself may go on."""


class ProofError(ClientError):
    """What the scheduler sent contradicts the chain or its own proofs."""


class AnswerNotAccepted(ClientError):
    """The task ended without its verifiers accepting the answer; the fee went back."""


class TransactionRefused(ClientError):
    """The chain would not, or did not, take a transaction."""


class ReceiptNotFound(ClientError):
    """No such task among this wallet's receipts."""
