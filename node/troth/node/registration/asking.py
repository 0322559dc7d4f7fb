"""What a node asks for segments that it is about to join: prices by the layers that it computes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from troth.node.errors import ConfigError
from troth.protocol.market.state import State
from troth.protocol.market.types import Ask
from troth.protocol.types import Address, Segment

NEWEST = 1 << 62
"""A block after all others."""


def ask_of(text: str) -> Ask:
    """PROMPT,CACHED,WRITTEN in asset units per 10^9 positions; raises ConfigError."""
    try:
        prompt, cached, written = (int(part) for part in text.split(","))
    except ValueError as error:
        remedy = "For example 300000000,30000000,600000000: asset units per 10^9 positions."
        raise ConfigError("an ask is PROMPT,CACHED,WRITTEN", text, remedy) from error
    if not all(0 <= one < 1 << 64 for one in (prompt, cached, written)):
        raise ConfigError("a price is 0 to 2**64 - 1", text, "Ask less.")
    return Ask(prompt, cached, written)


def asks_for(
    segments: Iterable[Segment], present: Mapping[Segment, Ask], layers: int, whole: Ask | None
) -> dict[Segment, Ask]:
    """The ask for each segment: what is asked now where the node is in it, else by its share of the layers.

    Rounded down, as the bound of an order is: a node that asks for all layers what an order pays for them is never
    passed over for a part.

    Args:
        present: what is asked on chain for the segments that the node is in.
        layers: of the model.
        whole: what is asked for all of them; None: what the dearest of ``present`` comes to.

    Raises:
        ConfigError: nothing says what to ask.
    """
    wanted = tuple(segments)
    missing = [segment for segment in wanted if segment not in present]
    if missing and whole is None and not present:
        remedy = 'Set auto.ask = "PROMPT,CACHED,WRITTEN" in node.toml: for all layers of the model.'
        raise ConfigError("what this node asks is not said", missing, remedy)
    return {one: present[one] if one in present else _share(one, present, layers, whole) for one in wanted}


def _share(segment: Segment, present: Mapping[Segment, Ask], layers: int, whole: Ask | None) -> Ask:
    parts = [(whole, layers)] if whole is not None else [(ask, one.end - one.first) for one, ask in present.items()]
    width = segment.end - segment.first
    return Ask(
        prompt=max(ask.prompt * width // of for ask, of in parts),
        cached=max(ask.cached * width // of for ask, of in parts),
        written=max(ask.written * width // of for ask, of in parts),
    )


def asks_of(state: State, operator: Address, layers: int) -> dict[Segment, Ask]:
    """What a node asks on chain for the segments whose groups it is in."""
    own = set(state.groups_of(operator))
    spans = (Segment(first, end) for first in range(layers) for end in range(first + 1, layers + 1))
    joined = ((span, state.group_of(operator, span)) for span in spans)
    return {span: state.ask_at(group, operator, NEWEST) for span, group in joined if group in own}
