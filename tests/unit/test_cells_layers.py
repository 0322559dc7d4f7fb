"""A layer refuses what is not exactly the next cell, and no cell tells where on its path it is."""

from __future__ import annotations

import secrets

import pytest
from support.overlay_vectors import back, layers, through

from troth.overlay.cells.format import MAX_HOPS, STACK, TAG
from troth.overlay.cells.onion import MAX_CELLS, NO_TAG
from troth.transport.errors import CellTampered, MalformedCell, QuotaExceeded

PAYLOAD = secrets.token_bytes(935)
BODY = len(PAYLOAD) + STACK + TAG
PLACES = (0, TAG, STACK - 1, STACK, STACK + 500, BODY - TAG - 1, BODY - TAG, BODY - 1)


@pytest.mark.parametrize("hops", range(1, MAX_HOPS + 1))
def test_each_hop_can_be_spoken_to_and_can_speak(hops: int) -> None:
    onion, relays = layers(hops)
    for hop in [*range(1, hops + 1), *range(hops, 0, -1)]:
        bodies = through(relays[:hop], onion.seal(PAYLOAD, hop))
        assert bodies[-1][STACK:-TAG] == PAYLOAD
        assert [body[-TAG:] == NO_TAG for body in bodies] == [False] * hop + [True]
        assert onion.peel(back(relays[:hop], PAYLOAD)[-1]) == (hop, PAYLOAD)


@pytest.mark.parametrize("hops", range(1, MAX_HOPS + 1))
def test_a_body_has_the_same_length_on_every_link_and_shares_no_bytes_with_another(hops: int) -> None:
    onion, relays = layers(hops)
    for bodies in (through(relays, onion.seal(bytes(935)))[:-1], back(relays, bytes(935))):
        assert {len(body) for body in bodies} == {BODY}
        windows = [{body[start : start + 4] for start in range(BODY - 3)} for body in bodies]
        for index, one in enumerate(windows):
            # 4 bytes of 1,015 by 1,015 random ones: equal by chance once in 4,000; no more than one may be.
            assert all(len(one & other) <= 1 for other in windows[index + 1 :])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("link", [0, 1, 2])
def test_a_changed_cell_ends_at_the_next_hop(link: int, place: int) -> None:
    onion, relays = layers(3)
    body = bytearray(through(relays[:link], onion.seal(PAYLOAD))[-1])
    body[place] ^= 1
    with pytest.raises(CellTampered):
        relays[link].open(bytes(body))


@pytest.mark.parametrize("link", [0, 1, 2])
@pytest.mark.parametrize(("accepted", "refused"), [((0,), 0), ((), 1), ((0, 1), 0), ((0,), 2)])
def test_a_repeated_a_swapped_and_a_missing_cell_end_at_the_next_hop(
    link: int, accepted: tuple[int, ...], refused: int
) -> None:
    onion, relays = layers(3)
    cells = [through(relays[:link], onion.seal(PAYLOAD))[-1] for _ in range(3)]
    for index in accepted:
        relays[link].open(cells[index])
    with pytest.raises(CellTampered):
        relays[link].open(cells[refused])


@pytest.mark.parametrize("place", [0, TAG - 1, STACK, STACK + 500, BODY - TAG, BODY - 1])
@pytest.mark.parametrize("link", [0, 1, 2])
def test_a_cell_changed_on_its_way_back_is_refused_and_the_pair_beside_the_link_is_named(link: int, place: int) -> None:
    """`link` counts from the client: between hop `link` and hop `link` + 1."""
    onion, relays = layers(3)
    body = bytearray(back(relays[link:], PAYLOAD)[-1])
    body[place] ^= 1
    for relay in reversed(relays[:link]):
        body = bytearray(b"".join(relay.wrap(bytes(body))))
    with pytest.raises(CellTampered) as caught:
        onion.peel(bytes(body))
    assert caught.value.layer == link + 1


def test_a_false_filler_frames_nobody() -> None:
    """Slots that no one reads are covered by no tag on the way back: the proxy may fill them as it likes."""
    onion, relays = layers(3)
    body = bytearray(b"".join(relays[2].originate(PAYLOAD)))
    body[3 * TAG] ^= 1
    for relay in (relays[1], relays[0]):
        body = bytearray(b"".join(relay.wrap(bytes(body))))
    assert onion.peel(bytes(body)) == (3, PAYLOAD)


def test_a_relay_cannot_speak_for_another() -> None:
    """What the second relay says is heard from the second relay."""
    onion, relays = layers(3)
    assert onion.peel(b"".join(relays[0].wrap(b"".join(relays[1].originate(PAYLOAD))))) == (2, PAYLOAD)


def test_what_a_relay_makes_up_is_nobodys_word() -> None:
    onion, relays = layers(3)
    with pytest.raises(CellTampered) as caught:
        onion.peel(b"".join(relays[0].wrap(secrets.token_bytes(BODY))))
    assert caught.value.layer == 2


def test_a_path_has_a_longest_length() -> None:
    onion, _ = layers(MAX_HOPS)
    with pytest.raises(MalformedCell):
        onion.add(None)  # type: ignore[arg-type]


def test_a_key_is_used_up_before_its_nonces_repeat() -> None:
    _, relays = layers(1)
    relays[0]._backward.count = MAX_CELLS
    with pytest.raises(QuotaExceeded):
        relays[0].originate(PAYLOAD)
