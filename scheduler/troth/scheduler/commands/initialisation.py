"""What `troth scheduler init` is told, checks and writes, and the keys that it makes where none are named."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from troth.chain.keystore import create_account, create_vrf_secret, load_account, load_vrf_secret, read_password
from troth.chain.new_files import create_file
from troth.chain.tokens import asset_at
from troth.overlay.sessions.entry_section import overlay_table
from troth.protocol import vrf
from troth.protocol.amounts import COIN, Asset
from troth.protocol.types import hash32_of
from troth.scheduler.configuration import load_market
from troth.scheduler.errors import ConfigurationInvalid
from troth.scheduler.sections import FILE, VERSION
from troth.transport.identity import load_or_create_identity
from troth.transport.interview import Interview, outward_host
from troth.transport.strict_toml import quoted

LEAST_SHARE = 4
"""Of a deposit: what a tab with a node is topped up below, unless told otherwise."""
InitialMoney = tuple[tuple[int, int, int], int, int]
"""Prices in units per 10^9 positions, a tab's deposit and its least; 0: a share of the deposit."""


@dataclass(frozen=True, slots=True)
class SchedulerInitOptions:
    """The command line of `init`."""

    rpc: str
    class_id: str
    model: Path
    ends: str
    host: str
    port: int
    endpoint: str
    start_block: int
    operator_keystore: Path | None
    vrf_keystore: Path | None
    committee: str = ""
    overlay_port: int = 0
    overlay_address: str = ""
    tunnels: str = ""
    tickets: str = ""
    ticket_fee: str = "0"


def operator_key(folder: Path, keystore: Path | None, password: str) -> str:
    """The operator's address, of a named keystore or of the folder's own, which is made where there is none."""
    if keystore is not None:
        return load_account(keystore.expanduser(), password).address
    path = folder / "keys" / "operator.json"
    return (load_account if path.exists() else create_account)(path, password).address


def vrf_public_key(folder: Path, keystore: Path | None, password: str) -> tuple[int, int]:
    """The same for the VRF key."""
    if keystore is not None:
        return vrf.public_key(load_vrf_secret(keystore.expanduser(), password))
    path = folder / "keys" / "vrf.json"
    return vrf.public_key((load_vrf_secret if path.exists() else create_vrf_secret)(path, password))


@dataclass(frozen=True, slots=True)
class MarketWishes:
    """What the command line says of a market, beside what every scheduler says; amounts in units."""

    plain: SchedulerInitOptions
    factory: str
    bank: str
    prices: tuple[int, int, int]
    deposit: int
    least: int


def initialise_market(folder: Path, wishes: MarketWishes, password_file: Path | None) -> dict[str, object]:
    """Write the configuration and, where none is named, new keys; returns what there is now."""
    file, plain = folder / FILE, wishes.plain
    if file.exists():
        raise ConfigurationInvalid("There is a configuration already", file, "Edit it, or choose another --home.")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    new_keys = plain.operator_keystore is None or plain.vrf_keystore is None
    password = read_password(password_file, confirm=new_keys, purpose="the scheduler's keystores")
    text = template(wishes)
    load_market(folder, text)
    operator = operator_key(folder, plain.operator_keystore, password)
    vrf_key = vrf_public_key(folder, plain.vrf_keystore, password)
    identity = load_or_create_identity(folder / "tls")
    # At the end, so that the command can be given again, corrected or after a kill. Only its user may read it: the
    # address of a chain node may hold a provider's secret.
    create_file(file, text.encode())
    return {
        "operator": operator,
        "vrf_x": hex(vrf_key[0]),
        "vrf_y": hex(vrf_key[1]),
        "endpoint": plain.endpoint,
        "tls_key_hash": "0x" + identity.spki_sha256.hex(),
        "config": str(file),
        "next": [
            f"send coins for gas and for tabs with nodes to {operator}",
            f"troth scheduler register --home {folder} --owner-keystore FILE",
        ],
    }


def template(wishes: MarketWishes) -> str:
    """A new file's text."""
    plain = wishes.plain
    prompt, cached, written = wishes.prices
    bank = f"bank = {quoted(wishes.bank)}\n" if wishes.bank else ""
    named = {"operator": plain.operator_keystore, "vrf": plain.vrf_keystore}
    keys = [f'{name} = "{path.expanduser().resolve()}"' for name, path in named.items() if path is not None]
    return (
        f"version = {VERSION}\n\n"
        f"[chain]\nrpc = {quoted(plain.rpc)}\n\n"
        f"[market]\nfactory = {quoted(wishes.factory)}\n{bank}start_block = {plain.start_block}\n\n"
        f"[listen]\nhost = {quoted(plain.host)}\nport = {plain.port}\nendpoint = {quoted(plain.endpoint)}\n\n"
        f"[prices]\nprompt = {quoted(prompt)}\ncached = {quoted(cached)}\nwritten = {quoted(written)}\n\n"
        f"[tabs]\ndeposit = {quoted(wishes.deposit)}\nleast = {quoted(wishes.least)}\n"
        f"\n[[serve]]\nclass = {quoted(plain.class_id)}\n{_split(plain.ends)}\nmodel = {quoted(plain.model)}\n"
        + ("\n[keys]\n" + "\n".join(keys) + "\n" if keys else "")
        + overlay_table(plain.committee, plain.host, plain.overlay_port, plain.overlay_address)
        + _tunnels(plain.tunnels)
        + _tickets(plain.tickets, plain.ticket_fee)
    )


