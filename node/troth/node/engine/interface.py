"""What the service asks of an engine; the seam for other engines than torch.

Rows are numpy matrices (positions, hidden size) in the execution class's words: float32, or uint16 that hold bfloat16
bits. Tokens are int64 vectors. Positions of one session are appended in order; going back is allowed and forgets what
came after.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray

from troth.protocol.types import Segment


class SessionKey(NamedTuple):
    """One attention cache: a task's segment at one attempt."""

    task_id: bytes
    segment: int
    attempt: int


class Computed(NamedTuple):
    """Rows, and the seconds that the model took without waiting in line."""

    rows: NDArray[Any]
    seconds: float


class Engine(Protocol):
    """Computes segments inside the slice [first, end) of one model, one job at a time."""

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

    async def forward(self, key: SessionKey, segment: Segment, start: int, inputs: NDArray[Any]) -> Computed:
        """States after the segment for positions start, start+1, … (post-norm at the last segment).

        Args:
            inputs: tokens where the segment starts at layer 0, otherwise the rows of the segment before.

        Raises:
            Busy: no memory left for another position.
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
