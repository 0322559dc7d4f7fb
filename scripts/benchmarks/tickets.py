"""Tickets: what blind signatures and their checks cost members, clients and schedulers, and redeeming on chain."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.ticket_committee import TicketCommittee
from support.tickets_stage import TicketsStage, tickets_stage

from benchmarks.figures import Figure, median_milliseconds, processor_milliseconds
from troth.chain.keystore import Key
from troth.protocol.hashing import keccak256
from troth.protocol.market.calls import build
from troth.protocol.market.messages import sign, tab_id
from troth.protocol.market.parts import Part
from troth.protocol.market.types import Tab, Voucher
from troth.protocol.tickets import messages
from troth.protocol.tickets.curve import decode_point, encode_point
from troth.protocol.tickets.purchases import points_of, ticket_secret, ticket_secrets
from troth.protocol.tickets.signing import SignedName, are_signed, combine, gather, is_signed, sign_blinded
from troth.testnet.anvil import fund, start_anvil
from troth.testnet.anvil import rpc as node_call
from troth.testnet.processes import ProcessGroup

MEMBERS, THRESHOLD, BATCH = 7, 5, 32
TRIALS = {1: 293_000, 8: 93_000, 32: 75_000, 100: 71_000}
"""Gas a ticket in a trial that came before: redeeming alone, without a tab."""


def measure() -> Iterator[Figure]:
    """Processor times on one thread of this machine, then gas by receipts of a real EVM."""
    committee = TicketCommittee.dealt(members=MEMBERS, threshold=THRESHOLD, denominations=1)
    yield from _signing(committee)
    yield from _checking(committee)
    yield from _gas()


def _signing(committee: TicketCommittee) -> list[Figure]:
    secret = ticket_secret(bytes(32), 0)
    seen = encode_point(secret.point)
    parts = {number: encode_point(committee.part(number, secret.point)) for number in range(1, THRESHOLD + 1)}
    share = committee.shares[1][0]

    def client() -> bytes:
        encode_point(secret.point)
        return encode_point(combine({number: decode_point(part) for number, part in parts.items()}, secret.blinding))

    def member() -> bytes:
        return encode_point(sign_blinded(decode_point(seen), share))

    ours, theirs = processor_milliseconds(client), processor_milliseconds(member)
    note = (
        f"client {ours:.2f} ms (blinds, decodes five parts, joins and unblinds them), each member {theirs:.2f} ms; "
        f"by the clock {median_milliseconds(client) + median_milliseconds(member):.2f} ms"
    )
    return [
        Figure("blind signature, 5 of 7, client and members", ours + theirs, "ms", paper=0.39, reach=1.0, note=note),
        Figure("the five members one after the other", THRESHOLD * theirs, "ms"),
        _purchase(committee),
    ]


def _purchase(committee: TicketCommittee) -> Figure:
    """All that a client does for a purchase: its points, every member's parts decoded, joined, unblinded, checked."""
    numbers = range(1, MEMBERS + 1)
    points = [one.point for one in ticket_secrets(bytes(32), BATCH)]
    answers = {number: committee.answer(number, points) for number in numbers}

    def client() -> object:
        secrets = ticket_secrets(bytes(32), BATCH)
        blinded, blindings = [decode_point(one) for one in points_of(secrets)], [one.blinding for one in secrets]
        return gather(blinded, blindings, answers, committee.keys, 0)

    note = "seven members' answers decoded, five of them joined, all checked by one pairing"
    spent = processor_milliseconds(client, repeats=20, warm_up=2)
    return Figure(f"a client's part of a purchase of {BATCH}, a ticket", spent / BATCH, "ms", note=note)


def _checking(committee: TicketCommittee) -> list[Figure]:
    key = committee.keys.key(0)
    batch = [SignedName(one.name, committee.signature(one), (0, 0)) for one in ticket_secrets(bytes(32), BATCH)]

    def single() -> bool:
        return is_signed(batch[0].name, batch[0].signature, key)

    def many() -> bool:
        return are_signed(batch, {(0, 0): key})

    one, all_ = processor_milliseconds(single), processor_milliseconds(many, repeats=40, warm_up=3)
    clock = median_milliseconds(single), median_milliseconds(many, repeats=40, warm_up=3) / BATCH
    return [
        Figure("ticket check at a scheduler", one, "ms", paper=1.3, reach=1.3, note=f"by the clock {clock[0]:.2f} ms"),
        Figure(
            "ticket check at a scheduler, in batches of 32",
            all_ / BATCH,
            "ms",
            paper=0.5,
            reach=0.5,
            note=f"by the clock {clock[1]:.2f} ms",
        ),
    ]


def _gas() -> list[Figure]:
    with tempfile.TemporaryDirectory() as folder:
        processes = ProcessGroup(Path(folder))
        try:
            _, rpc = start_anvil(processes, block_seconds=0)
            payer = Key.generate()
            fund(rpc, payer.address, 10**20)
            return asyncio.run(_measured(rpc, payer))
        finally:
            processes.stop_all()


async def _measured(rpc: str, payer: Key) -> list[Figure]:
    def mine(blocks: int) -> None:
        node_call(rpc, "anvil_mine", hex(blocks))

    stage = await tickets_stage(rpc, payer, mine, epoch_blocks=10_000)
    try:
        keys = await stage.register(1)
        redeemed = [await _redeeming(stage, count) for count in TRIALS]
        dealt = Figure("registering an epoch's keys: three prices, five signatures", keys.gas_used, "gas")
        return [*redeemed, *await _settling(stage), dealt]
    finally:
        await stage.chain.close()
        await stage.market.close()


async def _redeeming(stage: TicketsStage, count: int) -> Figure:
    bought = await stage.buy(1, count)
    spending = await stage.spending(bought, range(count), stage.payer.address, Key.generate(), 0)
    gas = (await stage.spend(bought, spending)).gas_used
    reach = 80_000 if count == BATCH else None
    note = f"{gas:,} in all, with the tab that it opens and its payer"
    return Figure(
        f"redeeming on chain at {count}, a ticket", gas / count, "gas", paper=TRIALS[count], reach=reach, note=note
    )


async def _settling(stage: TicketsStage) -> list[Figure]:
    """What a scheduler pays later, for all tickets of one tab: vouchers pay its orders, and one redeems them."""
    tab_key, scheduler = Key.from_secret(keccak256(b"troth ticket tab")), Key.generate()
    bought = await stage.buy(1, BATCH)
    purchased = await stage.send(messages.buy(stage.another(bought), stage.rules.prices[1] * BATCH))
    await stage.spend(bought, await stage.spending(bought, range(BATCH), scheduler.address, tab_key, 0))
    payer = await stage.chain.read(messages.payer_of(tab_key.address))
    tab = Tab(payer, scheduler.address, tab_key.address)
    gas = 0
    for part in (1, 2):
        spent = part * BATCH * stage.rules.prices[1] // 2
        voucher = Voucher(tab_id(tab), spent, spent, 1, 1, 0)
        signature = sign(voucher, stage.market.domain, tab_key.secret).signature
        call = build(stage.market.contracts, Part.BANK, "redeem", tab, voucher, signature)
        gas = (await stage.market.execute(call, stage.payer)).gas_used
    note = f"{gas:,} for one voucher of a tab that {BATCH} tickets filled"
    return [
        Figure(
            "redeeming on chain, only vouchers of a scheduler settled, a ticket",
            gas / BATCH,
            "gas",
            reach=3_000,
            note=note,
        ),
        Figure("buying, whatever their number", purchased.gas_used, "gas"),
    ]
