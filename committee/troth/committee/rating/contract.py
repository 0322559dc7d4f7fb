"""Reputation on chain, as members and everybody else use it: deploying, enrolling, leaving, looking."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from troth.chain.adapter import Chain
from troth.chain.deployment import reputation_creation
from troth.chain.keystore import (
    Key,
    address_in,
    create_vrf_secret,
    load_account,
    load_vrf_secret,
    read_password,
)
from troth.chain.market import find_place
from troth.chain.reputation import followed_reputation
from troth.chain.sending import TransactionSender, send_or_show
from troth.committee.configuration import Bonding, load
from troth.committee.errors import EpochRefused, MemberConfigurationInvalid
from troth.committee.rating.epochs import (
    EpochFile,
    EpochJournal,
    EpochNow,
    ExaminedList,
    epoch_now,
    proposed,
    read_credits,
    read_epoch,
    read_list,
    with_signature,
    with_silence,
    write_json,
)
from troth.protocol import reputation_calls as calls
from troth.protocol import typed_data, vrf
from troth.protocol.amounts import COIN
from troth.protocol.calls import Call
from troth.protocol.committee import threshold
from troth.protocol.reputation import (
    NOT_SCORED,
    ONE,
    EnrollRater,
    ReputationRules,
    UpdateEvidence,
    paper_rules,
    prompt_commitment,
    prompt_root,
    shared_scores,
)
from troth.protocol.reputation_events import ReputationState
from troth.protocol.types import ZERO_HASH, Address, to_address

VRF_KEYSTORE, JOURNAL = "keys/vrf.json", "reputation.sqlite"


@dataclass(frozen=True, slots=True)
class ContractPlace:
    """Where the contract is: a chain node, its address, and a block not after its deployment."""

    rpc: str
    contract: Address
    start_block: int = 0

    @classmethod
    def read(cls, rpc: str, contract: str, start_block: int) -> ContractPlace:
        """From the command line."""
        return cls(rpc, to_address(contract), start_block)


@dataclass(frozen=True, slots=True)
class TransactionPayer:
    """Who sends a transaction, and whether it is sent."""

    keystore: Path
    password_file: Path | None
    broadcast: bool


# ---- looking


async def standings(place: ContractPlace) -> dict[str, Any]:
    """Rules, members and every node's score, each computed again from the contract's events."""
    async with followed_reputation(place.rpc, place.contract, start_block=place.start_block) as follower:
        state = follower.state
    async with await Chain.connect(place.rpc, place.contract) as chain:
        epoch = await chain.read(calls.epoch_now())
    assert state.deployed is not None
    rules, shared = state.deployed.rules, shared_scores(state.standings)
    ordered = sorted(state.standings, key=lambda node: (-shared[node], node))
    return {
        "reputation": place.contract,
        "committee": state.deployed.committee,
        "registry": state.deployed.registry,
        "epoch": epoch,
        "settled_through": state.through - 1 if state.through else None,
        "bar": _part(rules.bar),
        "newcomers": _part(rules.initial),
        "bond_wei": str(rules.bond),
        "members": [_member(operator, state, epoch) for operator in sorted(state.raters)],
        "expelled": sorted(state.expelled),
        "nodes": [_node(node, state, shared) for node in ordered],
    }


def _member(operator: Address, state: ReputationState, epoch: int) -> str:
    rater = state.raters[operator]
    if rater.exit_block:
        return f"{operator} leaves before epoch {rater.end}; its bond is free after block {rater.exit_block}"
    return f"{operator} counts" if rater.counts(epoch) else f"{operator} counts from epoch {rater.first} on"


def _node(node: Address, state: ReputationState, shared: Mapping[Address, int]) -> dict[str, Any]:
    assert state.deployed is not None
    standing, rating, rules = state.standings[node], state.ratings[node], state.deployed.rules
    told = {
        "node": node,
        "owner": standing.owner,
        "score": _part(standing.score),
        "shared": _part(shared[node]),
        "credit": "silent" if rating.silent else _part(rating.credit),
        "abnormal": f"{standing.abnormal.bit_count()} of the last {rules.window}",
        "rated": f"{standing.rated} times, last in epoch {standing.last_epoch}",
    }
    return told if shared[node] >= rules.bar else {**told, "below_the_bar": True}


def _part(value: int) -> float:
    return value / ONE


# ---- transactions


async def deploy(
    rpc: str, committee: str, market: Bonding, rules: ReputationRules, payer: TransactionPayer
) -> dict[str, Any]:
    """Deploy a Reputation of the nodes of a market, by the members of a Committee."""
    bank = to_address(market.bank) if market.bank else None
    found = await find_place(rpc, to_address(market.factory), bank, market.start_block)
    creation = reputation_creation(to_address(committee), found.contracts.registry, rules)
    told = {"committee": committee, "registry": found.contracts.registry, "epoch_blocks": rules.epoch_blocks}
    return await carry_out(rpc, creation, None, payer, told)


def rules_from(epoch_blocks: int, bond: str) -> ReputationRules:
    """The paper's numbers with this epoch and bond (an amount of the chain's coin)."""
    return paper_rules(epoch_blocks, COIN.parse(bond))


async def enroll(folder: Path, place: ContractPlace, payer: TransactionPayer) -> dict[str, Any]:
    """Bond this member from its owner's account; makes a VRF key where there is none."""
    key = await _operator(folder, payer.password_file)
    point = vrf.public_key(_vrf_secret(folder, payer.password_file, create=True))
    owner = _sender(payer)
    async with await Chain.connect(place.rpc, place.contract) as chain:
        bond = (await chain.read(calls.rules())).bond
        consent = typed_data.sign(EnrollRater(owner, key.address, *point), chain.domain, key.secret)
    call = calls.enroll(key.address, point, consent, bond)
    return await carry_out(place.rpc, call, place.contract, payer, {"operator": key.address, "bond_wei": str(bond)})


