"""Transforms at work: what is done to each row of logits in turn, for who chooses tokens and for who judges them.

Masks come from llguidance, whose Earley parser and lexer are bounded in steps and not in seconds: its masks are a pure
function of grammar, tokenizer and tokens. To keep it one, everybody computes the mask before each token, in order.
A token is allowed if the grammar can go on with it. End tokens are allowed where the grammar may end, and nothing else
is where it must: because it is complete, because no token goes on with it, or because a limit was met.
"""

from __future__ import annotations

import importlib.metadata
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from llguidance import LLMatcher, LLParserLimits, LLTokenizer
from numpy.typing import NDArray

from troth.protocol.errors import InvalidGrammar, InvalidTokens
from troth.protocol.grammar import MASK_RULES, Grammar
from troth.protocol.request import Request
from troth.protocol.transforms import MILLION, Transforms

COMPILER = ("llguidance", "1.7.6")
"""The package and its version that ``MASK_RULES`` names."""
LIMITS = LLParserLimits(
    max_items_in_row=1_000,
    initial_lexer_fuel=500_000,
    step_lexer_fuel=100_000,
    step_max_items=20_000,
    max_lexer_states=20_000,
    max_grammar_size=100_000,
    verbose_errors=False,
)
"""Bounds on time and memory, a part of ``MASK_RULES``: another limit ends other texts."""
STACK_BYTES = 64 << 20
"""Stack of the thread that compiles, which recurses into a schema: of address space, not of memory."""
VOCABULARIES = 4
"""Tokenizers that are kept ready; one takes a third of a second to read."""

Result = TypeVar("Result")
_STACKS = threading.Lock()


@lru_cache(maxsize=VOCABULARIES)
def _vocabulary(tokenizer: str, size: int, end: int) -> LLTokenizer:
    if not tokenizer.lstrip().startswith("{"):
        # Anything else would be looked for as a file, or in a hub.
        raise InvalidGrammar("This model has no tokenizer that masks could be computed with", "", "Ask without one.")
    try:
        return LLTokenizer(tokenizer, n_vocab=size, eos_token=end, slices=None)
    except Exception as error:  # llguidance raises bare exceptions
        what = "Masks cannot be computed with this model's tokenizer"
        raise InvalidGrammar(what, str(error)[:80], "Ask without a grammar, or use another model.") from error


def require_rules(grammar: Grammar) -> None:
    """Raise InvalidGrammar unless masks are computed here as the grammar names it."""
    package, wanted = COMPILER
    found = importlib.metadata.version(package)
    if grammar.rules != MASK_RULES or found != wanted:
        what = f"Masks are computed by {MASK_RULES} here, with {package} {found}"
        raise InvalidGrammar(what, grammar.rules, f"Name {MASK_RULES}; install {package}=={wanted}.")


def compiled(grammar: Grammar, tokenizer: str, vocabulary: int, end_tokens: Sequence[int]) -> LLMatcher:
    """A matcher at its beginning; ``tokenizer`` is the text of tokenizer.json, ``vocabulary`` the number of logits.

    Takes milliseconds, and a third of a second at the first use of a tokenizer. Raises InvalidGrammar.
    """
    require_rules(grammar)
    known = _vocabulary(tokenizer, vocabulary, min(end_tokens))
    matcher = _with_stack(lambda: LLMatcher(known, grammar.lark, log_level=0, limits=LIMITS))
    if matcher.is_error():
        said = matcher.get_error().split("\n")[0][:160]
        raise InvalidGrammar("The grammar cannot be compiled", said, "Correct the schema, or use a simpler one.")
    return matcher


def _with_stack(work: Callable[[], Result]) -> Result:
    """Do it in a thread of its own, whose stack no schema within the bounds fills."""
    found: list[Result] = []
    with _STACKS:
        before = threading.stack_size(STACK_BYTES)
        try:
            thread = threading.Thread(target=lambda: found.append(work()), name="grammar")
            thread.start()
        finally:
            threading.stack_size(before)
    thread.join()
    if not found:
        raise InvalidGrammar("The grammar cannot be compiled", "the compiler failed", "Use a simpler schema.")
    return found[0]


