"""What the service asks of an engine; the seam for other engines than torch.

`Engine` computes what it is told, position by position, and every engine is one. `WholeEngine` holds a whole model and
also writes texts by itself, many at once, which is what it is fast at.

Rows are numpy matrices (positions, hidden size) in the execution class's words: float32, or uint16 that hold bfloat16
bits. Tokens are int64 vectors. Positions of one session are appended in order; going back is allowed and forgets what
came after.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeGuard, runtime_checkable

from numpy.typing import NDArray

from troth.protocol.request import Request
from troth.protocol.tokens import Sampling
from troth.protocol.types import Hash32, Segment


class Arithmetic(Protocol):
    """What of an execution class an engine must be able to do."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> int: ...
    @property
    def exact(self) -> bool: ...


class SessionKey(NamedTuple):
    """One attention cache: a task's segment at one attempt."""

    task_id: bytes
    segment: int
    attempt: int


class Computed(NamedTuple):
    """Rows, the seconds that the model took without waiting in line, and how many of the first rows were not computed
    for this but kept from another text that begins like it."""

    rows: NDArray[Any]
    seconds: float
    cached: int = 0


class TokenDraw(NamedTuple):
    """How one row chooses: its sampling, and the seed and the position of its noise."""

    sampling: Sampling
    seed: Hash32
    position: int


class Chosen(NamedTuple):
    """A token, and the seconds that head and choice took without waiting in line."""

    token: int
    seconds: float


class Engine(Protocol):
    """Computes segments inside the slice [first, end) of one model.

    What is asked for at the same time may be computed at the same time: a job of one session then takes a little longer
    than alone, and all of them together much less.
    """

    @property
    def slice(self) -> Segment:
        """The layers this engine hosts; more are in memory while former ones are still needed."""

    @property
    def layers(self) -> int:
        """Layers of the whole model; a segment that ends there is followed by the final norm."""

    @property
    def hidden_size(self) -> int:
        """Columns of a row."""

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""

    @property
    def dtype(self) -> int:
        """Words of a row: 0 float32, 1 bfloat16."""

    @property
    def tokenizer(self) -> str:
        """The text of the model's tokenizer.json, by which grammars mask tokens; empty where there is none."""

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """States after the segment for positions start, start+1, … (post-norm at the last segment).

        Args:
            inputs: tokens where the segment starts at layer 0, otherwise the rows of the segment before.

        Raises:
            Busy: no memory left for so many positions; nothing was computed, and other sessions go on.
            OutOfOrder: a position before `start` was never computed.
        """

    async def reference(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any]:
        """The same states in one float32 prefill from position 0, whatever the dtype; no session is kept."""

    async def logits(self, rows: NDArray[Any]) -> Computed:
        """What the head makes of post-norm rows: float32, shape (positions, vocabulary)."""

    def holds(self, segment: Segment) -> bool:
        """Whether every layer of a segment is in memory, of today's slice or of a former one."""

    async def rehost(self, hosted: Segment, keep: Sequence[Segment] = ()) -> None:
        """Make `hosted` the slice: read only what is not in memory yet, free what nothing needs any more.

        Sessions go on while it reads. Layers outside of `hosted` and of the segments in `keep` stay as long as a
        session uses them, and go with the last one. Repeat it with less to `keep` to free the rest.

        Raises:
            ModelError: the slice does not fit the model; the engine is as it was before.
        """

    async def forget(self, key: SessionKey) -> None:
        """Free one session."""

    async def release(self, task_id: bytes) -> None:
        """Free every session of a task."""

    @property
    def cache_bytes(self) -> int:
        """Memory held by sessions now."""

    async def close(self) -> None:
        """Stop the worker; queued jobs are dropped."""


class ChoosingEngine(Engine, Protocol):
    """An engine that chooses tokens where the logits are, for many sessions at once."""

    async def choose(self, key: SessionKey, row: NDArray[Any], draw: TokenDraw) -> Chosen:
        """The token that `troth.protocol.tokens.choose` would choose of one post-norm row, shape (1, hidden size).

        Raises:
            InvalidTokens: logits hold NaN or infinity.
        """


class VerifyingEngine(Engine, Protocol):
    """An engine that says which tokens rows choose, and keeps their logits where they are."""

    async def choices(self, rows: NDArray[Any], sampling: Sampling, *, seed: Hash32, first_position: int) -> list[int]:
        """The tokens of consecutive post-norm rows in the engine's words; see `troth.protocol.tokens.choices`.

        Raises:
            InvalidTokens: logits hold NaN or infinity.
        """


