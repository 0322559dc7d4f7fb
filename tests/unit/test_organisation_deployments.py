"""What `troth org deploy` refuses before anything is sent, and the words it has for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.organisation_record import CLASS, FIRST, HONEST, RULES, SECOND, SERVED, market, rating, reading

from troth.node.errors import ConfigError
from troth.node.organisations import deployments
from troth.node.organisations.deployments import DeployWish, OrganisationsAt, OwnerSender
from troth.protocol.calls import Call
from troth.protocol.errors import InvalidField
from troth.protocol.organisation_calls import deploy as deploy_call
from troth.protocol.types import Address

BLOCK_SECONDS = 12.0
EPOCH_DAYS = 100 * BLOCK_SECONDS / 86_400


@dataclass(frozen=True)
class Sent:
    """What would have been sent."""

    call: Call
    told: dict[str, Any]


async def deployed(monkeypatch: pytest.MonkeyPatch, wish: DeployWish, owner: Address, ratings: Any = None) -> Sent:
    """What comes of a wish; Alice, the first node's owner, has two epochs' credits."""

    async def read(_place: object) -> Any:
        return reading(*HONEST[:3], ratings=ratings), BLOCK_SECONDS

    async def send(_rpc: str, call: Call, _to: Address, _sender: object, told: dict[str, Any]) -> Any:
        return Sent(call, told)

    monkeypatch.setattr(OrganisationsAt, "read", read)
    monkeypatch.setattr(deployments, "send", send)
    monkeypatch.setattr(OwnerSender, "address", owner)
    place, sender = OrganisationsAt("", "", "", "", 0), OwnerSender(Path("unused"), None, broadcast=False)
    found: Any = await deployments.deploy(place, wish, sender)
    return found


def wish(model: str = "", replicas: int = 1, epochs: float = 1, **changes: str) -> DeployWish:
    name = model or "0x" + CLASS.hex()
    return DeployWish(name, replicas, epochs * EPOCH_DAYS, changes.get("source", "own/model"), changes.get("node", ""))


async def test_what_is_afforded_is_sent_with_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    alice = market().owner_of(FIRST)
    sent = await deployed(monkeypatch, wish(replicas=2), alice)
    assert sent.call == deploy_call(CLASS, 2, 1, FIRST, "own/model")
    assert sent.told["cost_credits"] == 2 * SERVED
    # Part of an epoch is a whole one.
    assert (await deployed(monkeypatch, wish(epochs=1.01), alice)).told["epochs"] == 2
    named = market().classes[CLASS].name
    assert (await deployed(monkeypatch, wish(named), alice)).call == deploy_call(CLASS, 1, 1, FIRST, "own/model")


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (wish(replicas=3), "2 machine epochs"),
        (wish(epochs=3), "not enough credits"),
        (wish("no such class"), "Register your model first"),
        (wish("0x" + "12" * 32), "Register your model first"),
        (wish(source="x" * 257), "Shorten --source"),
    ],
)
async def test_what_cannot_be_is_refused_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, wanted: DeployWish, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        await deployed(monkeypatch, wanted, market().owner_of(FIRST))


async def test_who_has_not_served_or_serves_badly_deploys_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="ever rated"):
        await deployed(monkeypatch, wish(), market().owner_of(SECOND))
    fallen = [rating(FIRST, epoch) for epoch in range(2)] + [rating(FIRST, 2, score=RULES.bar - 1)]
    with pytest.raises(ConfigError, match="below the bar"):
        await deployed(monkeypatch, wish(), market().owner_of(FIRST), fallen)


async def test_no_machine_is_no_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidField, match="replicas"):
        await deployed(monkeypatch, wish(replicas=0), market().owner_of(FIRST))