@dataclass(frozen=True, slots=True)
class RowRule:
    """What is done to one row: see `transforms`.

    ``seen`` are tokens that the repetition penalty finds, ``moved`` those to which ``millionths`` are added;
    ``allowed`` are the tokens that are left, rising, or None for all.
    """

    repetition: int
    seen: NDArray[np.int64]
    moved: NDArray[np.int64]
    millionths: NDArray[np.int64]
    allowed: NDArray[np.int64] | None

    @property
    def stretch(self) -> float:
        """By how much rounding of logits may have grown; margins are divided by it."""
        return self.repetition / MILLION

    def apply(self, logits: NDArray[np.float32] | NDArray[np.float64]) -> NDArray[np.float64]:
        """The changed row, shape (vocabulary,), before anything is left out."""
        values = logits.astype(np.float64)
        if self.repetition != MILLION:
            found, factor = values[self.seen], self.repetition / MILLION
            values[self.seen] = np.where(found > 0, found / factor, found * factor)
        values[self.moved] += self.millionths / MILLION
        return values

    def place(self, token: int) -> int | None:
        """Where a token stands among those that are left; None if it is forbidden."""
        if self.allowed is None:
            return token
        index = int(np.searchsorted(self.allowed, token))
        return index if index < len(self.allowed) and self.allowed[index] == token else None

    def kept(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """A row of the whole vocabulary without the tokens that are forbidden."""
        return row if self.allowed is None else row[self.allowed]


class TextRules:
    """The rules of one text, token by token: ``row`` for the next one, then ``take`` it."""

    def __init__(self, request: Request, vocabulary: int, tokenizer: str) -> None:
        """``tokenizer`` is the text of the model's tokenizer.json; only a grammar needs it. Raises InvalidGrammar."""
        if request.highest_token >= vocabulary:
            what = f"A token id is below the vocabulary of {vocabulary}"
            raise InvalidTokens(what, request.highest_token, "Use the model's own tokenizer.")
        self._transforms: Transforms = request.transforms
        self._vocabulary = vocabulary
        self._ends = np.array(request.end_tokens, dtype=np.int64)
        self._seen = set(request.prompt_tokens)
        self._counts: dict[int, int] = {}
        self._biases = dict(request.transforms.biases)
        grammar = request.transforms.grammar
        self._matcher = None if grammar is None else compiled(grammar, tokenizer, vocabulary, request.end_tokens)
        self._next: RowRule | None = None
        self.taken = 0
        written = request.transforms.written
        for token in request.prompt_tokens[len(request.prompt_tokens) - written :]:
            self.take(token)
        self.taken = 0

    def row(self) -> RowRule:
        """What is done to the row that chooses the next token."""
        if self._next is None:
            moved, millionths = self._moves()
            seen = self._seen if self._transforms.repetition != MILLION else ()
            self._next = RowRule(
                self._transforms.repetition,
                np.fromiter(sorted(seen), dtype=np.int64, count=len(seen)),
                moved,
                millionths,
                self._allowed(),
            )
        return self._next

    def take(self, token: int) -> None:
        """A token was chosen, whether or not it was allowed."""
        if not 0 <= token < self._vocabulary:
            raise InvalidTokens(f"A token id is below the vocabulary of {self._vocabulary}", token, "Check it.")
        if self._matcher is not None and not self._matcher.is_stopped():
            if self._next is None:
                # The mask is computed before each token, also where nobody asks for it: limits count its steps. Its
                # bits alone, since what makes a row of them takes longer than they do.
                self._matcher.compute_bitmask()
            self._matcher.consume_token(token)
        self._next = None
        self._seen.add(token)
        self._counts[token] = self._counts.get(token, 0) + 1
        self.taken += 1

    def take_all(self, tokens: Iterable[int]) -> None:
        """Several tokens, in order."""
        for token in tokens:
            self.take(token)

    def along(self, tokens: Sequence[int]) -> list[RowRule]:
        """The rules of the rows that chose these tokens, which are taken."""
        found = []
        for token in tokens:
            found.append(self.row())
            self.take(token)
        return found

    def _moves(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        asked = self._transforms
        counted = self._counts if asked.presence or asked.frequency else {}
        tokens = sorted({*counted, *self._biases})
        sums = [
            self._biases.get(token, 0) - (asked.presence + asked.frequency * counted[token] if token in counted else 0)
            for token in tokens
        ]
        return np.array(tokens, dtype=np.int64), np.array(sums, dtype=np.int64)

    def _allowed(self) -> NDArray[np.int64] | None:
        if self._matcher is None:
            return None
        if self._matcher.is_stopped():
            return self._ends
        mask = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        bits = np.unpackbits(mask, count=self._vocabulary, bitorder="little")
        bits[self._ends] = not self._matcher.is_error() and self._matcher.is_accepting()
        allowed = np.flatnonzero(bits).astype(np.int64)
        return allowed if len(allowed) and not self._matcher.is_error() else self._ends


def text_rules(request: Request, vocabulary: int, tokenizer: str) -> TextRules | None:
    """The rules of a request's text; None where its logits are left as they are. Raises InvalidGrammar."""
    return TextRules(request, vocabulary, tokenizer) if request.transforms.any else None
