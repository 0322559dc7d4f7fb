"""What a chain with a scene's groups answers to the calls of the explorer's receipt page."""

from __future__ import annotations

from typing import Any

from support.market_record import PLACE
from support.market_scene import DOMAIN, SEASONING, Scene

from troth.protocol import vrf
from troth.protocol.hashing import keccak256
from troth.protocol.market import draws, messages
from troth.protocol.market.calls import build
from troth.protocol.market.parts import Part
from troth.protocol.market.receipt import Receipt
from troth.protocol.types import Hash32, address_to_bytes


def answers(scene: Scene, found: Receipt) -> tuple[dict[str, str], dict[str, str]]:
    """What a chain with the scene's groups answers to the page's calls: addresses, and answers by call."""
    view, group = scene.view, scene.view.groups[0]
    contracts = [DOMAIN.contract, *("0x" + f"{number:040d}" for number in range(1, 11))]
    places = {"registry": PLACE.contracts.registry, "lens": PLACE.contracts.lens}
    contracts[1] = places["registry"]
    made = {call(places["lens"], "contracts()"): b"".join(bytes(12) + bytes.fromhex(one[2:]) for one in contracts)}
    made[call(places["registry"], "vrfKeyOf(address)", found.tab.payee)] = b"".join(
        one.to_bytes(32) for one in view.vrf_key
    )
    for node in found.nodes:
        profile = [32, 1, int(group.owners[node], 16), *([0] * 16)]
        made[call(places["lens"], "profileOf(address)", node)] = b"".join(one.to_bytes(32) for one in profile)
    for request in requests(scene, found):
        built = build(PLACE.contracts, Part.LENS, "draw", request)
        drawn = draws.draw(request, group, seat_cap=view.rules.seat_cap, seasoning=SEASONING).operators
        head = [(64).to_bytes(32), (64 + 32 * (1 + len(drawn))).to_bytes(32), len(drawn).to_bytes(32)]
        body = [bytes(12) + address_to_bytes(one) for one in drawn]
        made[f"{places['lens']} 0x{built.call.data.hex()}"] = b"".join((*head, *body, bytes(32)))
    return places, {name: "0x" + data.hex() for name, data in made.items()}


def call(to: str, signature: str, *accounts: str) -> str:
    data = keccak256(signature.encode())[:4] + b"".join(bytes(12) + bytes.fromhex(one[2:]) for one in accounts)
    return f"{to} 0x{data.hex()}"


def requests(scene: Scene, found: Receipt) -> list[Any]:
    """Every draw of an order, as the contracts are asked for it."""
    view, order, made = scene.view, found.order.message, []
    infer = vrf.verify(view.vrf_key, messages.infer_alpha(scene.order_id), found.infer_proof)
    results = [one.message for one in found.results]
    assert found.secret is not None
    seed = messages.check_seed(scene.order_id, found.secret, found.draw.message.beta, messages.results_hash(results))
    owners = tuple(dict.fromkeys(view.groups[0].owners[node] for node in found.nodes))
    for segment, span in enumerate(view.segments(order)):
        own = messages.segment_seed(Hash32(infer), segment)
        made.append(draws.inferencers_request(order, view.rules, span, own))
        made.append(draws.verifiers_request(order, view.rules, span, messages.segment_seed(seed, segment), owners))
    return made