def _tickets(contract: str, fee: str) -> str:
    return f"\n[tickets]\ncontract = {quoted(contract)}\nfee = {quoted(fee)}\n" if contract else ""


def _tunnels(text: str) -> str:
    """The table of endpoints that are lent, from FIRST:COUNT; `load_market` says which ports cannot be lent."""
    if not text:
        return ""
    first, separator, count = text.partition(":")
    if not (separator and first.isdecimal() and count.isdecimal() and len(text) < 16):
        remedy = "Write for example 20000:64, and open these ports in the firewall."
        raise ConfigurationInvalid("--tunnels is FIRST:COUNT, ports to lend to nodes", text[:40], remedy)
    return f"\n[tunnels]\nfirst_port = {int(first)}\nports = {int(count)}\n"


def _split(text: str) -> str:
    if text == "auto":
        return 'placement = "auto"'
    try:
        return f"ends = {[int(end) for end in text.split(',')]}"
    except ValueError as error:
        remedy = "Write for example 15,30, or auto to have nodes placed."
        raise ConfigurationInvalid("--ends is a list of layers", text, remedy) from error


def read_money(asset: Callable[[], Asset], prices: str, deposit: str, least: str) -> InitialMoney:
    """What the command line says of money. Raises AmountError.

    ``asset`` is asked for only where a text names a unit other than the smallest: that needs the chain.
    """
    texts = [*(part.strip() for part in prices.split(",")), deposit.strip(), least.strip()]
    plain = all(not text or text.endswith("units") for text in texts[-2:]) and all(map(str.isdecimal, texts[:-2]))
    known = COIN if plain else asset()
    return known.prices(prices), known.parse(deposit), known.parse(least) if least else 0


@dataclass(frozen=True, slots=True)
class AskedOptions:
    """What `init` needs and asks for at a terminal; empty where it was not given. ``money``: prices, deposit, least."""

    rpc: str
    factory: str
    class_id: str
    model: Path | None
    ends: str
    endpoint: str
    money: tuple[str, str, str]

    @property
    def folder(self) -> Path:
        """The model's folder as an absolute path."""
        return (self.model or Path()).expanduser().resolve()


def asked_for(
    interview: Interview, given: AskedOptions, port: int, bank: str, start_block: int
) -> tuple[AskedOptions, InitialMoney]:
    """The same with nothing missing, and its money read."""
    rpc = interview.text(given.rpc, "--rpc", "HTTP address of a chain node; --network FILE names it, too")
    factory = interview.factory(given.factory)
    class_id = interview.text(given.class_id, "--class", "Id of the execution class to serve, 0x…")
    class_id = "0x" + hash32_of(class_id).hex()
    folder = interview.text(str(given.model or ""), "--model", "Folder with config, tokenizer and chat template")
    ends = interview.text(given.ends, "--ends", "Ends of the segments, or auto", default="auto")
    endpoint = given.endpoint
    if interview.asking:
        usual = f"https://{outward_host(rpc)}:{port}"
        endpoint = interview.text(endpoint, "--endpoint", "Address by which clients reach it", default=usual)
    found: list[Asset] = []

    def asset() -> Asset:
        if not found:
            found.append(asyncio.run(asset_at(rpc, factory, bank, start_block)))
        return found[0]

    prices, deposit, least = given.money
    question = "Prices PROMPT,CACHED,WRITTEN for a million tokens, such as 0.0009ether,0.00009ether,0.0018ether"
    prices = interview.text(prices, "--prices", question, check=lambda text: asset().prices(text))
    question = "What a tab with each node starts with, such as 0.01ether"
    deposit = interview.text(deposit, "--deposit", question, check=lambda text: asset().parse(text))
    money = read_money(asset, prices, deposit, least)
    return AskedOptions(rpc, factory, class_id, Path(folder), ends, endpoint, given.money), money


def init_market(
    folder: Path,
    wishes: SchedulerInitOptions,
    place: tuple[str, str],
    money: InitialMoney,
    password_file: Path | None,
) -> dict[str, object]:
    """Write a market's configuration; ``place`` is factory and Bank."""
    prices, deposit, least = money
    least = least or max(deposit // LEAST_SHARE, 1)
    return initialise_market(folder, MarketWishes(wishes, place[0], place[1], prices, deposit, least), password_file)
