"""A scheduler's interface for orders: bounded, and believed in nothing that can be checked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from troth.client.errors import SchedulerRefused
from troth.client.https_calls import Calls
from troth.client.language import LanguageFiles
from troth.client.untrusted import read_hex, read_list, read_object, read_text
from troth.protocol.errors import ProtocolError
from troth.protocol.market import canonical
from troth.protocol.market.bodies import (
    Acknowledgement,
    OpenOrder,
    Recovered,
    Recovery,
    ShownSecret,
    Submission,
    TabQuery,
    read_part,
)
from troth.protocol.market.last_row import LastRow
from troth.protocol.market.messages import Signed
from troth.protocol.market.signed import Order
from troth.protocol.market.types import Voucher
from troth.protocol.types import SEGMENTS_LIMIT, Hash32

SHORT_SECONDS = 30.0
"""For answers of a few kilobytes."""
PRICES_SECONDS = 4.0
"""For the first word of a scheduler; slower, and the next tab is asked."""
_LARGEST_SHORTFALL = 30
MOST_OPEN = 1 << 16
"""Open orders of a tab that are read when it is recovered: a busy program has as many as it asks in a lag."""


class SchedulerRefusal(SchedulerRefused):
    """A scheduler's refusal: its HTTP status, its own word, and what is missing where money is short."""

    def __init__(self, what: str, value: object, remedy: str, *, status: int, code: str, shortfall: int = 0) -> None:
        super().__init__(what, value, remedy)
        self.status = status
        self.code = code
        self.shortfall = shortfall


@dataclass(frozen=True, slots=True)
class SealedSegment:
    """The openings of one segment's check, each sealed for the client; ``node`` empty where the node shows nothing."""

    node: bytes
    opened: Mapping[str, bytes]


class FetchedRows(NamedTuple):
    """Rows as they travelled, the salt of the order's heads, and what the node signed of imprints; nothing of it is
    checked yet."""

    head_salt: Hash32
    data: bytes
    imprints: bytes = b""


