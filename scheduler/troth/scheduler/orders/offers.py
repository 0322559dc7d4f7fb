"""What a scheduler of a market offers: classes, how they are split, and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from troth.protocol import tensors
from troth.protocol.amounts import price_text
from troth.protocol.architecture import without_version
from troth.protocol.errors import ProtocolError
from troth.protocol.identifiers import group_id
from troth.protocol.market import draws, prices, views
from troth.protocol.market.notes import epoch_of
from troth.protocol.market.prices import MILLION, PER
from troth.protocol.market.rows import HASH_BYTES, travel_as_hashes
from troth.protocol.market.state import State
from troth.protocol.market.suspicion import SuspectList, raised_rate, worst_of
from troth.protocol.market.types import ExecutionClass, Rules
from troth.protocol.organisation_events import HostedDeployment
from troth.protocol.reputation import LEAST_REPUTATION, Reputation
from troth.protocol.tensors import Dtype
from troth.protocol.types import Address, Hash32, ModelDescriptor, Segment, segments_from_ends
from troth.scheduler.errors import UnknownClass
from troth.scheduler.served import ServedClass

MOST_DEPLOYMENTS = 16
"""Of one class in a price list: clients read no more."""


@dataclass(frozen=True, slots=True)
class PriceList:
    """Least prices per 10^9 positions in the asset's smallest unit, and the nodes' share of them in basis points."""

    prompt: int
    cached: int
    written: int
    node_share: int = 8_000


@dataclass(frozen=True, slots=True)
class ClassOffer:
    """A served class with what the chain knows of it, how its layers are split now, and its prices."""

    served: ServedClass
    execution_class: ExecutionClass
    model: ModelDescriptor
    rules: Rules
    spans: tuple[Segment, ...]
    prices: PriceList

    @property
    def ends(self) -> tuple[int, ...]:
        """Where the segments end."""
        return tuple(span.end for span in self.spans)

    @property
    def dtype(self) -> Dtype:
        """Number format of the rows."""
        return Dtype(self.rules.dtype)

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return tensors.row_size(self.rules.hidden_size, self.dtype)

    @property
    def sends_hashes(self) -> bool:
        """Row hashes travel, and are kept, in place of rows."""
        return travel_as_hashes(exact=self.rules.exact, segments=len(self.spans))

    @property
    def sent_bytes(self) -> int:
        """Bytes of what travels of one row."""
        return HASH_BYTES if self.sends_hashes else self.row_bytes


class Offers:
    """The served classes by id. ``ends_of`` says into which segments a class is split now."""

    def __init__(
        self,
        served: Iterable[ServedClass],
        listed: Mapping[Hash32, PriceList],
        ends_of: Callable[[ServedClass], tuple[int, ...]] | None = None,
    ) -> None:
        self._served = {entry.class_id: entry for entry in served}
        self._listed = dict(listed)
        self._ends_of = ends_of or (lambda entry: entry.ends)

    def ids(self) -> list[Hash32]:
        """The served class ids."""
        return list(self._served)

    def served(self, class_id: Hash32) -> ServedClass:
        """The entry of a class; raises UnknownClass."""
        entry = self._served.get(class_id)
        if entry is None:
            what = "This scheduler does not serve the execution class"
            raise UnknownClass(what, "0x" + class_id.hex(), "GET /v1/info lists what it serves.")
        return entry

    def offer(self, class_id: Hash32, state: State, ends: tuple[int, ...] | None = None) -> ClassOffer:
        """The class as it is offered now, or as an order split it; raises UnknownClass where the chain lacks it."""
        served = self.served(class_id)
        try:
            execution_class, model = views.class_of(state, class_id)
            spans = segments_from_ends(ends or self._ends_of(served), model.layers)
        except ProtocolError as error:
            raise UnknownClass(error.what, "0x" + class_id.hex(), "Register model and class first.") from error
        rules = prices.rules_of(execution_class, hidden_size=model.hidden_size, layers=model.layers)
        return ClassOffer(served, execution_class, model, rules, spans, self._listed[class_id])

    def problems(self, state: State) -> list[str]:
        """Why a served class cannot be served now; empty if all is well."""
        found = []
        for class_id, entry in self._served.items():
            try:
                offer = self.offer(class_id, state)
            except UnknownClass as error:
                found.append(str(error))
                continue
            if without_version(offer.model.architecture) != entry.texts.architecture:
                what = "the model folder holds another tokenizer, template or configuration"
                found.append(f"class 0x{class_id.hex()}: {what}")
        return found


def price_entry(
    offer: ClassOffer,
    *,
    checks: bool,
    check_rate: int,
    decimals: int,
    settled: int = 0,
    rated: Mapping[str, int] | None = None,
    deployments: Sequence[HostedDeployment] = (),
) -> dict[str, object]:
    """One class in the form of OpenRouter's models list; the checks' share is in both prices.

    Args:
        check_rate: the rate of checks that clients are advised to order.
        settled: blocks that follow an order's reference block, beside the newest.
        rated: what the committee says of its nodes, where this scheduler follows it.
        deployments: of organisations that have this class hosted, where this scheduler follows them.
    """
    listed, rules = offer.prices, offer.rules
    share = rules.check_price * rules.verifiers * len(offer.spans) * check_rate // MILLION
    return {
        "id": "0x" + offer.served.class_id.hex(),
        "name": offer.execution_class.name,
        "context_length": offer.served.context,
        "pricing": {
            "prompt": price_text(listed.prompt + share, decimals),
            "completion": price_text(listed.written + share, decimals),
            "input_cache_read": price_text(listed.cached + share, decimals),
        },
        "troth": {
            "class": "0x" + offer.served.class_id.hex(),
            "ends": list(offer.ends),
            "prompt_price": str(listed.prompt),
            "cached_price": str(listed.cached),
            "written_price": str(listed.written),
            "node_share": listed.node_share,
            "check_rate": check_rate,
            "check_price": str(rules.check_price),
            "fee_cap": str(rules.fee_cap),
            "checks": checks,
            "settled_blocks": settled,
            "per": str(PER),
            **({} if rated is None else {"reputation": dict(rated)}),
            **({"deployed_by": _deployed_by(deployments, offer.model.layers)} if deployments else {}),
        },
    }


def _deployed_by(deployments: Iterable[HostedDeployment], layers: int) -> list[dict[str, object]]:
    """Whose model it is, on how many machines, and until when; those that have most left, where there are many."""
    largest = sorted(deployments, key=lambda one: (-one.reserve, one.number))[:MOST_DEPLOYMENTS]
    return [
        {
            "deployment": one.number,
            "owner": one.owner,
            "replicas": one.replicas,
            "hosted_layers": f"{one.hosted} of {one.replicas * layers}",
            "last_epoch": one.end - 1,
        }
        for one in largest
    ]


def check_rate(offer: ClassOffer, state: State, block: int, known: SuspectList | None) -> int:
    """The class's rate of checks, raised where a node that may serve is under suspicion."""
    least = offer.rules.least_check_rate
    if known is None:
        return least
    suspect = worst_of(known, offer.served.class_id, _nodes(offer, state, block), epoch_of(block))
    return least if suspect is None else raised_rate(least, suspect.strength)


def _nodes(offer: ClassOffer, state: State, block: int) -> set[Address]:
    """Those that may serve."""
    groups = (state.group(group_id(offer.served.class_id, span)) for span in offer.spans)
    return {entry.operator for group in groups for entry in group.members_at(block) if entry.seats}


def rated_nodes(offer: ClassOffer, state: State, block: int, reputation: Reputation) -> dict[str, int]:
    """How many nodes host the class, how many of them take work, and the mean score of those, in parts of 1,000."""
    nodes = _nodes(offer, state, block)
    scores = [score for score in map(reputation, nodes) if score >= LEAST_REPUTATION]
    mean = round(1000 * sum(scores) / len(scores)) if scores else 0
    return {"nodes": len(nodes), "trusted": len(scores), "mean_thousandths": mean}


def offers_checks(offer: ClassOffer, state: State, block: int) -> bool:
    """Whether every segment's group has the owners without whom a check says nothing."""
    groups = (state.group(group_id(offer.served.class_id, span)) for span in offer.spans)
    return all(draws.offers_checks(group, offer.rules, block) for group in groups)
