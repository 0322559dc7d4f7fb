"""What is asked in direct mode, and what the nodes' own numbers say about each question's way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from troth.client.template import Message
from troth.demo import acts
from troth.demo.errors import demand
from troth.demo.gateway import LocalGateway
from troth.demo.network import fetched

MAX_TOKENS = 24
INSTRUCTIONS: Message = {
    "role": "system",
    "content": " ".join(
        (
            "You help travellers. Answer in one short sentence, from these notes.",
            "Paris is the capital of France. The river Seine runs through Paris. The Louvre is a museum in Paris.",
            "Rome is the capital of Italy. The river Tiber runs through Rome. The Colosseum is in Rome.",
            "Vienna is the capital of Austria. The river Danube runs through Vienna. The Prater is a park in Vienna.",
            "London is the capital of England. The river Thames runs through London. Big Ben is in London.",
            "Lisbon is the capital of Portugal. The river Tagus runs through Lisbon. Fado is sung in Lisbon.",
            "Madrid is the capital of Spain. The river Manzanares runs through Madrid. The Prado is in Madrid.",
            "Prague is the capital of Czechia. The river Vltava runs through Prague. Charles Bridge is in Prague.",
        )
    ),
}
OPENING = "What is the capital of France?"
FURTHER = "Which river runs through it?"
STRANGERS = (
    "What is the capital of Italy?",
    "Which river runs through Vienna?",
    "What is the capital of Portugal?",
    "Which river runs through London?",
    "What is the capital of Spain?",
    "Which museum is in Paris?",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """One question's way: names of the nodes; tokens of its prompt that the serving node had told others it holds."""

    answer: str
    entered_at: str
    served_by: str
    held_tokens: int
    gas: int

    @property
    def was_forwarded_to_its_prefix(self) -> bool:
        """Whether another node than the entry served it, out of its cache."""
        return self.entered_at != self.served_by and self.held_tokens > 0


@dataclass(slots=True)
class Script:
    """Questions through one gateway, one after the other, so that every number that changes is this question's."""

    stage: acts.Stage
    gateway: LocalGateway
    asked: list[Asked] = field(default_factory=list)

    @property
    def mean_gas(self) -> int:
        """Of a task."""
        return sum(one.gas for one in self.asked) // len(self.asked)

    async def ask(self, what: str, messages: Sequence[Message], expected: str = "") -> Asked:
        """Ask, wait for the verdict, and print which way the question took."""
        stage, display = self.stage, self.stage.display
        display.step(f"{what}: {messages[-1]['content']}")
        before = await asyncio.to_thread(self._numbers)
        streamed = await asyncio.to_thread(self.gateway.converse, messages, MAX_TOKENS, display.piece)
        display.line()
        after = await asyncio.to_thread(self._numbers)
        played = await acts.settled(stage, self.gateway, streamed, tables=False)
        acts.require_accepted(played, expected)
        entered = [name for name in after if after[name].entered > before[name].entered]
        served = stage.network.node_of(streamed.served_by).name if streamed.served_by else "?"
        held = sum(after[name].held - before[name].held for name in after)
        asked = Asked(played.answer, "".join(entered), served, held, sum(played.gas.values()))
        demand(asked.entered_at != "", "the request entered at one of the nodes", asked)
        demand(served in after, "the answer is signed by the node that served it", asked)
        way = f"served there as node {served}" if served == asked.entered_at else f"forwarded to node {served}"
        display.good(
            f"entered at node {asked.entered_at}, {way}, which held {held} tokens of the prompt; all roots equal"
        )
        self.asked.append(asked)
        return asked

    def require_affinity(self, first: Asked, second: Asked) -> None:
        """A conversation goes on where it was served."""
        demand(second.entered_at == first.served_by, "the second message enters where the first was served", second)

    def require_forwarded(self) -> None:
        """Some stranger's request went to the node that held its beginning."""
        found = any(one.was_forwarded_to_its_prefix for one in self.asked)
        demand(found, "a request was forwarded to the node that held its beginning", self.asked)

    def _numbers(self) -> dict[str, _Numbers]:
        return {name: _numbers(party.endpoint) for name, party in self.stage.network.nodes.items()}


@dataclass(frozen=True, slots=True)
class _Numbers:
    entered: int
    held: int


def _numbers(endpoint: str) -> _Numbers:
    families = text_string_to_metric_families(fetched(endpoint, "/metrics"))
    samples = [sample for family in families for sample in family.samples]
    entered = sum(sample.value for sample in samples if sample.name == "troth_node_entry_requests_total")
    held = sum(sample.value for sample in samples if sample.name == "troth_node_entry_match_tokens_total")
    return _Numbers(int(entered), int(held))