async def leave(operator: str, place: ContractPlace, payer: TransactionPayer) -> dict[str, Any]:
    """Stop counting after this epoch."""
    return await carry_out(place.rpc, calls.leave(to_address(operator)), place.contract, payer, {"operator": operator})


async def withdraw(operator: str, place: ContractPlace, payer: TransactionPayer) -> dict[str, Any]:
    """The bond of one that left, to its owner."""
    return await carry_out(
        place.rpc, calls.withdraw(to_address(operator)), place.contract, payer, {"operator": operator}
    )


async def settle(path: Path, place: ContractPlace, payer: TransactionPayer) -> dict[str, Any]:
    """Settle the epoch that a file holds, or bring the reports in it that were left out when it was settled."""
    now, file = await epoch_now(place.rpc, place.contract, place.start_block), read_epoch(path)
    call = now.left_out(file) or now.settlement(file)
    return await carry_out(place.rpc, call, place.contract, payer, _told(now, file))


async def expel(
    operator: str, first: Path, second: Path, place: ContractPlace, payer: TransactionPayer
) -> dict[str, Any]:
    """Bring two files of one epoch that one member signed."""
    files, signer = (read_epoch(first), read_epoch(second)), to_address(operator)
    if any(signer not in file.signatures for file in files):
        raise EpochRefused(f"{signer} signed not both files", str(first), "Name two files that it signed.")
    evidence = [
        UpdateEvidence.of(file.update().message(), bytes.fromhex(file.signatures[signer].removeprefix("0x")))
        for file in files
    ]
    update = files[0].update()
    call = calls.expel(signer, update.epoch, update.seed, evidence[0], evidence[1])
    return await carry_out(place.rpc, call, place.contract, payer, {"operator": signer, "epoch": update.epoch})


async def carry_out(
    rpc: str,
    call: Call,
    to: Address | None,
    payer: TransactionPayer,
    told: Mapping[str, Any],
    *,
    creates: str = "reputation",
) -> dict[str, Any]:
    """Send a call, or say what it would do; ``creates`` names the contract that a creation makes."""

    def open_key() -> Key:
        return load_account(payer.keystore, read_password(payer.password_file, purpose="the keystore that pays"))

    who = TransactionSender(_sender(payer), open_key)
    return await send_or_show(rpc, call, to, who, told, broadcast=payer.broadcast, creates=creates)


def _sender(payer: TransactionPayer) -> Address:
    sender = address_in(payer.keystore)
    if sender is None:
        raise MemberConfigurationInvalid("The keystore names no address", payer.keystore, "Name another file.")
    return sender


# ---- an epoch, from member to member


