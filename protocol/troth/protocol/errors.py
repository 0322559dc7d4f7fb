"""The base of all errors of Troth, and the errors of the protocol package.

TrothError                what happened, the offending value, and what to do about it
└── ProtocolError
    ├── InvalidField          a value that no message, hash or struct can carry
    ├── InvalidProof          a VRF proof, key or hint that does not verify
    ├── InvalidTrace          an array that is no trace
    ├── InvalidOpening        an opened tile that does not belong to a trace root
    ├── InvalidSignature      a signature that the contract would refuse, or another party's
    ├── InvalidRequest        a request outside its limits, or bytes that are not its canonical form
    │   └── InvalidGrammar    a grammar that is out of bounds, or that cannot be compiled
    ├── InvalidRows           rows that are not the rows that were signed
    ├── InvalidKey            a proving key's folder that is missing, broken, or of a test set-up on a real chain
    ├── InvalidNumbers        numbers that cannot be weighed exactly
    ├── InvalidStep           a step of a layer that does not exist, or whose operands are not its own
    ├── InvalidStates         states that cannot be compared
    ├── InvalidTokens         logits or tokens that cannot be checked
    └── WireError             a frame that is no message of the channel
        └── NoState           rows that hold what no state holds
"""

from __future__ import annotations

SHOWN_CHARACTERS = 200
"""How much of an offending value an error message repeats: enough to recognise it, too little to flood a log."""


class TrothError(Exception):
    """Base of the errors of all packages.

    Args:
        what: what happened, a sentence without its full stop.
        value: the offending value; never a secret. None: there is none to show.
        remedy: what the reader should do now, a sentence.
    """

    def __init__(self, what: str, value: object = None, remedy: str = "") -> None:
        self.what = what
        self.value = value
        self.remedy = remedy
        super().__init__(what, value, remedy)

    def __str__(self) -> str:
        said = self.what if self.value is None else f"{self.what}: {_shown(self.value)}"
        return f"{said}. {self.remedy}" if self.remedy else said


def _shown(value: object) -> str:
    text = f"0x{value.hex()}" if isinstance(value, bytes) else str(value)
    return text if len(text) <= SHOWN_CHARACTERS else text[:SHOWN_CHARACTERS] + "…"


class ProtocolError(TrothError, ValueError):
    """Base of every error of this package."""


class InvalidField(ProtocolError):
    """A field holds a value that its type cannot carry."""


class InvalidProof(ProtocolError):
    """A VRF key, proof or hint that does not verify (RFC 9381, section 5.3)."""


class InvalidTrace(ProtocolError):
    """An array that cannot be committed to: wrong shape, wrong number format, or a number that is not finite."""


class InvalidOpening(ProtocolError):
    """An opened tile or its proof does not lead to the trace root."""


class InvalidSignature(ProtocolError):
    """A signature that the contract would refuse, or that another party made."""


class InvalidRequest(ProtocolError):
    """A request outside its limits, or bytes that are not its canonical form."""


class InvalidGrammar(InvalidRequest):
    """A grammar that is out of bounds, that cannot be compiled, or that asks for other rules than are known here."""


class InvalidRows(ProtocolError):
    """Rows that do not continue the chain, or are not those that were signed."""


class InvalidKey(ProtocolError):
    """A proving key's folder that is missing, broken, or of a test set-up on a real chain."""


class InvalidNumbers(ProtocolError):
    """Rows of numbers that cannot be weighed exactly, or a logarithm outside its range."""


class InvalidStep(ProtocolError):
    """A step of a layer that does not exist, or operands that are not those of the step."""


class InvalidStates(ProtocolError):
    """States that cannot be compared: wrong shape or number format, or a number that is not finite."""


class InvalidTokens(ProtocolError):
    """Logits or tokens that cannot be checked: wrong shape, not finite, or outside the vocabulary."""


class WireError(ProtocolError):
    """A frame that is no message of the channel, or that exceeds a limit."""


class NoState(WireError):
    """Rows that hold NaN, infinity, or a number of 2**40 and more."""
