"""What the local network consists of."""

from __future__ import annotations

from dataclasses import dataclass

GWEI = 10**9
ETHER = 10**18


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes of the local network.

    Attributes:
        slices: layers of each slice, [first, end); each is a segment of every request
        nodes_per_slice: at least candidates + verifiers
        unit: wei per unit of pay
        block_seconds: seconds between blocks of the local chain
        reviewers: of a disputed segment; 0 for the class's default
        members: of the committee that signs the overlay's directory
        relays: of the overlay; 0 for a network without one
        engine: of every node, torch or vllm
        refuser: beside the scheduler there is a second one that refuses checks
        exact: traces are compared bit by bit instead of by calibrated thresholds
        windows: commit, sample, reveal, dispute and unbonding periods in blocks
    """

    model: str = "smollm2-135m"
    slices: tuple[tuple[int, int], ...] = ((0, 15), (15, 30))
    nodes_per_slice: int = 5
    candidates: int = 2
    verifiers: int = 3
    reviewers: int = 0
    unit: int = 1_000 * GWEI
    block_seconds: float = 1.0
    windows: tuple[int, int, int, int, int] = (120, 60, 30, 60, 900)
    dtype: str = "float32"
    members: int = 4
    relays: int = 0
    engine: str = "torch"
    exact: bool = False
    refuser: bool = False

    @property
    def node_names(self) -> tuple[str, ...]:
        """`a1` … `a5` host the first slice, `b1` … the second, and so on."""
        return tuple(
            f"{chr(ord('a') + index)}{number}"
            for index in range(len(self.slices))
            for number in range(1, self.nodes_per_slice + 1)
        )

    def slice_of(self, name: str) -> tuple[int, int]:
        """The layers that the node of this name hosts."""
        return self.slices[ord(name[0]) - ord("a")]