def make_list(nodes: list[str], prompts: Path | None, path: Path) -> dict[str, Any]:
    """Write a list of nodes and hidden prompts, one a line; what opens them goes to a file beside it, mode 0600."""
    texts = [] if prompts is None else [line for line in prompts.read_text("utf-8").splitlines() if line.strip()]
    if len(set(texts)) < len(texts):
        raise EpochRefused("A prompt is there twice", prompts, "Each is asked once.")
    salts = [secrets.token_bytes(32) for _ in texts]
    hidden = [prompt_commitment(salt, text) for salt, text in zip(salts, texts, strict=True)]
    root = prompt_root(hidden) if hidden else ZERO_HASH
    made = ExaminedList(nodes, "0x" + root.hex())
    made.read()
    write_json(path, made)
    opening = path.with_name(path.name + ".opening")
    write_json(opening, [{"salt": "0x" + salt.hex(), "prompt": text} for salt, text in zip(salts, texts, strict=True)])
    opening.chmod(0o600)
    return {
        "list": str(path),
        "opening": str(opening),
        "nodes": len(nodes),
        "prompts": len(texts),
        "hash": made.hash.hex(),
    }


async def lead(folder: Path, place: ContractPlace, password_file: Path | None) -> dict[str, Any]:
    """Who leads the current epoch; the last leader's member adds its proof."""
    now = await epoch_now(place.rpc, place.contract, place.start_block)
    operator = address_in(load(folder).operator_keystore)
    told: dict[str, Any] = {"epoch": now.epoch, "seed": "0x" + now.seed.hex(), "last_leader": now.state.leader}
    if operator != now.state.leader:
        return {**told, "leader_without_proof": now.leader(b"")}
    proof = now.lead(_vrf_secret(folder, password_file, create=False))
    return {**told, "proof": "0x" + proof.hex(), "leader": now.leader(proof)}


@dataclass(frozen=True, slots=True)
class EpochParts:
    """The files from which a leader makes an epoch's: what was fixed, credits, and what is fixed now."""

    examined: Path | None
    credits: Path | None
    after: Path | None


async def propose(path: Path, place: ContractPlace, parts: EpochParts, proof: str) -> dict[str, Any]:
    """Write the file of the current epoch."""
    now = await epoch_now(place.rpc, place.contract, place.start_block)
    file = proposed(
        now,
        ExaminedList() if parts.examined is None else read_list(parts.examined),
        {} if parts.credits is None else read_credits(parts.credits),
        ExaminedList() if parts.after is None else read_list(parts.after),
        bytes.fromhex(proof.removeprefix("0x")),
    )
    write_json(path, file)
    return {"file": str(path), **_told(now, file)}


async def sign(path: Path, folder: Path, place: ContractPlace, password_file: Path | None) -> dict[str, Any]:
    """Add this member's signature to the file, once for an epoch."""
    key = await _operator(folder, password_file)
    now, journal = await epoch_now(place.rpc, place.contract, place.start_block), EpochJournal(folder / JOURNAL)
    try:
        file = with_signature(now, read_epoch(path), key.secret, journal)
    finally:
        journal.close()
    write_json(path, file)
    return {"file": str(path), "signed_by": key.address, **_told(now, file)}


async def report(
    path: Path, silent: list[str], folder: Path, place: ContractPlace, password_file: Path | None
) -> dict[str, Any]:
    """Add this member's word that nodes did not answer its own attempts."""
    key = await _operator(folder, password_file)
    now = await epoch_now(place.rpc, place.contract, place.start_block)
    file = with_silence(now, read_epoch(path), key.secret, [to_address(node) for node in silent])
    write_json(path, file)
    return {"file": str(path), "reported_by": key.address, **_told(now, file)}


def _told(now: EpochNow, file: EpochFile) -> dict[str, Any]:
    update = file.update()
    return {
        "epoch": update.epoch,
        "leader": update.leader,
        "drawn_by": "the last leader's VRF" if file.proof else "the seed",
        "nodes": len(update.nodes),
        "scored": sum(credit != NOT_SCORED for credit in update.credits),
        "next_nodes": len(file.next.nodes),
        "reports": len(file.silences),
        "signatures": f"{len(file.signatures)} of {threshold(len(now.members))} that are needed",
    }


async def _operator(folder: Path, password_file: Path | None) -> Key:
    password = read_password(password_file, purpose="the member's keystore")
    return await asyncio.to_thread(load_account, load(folder).operator_keystore, password)


def _vrf_secret(folder: Path, password_file: Path | None, *, create: bool) -> bytes:
    path = folder / VRF_KEYSTORE
    password = read_password(password_file, purpose="the member's VRF key")
    if not path.exists() and create:
        return create_vrf_secret(path, password)
    return load_vrf_secret(path, password)