class MarketCalls:
    """Calls to one scheduler, whichever way they take."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls.refusing(refusal)

    async def prices(self) -> dict[str, Any]:
        """Its price list."""
        return await self._calls.get("/v1/prices")

    async def language(self, identifier: Hash32) -> LanguageFiles:
        """Tokenizer, template and configuration of a class's model, not yet checked."""
        return LanguageFiles.from_json(await self._calls.get(f"/v1/models/0x{identifier.hex()}/tokenizer"))

    def submit(self, submission: Submission) -> AsyncGenerator[dict[str, Any], None]:
        """Send an order; the lines of its stream."""
        return self._calls.lines("POST", "/v1/orders", canonical.encode(submission))

    def again(self, order: Hash32, salt: Hash32) -> AsyncGenerator[dict[str, Any], None]:
        """All lines of an order so far, and those that still come; the salt shows whose it is."""
        return self._calls.lines("GET", f"/v1/orders/0x{order.hex()}", headers={"troth-salt": "0x" + salt.hex()})

    async def end(self, order: Hash32, salt: Hash32) -> None:
        """Have no more written of an answer; its lines say how far it came. The salt shows whose it is."""
        await self._calls.post(f"/v1/orders/0x{order.hex()}/end", b"", SHORT_SECONDS, {"troth-salt": "0x" + salt.hex()})

    async def last_row(self, order: Hash32, salt: Hash32) -> LastRow:
        """The last row of an answered order, not yet checked; the salt shows whose it is."""
        headers = {"troth-salt": "0x" + salt.hex()}
        return read_part(LastRow, await self._calls.get(f"/v1/orders/0x{order.hex()}/last-row", headers))

    def show(self, order: Hash32, secret: Hash32) -> AsyncGenerator[dict[str, Any], None]:
        """Show the first secret; the lines of the check."""
        return self._calls.lines("POST", f"/v1/orders/0x{order.hex()}/secret", canonical.encode(ShownSecret(secret)))

    async def tiles(self, order: Hash32, second_secret: Hash32) -> tuple[SealedSegment, ...]:
        """Show the second secret; the sealed openings of each segment."""
        body = canonical.encode(ShownSecret(second_secret))
        found = await self._calls.post(f"/v1/orders/0x{order.hex()}/tiles", body)
        return tuple(_sealed(one) for one in read_list(found.get("segments"), SEGMENTS_LIMIT))

    async def rows(self, order: Hash32, salt: Hash32, segment: int, start: int) -> FetchedRows:
        """Rows of a segment from number ``start`` on, as many as the scheduler puts into one answer."""
        path = f"/v1/orders/0x{order.hex()}/rows/{segment}?start={start}"
        found = await self._calls.get(path, headers={"troth-salt": "0x" + salt.hex()})
        imprints = found.get("imprints", "0x")
        return FetchedRows(Hash32(read_hex(found.get("head_salt"), 32)), _hex(found.get("rows")), _hex(imprints))

    async def acknowledge(self, word: Acknowledgement) -> None:
        """Deliver a voucher outside of an order."""
        await self._calls.post("/v1/vouchers", canonical.encode(word), SHORT_SECONDS)

    async def recover(self, query: Signed[TabQuery]) -> Recovered:
        """What the scheduler holds of a tab."""
        body = canonical.encode(Recovery(query.message.time, query.signature))
        found = await self._calls.post(f"/v1/tabs/0x{query.message.tab.hex()}/recover", body)
        voucher = found.get("voucher")
        orders = tuple(_open_order(one) for one in read_list(found.get("orders"), MOST_OPEN))
        try:
            word = None if voucher is None else canonical.from_json(Signed[Voucher], voucher)
        except (ProtocolError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise _malformed(error) from error
        return Recovered(word, orders)


def _open_order(value: Any) -> OpenOrder:
    """An open order with how far it came, or the bare order."""
    try:
        if isinstance(value, dict) and "message" in value:
            return OpenOrder(canonical.from_json(Signed[Order], value))
        if isinstance(value, dict):
            return read_part(OpenOrder, {"nodes": [], "infer_proof": "0x", "results": [], "draw_proof": "0x"} | value)
    except (ProtocolError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise _malformed(error) from error
    raise _malformed(TypeError(type(value).__name__))


def _sealed(value: Any) -> SealedSegment:
    opened = value.get("opened") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(opened, dict) or len(opened) > 256:
        raise _malformed(TypeError("openings"))
    return SealedSegment(_hex(value.get("node")), {name.lower(): _hex(one) for name, one in opened.items()})


def _hex(value: object) -> bytes:
    """Bytes of any length; nothing where it is no hex, since what does not open counts as not shown."""
    try:
        return bytes.fromhex(value.removeprefix("0x")) if isinstance(value, str) else b""
    except ValueError:
        return b""


def _malformed(error: Exception) -> SchedulerRefused:
    what = f"The scheduler's answer is malformed ({error})"[:200]
    return SchedulerRefused(what, type(error).__name__, "Use another scheduler.")


def refusal(status: int, body: bytes) -> Exception:
    """The error that an HTTP status with a body says."""
    parts = read_object(body).get("error") if body.startswith(b"{") else None
    if not isinstance(parts, dict):
        what = "The scheduler refused the request"
        return SchedulerRefusal(what, f"HTTP {status}", "Try again, or use another one.", status=status, code="")
    message, code = read_text(parts.get("message", "")), read_text(parts.get("code", ""))
    given = str(parts.get("shortfall") or "")
    short = int(given) if given.isascii() and given.isdecimal() and len(given) <= _LARGEST_SHORTFALL else 0
    remedy = read_text(parts.get("remedy", ""))
    return SchedulerRefusal(message, f"HTTP {status}, {code}", remedy, status=status, code=code, shortfall=short)
