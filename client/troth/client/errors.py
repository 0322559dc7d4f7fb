"""Errors of the client. Each says what happened, the offending value, and what to do.

ClientError
├── ConfigurationError      client.toml or an option cannot be used
├── WalletError             the keystore is missing or does not open
├── PromptError             the question is empty, too long, or not text
│   └── ContextTooShort     question and answer together do not fit the model's context
├── ModelUnavailable        no such execution class, or its tokenizer is not what the chain says
│   ├── NotAttested         a machine that could read a confidential prompt is not vouched for
│   └── OwnModelUnusable    there is no model of one's own here to compute an answer again with
├── FeeTooHigh              the fee is above --max-cost
├── SchedulerUnreachable    no answer from the scheduler's registered endpoint
│   ├── WrongSchedulerKey   somebody else answers there
│   └── OverlayFailed       a relay, or the way to an overlay entry of scheduler or node; names the class of the hop
├── SchedulerRefused        the scheduler answered with an error
├── StreamError             the scheduler's answer or stream was malformed
├── ProofError              what the scheduler sent contradicts the chain or its own proofs
├── TicketsUnusable         tickets cannot be bought, signed, spent or kept
├── TransactionRefused      the chain would not, or did not, take a transaction
├── AnswerNotAccepted       the verifiers did not accept the answer (exit code 3)
├── AnswerUnavailable       an earlier answer cannot be had any more, or was never committed
├── ReceiptsUnreadable      the receipts' file cannot be read or written
└── ReceiptNotFound         no such task in this wallet's receipts
"""

from __future__ import annotations

from troth.protocol.errors import TrothError


class ClientError(TrothError):
    """Base of the client's errors: what happened, the offending value, and what to do about it."""


class ConfigurationError(ClientError):
    """A configuration file or option cannot be used."""


class WalletError(ClientError):
    """The keystore is missing or does not open."""


class PromptError(ClientError):
    """The question is empty, too long, or not text."""


class ContextTooShort(PromptError):
    """Question and answer together do not fit: ``needed`` of ``context`` positions."""

    def __init__(self, needed: int, context: int) -> None:
        self.needed, self.context, self.missing = needed, context, needed - context
        super().__init__(
            f"The conversation and --max-tokens need {needed} positions, the model has {context}",
            f"{self.missing} too many",
            "Shorten the question, lower --max-tokens, or start a new conversation.",
        )


class ModelUnavailable(ClientError):
    """No such execution class, or its tokenizer is not what the chain says it is."""


class NotAttested(ModelUnavailable):
    """A machine that could read a confidential prompt is not vouched for; nothing of the prompt was sent."""


class OwnModelUnusable(ModelUnavailable):
    """There is no model of one's own with which an answer could be computed again."""


class FeeTooHigh(ClientError):
    """The fee is above what the user allowed."""


class SchedulerUnreachable(ClientError):
    """No answer from the scheduler's registered endpoint."""


class WrongSchedulerKey(SchedulerUnreachable):
    """The endpoint shows another TLS key than the registered one; nothing was sent."""


class OverlayFailed(SchedulerUnreachable):
    """The request or its answer was lost on its way through the overlay.

    Args:
        hop: what failed: guard, middle, proxy, destination, path (several), or client; in direct mode node, or the
            scheduler behind it.
        delivered: "no", "yes" or "unknown": whether scheduler or node had the request. After "no" a retry is free.
    """

    def __init__(self, what: str, value: object, remedy: str, *, hop: str, delivered: str) -> None:
        super().__init__(what, value, remedy)
        self.hop = hop
        self.delivered = delivered


class SchedulerRefused(ClientError):
    """The scheduler answered with an error."""


class StreamError(ClientError):
    """The scheduler's answer or stream was malformed; the task itself may still settle."""


class ProofError(ClientError):
    """What the scheduler sent contradicts the chain or its own proofs."""


class TransactionRefused(ClientError):
    """The chain would not, or did not, take a transaction."""


class TicketsUnusable(ClientError):
    """Tickets cannot be bought, signed, spent or kept now."""


class AnswerNotAccepted(ClientError):
    """The task ended without its verifiers accepting the answer; scripts tell it by the exit code."""

    exit_code = 3


class AnswerUnavailable(ClientError):
    """An earlier answer cannot be had any more, or was never committed."""


class ReceiptsUnreadable(ClientError):
    """The receipts' file cannot be read or written."""


class ReceiptNotFound(ClientError):
    """No such task among this wallet's receipts."""