@runtime_checkable
class BoundedEngine(Protocol):
    """An engine that knows how long a text can be."""

    @property
    def positions(self) -> int:
        """Rows of the longest text; it refuses to compute more."""


@runtime_checkable
class ShakingEngine(Protocol):
    """An engine that tells how far rounding can move rows, where two orders of a sum happen to agree."""

    async def shaken(
        self, segment: Segment, inputs: NDArray[Any], *, strongly: bool = False, alike: bool = False
    ) -> NDArray[Any] | None:
        """One prefill from position 0 in the class's format, whose entering rows have their last bits changed at
        random, anew at each call; ``strongly``: by four times as much; ``alike``: each row in the same way. None where
        this model has no layers that the engine can enter."""


@runtime_checkable
class OtherwiseEngine(Protocol):
    """An engine that computes attention in two ways."""

    async def otherwise(self, segment: Segment, inputs: NDArray[Any]) -> NDArray[Any] | None:
        """One prefill from position 0 in the class's format, with attention computed in the other way; None where the
        model's family has one way alone."""


class TokenStep(NamedTuple):
    """One generated token, and the rows that were computed for it: those of the prompt with the first token, then one
    each. The last row is the one that chose the token, so that all steps' rows together are the trace."""

    token: int
    rows: NDArray[Any]


class EngineLoad(NamedTuple):
    """How busy an engine is: requests `running` and `waiting`; of `blocks` cache blocks of `block` tokens, the share
    `cache_used` (0 to 1) is in use by requests; prompt tokens asked for and found in the cache since it started."""

    running: int
    waiting: int
    cache_used: float
    blocks: int
    block: int
    prompt_tokens: int
    cached_tokens: int


class Stored(NamedTuple):
    """Blocks that the cache holds from now on, the first one after the block `parent` (32 zero bytes: at the start).

    `tokens` are those of all `blocks` together, in order, 4 bytes each and little-endian; every block has as many.
    """

    parent: bytes
    blocks: tuple[bytes, ...]
    tokens: bytes


class Removed(NamedTuple):
    """Blocks that the cache does not hold any more."""

    blocks: tuple[bytes, ...]


class Cleared(NamedTuple):
    """The cache is empty, or what it holds is not known any more."""


CacheEvent = Stored | Removed | Cleared


def chooses(engine: Engine) -> TypeGuard[ChoosingEngine]:
    """Whether an engine chooses tokens itself; asked for each token, so by its type as ``writes_alone`` is."""
    return hasattr(type(engine), "choose")


def says_choices(engine: Engine) -> TypeGuard[VerifyingEngine]:
    """Whether an engine says which tokens rows choose; by its type, as ``chooses``."""
    return hasattr(type(engine), "choices")


def writes_alone(engine: Engine) -> TypeGuard[WholeEngine]:
    """Whether an engine writes texts by itself: ``isinstance`` reads every property, a millisecond for each text."""
    return hasattr(type(engine), "generate")


@runtime_checkable
class WholeEngine(Engine, Protocol):
    """An engine that holds a whole model, batches requests by itself and keeps a cache of prefixes."""

    @property
    def positions(self) -> int:
        """The longest text, prompt and answer together."""

    @property
    def failure(self) -> str | None:
        """Why the engine cannot compute now, for /readyz; None while it can."""

    @property
    def load(self) -> EngineLoad:
        """How busy it is."""

    def generate(self, request: Request, seed: Hash32) -> AsyncGenerator[TokenStep, None]:
        """The text that a request asks for, with the public noise of `seed`; ends as `tokens.finish_reason` says.

        Closing it (`aclose`) cancels the request.

        Raises:
            Busy: the engine's process ended meanwhile; the request can be repeated, here or elsewhere.
            BadInput: tokens outside of the vocabulary, or more positions than the engine was started for.
        """

    async def prefill(self, tokens: Sequence[int], *, fresh: bool = False) -> Computed:
        """Rows of all positions of a text in one pass; raises as `generate`.

        Args:
            fresh: compute every position, also those that the cache has.
        """

    def events(self) -> AsyncIterator[CacheEvent]:
        """What happens to the cache of prefixes from now on; begins with `Cleared` and what is held, parents before
        children. Blocks are named as `vllm.blocks.block_names` names them."""
