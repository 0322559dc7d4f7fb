"""VeriLLM's thresholds for its four statistics (section 7.1), which Troth reports and does not use."""

from __future__ import annotations

from dataclasses import dataclass

from troth.protocol.statistics import PaperStatistics


@dataclass(frozen=True, slots=True)
class PaperRule:
    """A set of the paper's thresholds."""

    exponent_mismatch: float
    large_deviation: float
    small_deviation: float
    mean_error: float

    def accepts(self, statistics: PaperStatistics) -> bool:
        """Whether all four hold, strictly where the paper is strict."""
        return (
            statistics.exponent_mismatch < self.exponent_mismatch
            and statistics.large_deviation > self.large_deviation
            and statistics.small_deviation > self.small_deviation
            and abs(statistics.mean_error) <= self.mean_error
        )


OFF_CHAIN_RULE = PaperRule(0.05, 0.75, 0.80, 0.01)
ON_CHAIN_RULE = PaperRule(0.08, 0.70, 0.75, 0.02)
