"""What a scheduler serves behind a log entry: one line of canonical JSON for each order, sorted by order.

No prompt, answer, salt or tab is in it, and lengths and times are in buckets: an auditor needs the proofs, not the
customers. A line holds the hashes of orders and results with the nodes' signatures, the scheduler's VRF proofs, the
secret that the client revealed, and the verdicts. What an order's terms were is the scheduler's word here; a client's
receipt, which holds the order, shows where it lies, since the leaf is the hash of the line::

    leaf = keccak256(0x00 ‖ line)      node = keccak256(0x01 ‖ left ‖ right)      a node without a sibling moves up

Bytes are 0x-hex, prices are decimal strings (JSON numbers lose digits beyond 2^53). The data of an entry is all lines,
each with its newline; ``data_hash`` is keccak256 of that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from troth.protocol.errors import InvalidField
from troth.protocol.hashing import abi_keccak, keccak256
from troth.protocol.market import lottery
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.signed import Opinion
from troth.protocol.struct_kinds import prepared
from troth.protocol.types import SEGMENTS_LIMIT, ZERO_HASH, Address, Hash32, to_address, to_hash32

LINE_LIMIT = 1 << 16
"""Bytes of one line: 255 segments would not fit a task's other messages either."""
DATA_LIMIT = 1 << 26
"""Bytes of one entry's data; a thousand orders have about two million."""
BLOCK_BUCKET = 64
"""Blocks in one bucket of time: about a quarter of an hour, so that nobody sees who asked when."""


class LoggedResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A node's result: its struct hash, which hides lengths, and its signature."""

    node: str
    result: str
    signature: str


class LoggedVerdict(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One drawn verifier's verdict over a segment."""

    segment: int
    verifier: str
    opinion: int
    locks: bool
    commitment: str
    signature: str


class LoggedBallot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one of a ring says, and its ring signature."""

    opinion: int
    signature: str


class LoggedBallots(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The ballots over a segment of a veiled class, in the order of their tags: any other would say who came first."""

    segment: int
    ring: str
    ballots: tuple[LoggedBallot, ...]


class LogLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One order. ``secret`` is empty where the client revealed nothing; ``verdicts`` are where it did not hit, too.

    In a veiled class ``ballots`` are there in their place, wherever more than one verifier spoke (``ballots``).
    """

    order: str
    execution_class: str
    ends: str
    reference_block: int
    check_rate: int
    draw_hash: str
    prompt_price: str
    cached_price: str
    written_price: str
    node_share: int
    infer_proof: str
    results: tuple[LoggedResult, ...]
    beta: str
    draw_proof: str
    block_bucket: int
    positions_bucket: int
    secret: str
    verdicts: tuple[LoggedVerdict, ...]
    ballots: tuple[LoggedBallots, ...] | msgspec.UnsetType = msgspec.UNSET


def ballots_in(line: LogLine) -> tuple[LoggedBallots, ...]:
    """The ballots of a line; none where it names its verifiers."""
    return () if isinstance(line.ballots, msgspec.UnsetType) else line.ballots


def opinions_in(line: LogLine) -> tuple[tuple[int, int], ...]:
    """Segment and opinion of everything that was said, by name or not."""
    named = tuple((said.segment, said.opinion) for said in line.verdicts)
    return named + tuple((one.segment, cast.opinion) for one in ballots_in(line) for cast in one.ballots)


def bucket_of(positions: int) -> int:
    """The bucket b of so many positions: 2^(b-1) < positions <= 2^b."""
    if positions < 1:
        raise InvalidField("An answer has at least one position", positions, "Leave empty answers out.")
    return (positions - 1).bit_length()


def encode_line(line: LogLine) -> bytes:
    """The line as it is served and hashed, without its newline."""
    return msgspec.json.encode(line)


def decode_line(data: bytes) -> LogLine:
    """A served line; raises InvalidField if it is malformed or not in canonical form."""
    if len(data) > LINE_LIMIT:
        raise InvalidField(f"A line has at most {LINE_LIMIT} bytes", len(data), "Ask for the entry's data again.")
    try:
        line = msgspec.json.decode(data, type=prepared(LogLine))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidField(f"The line is malformed ({error})", data[:80], "Ask for the entry's data again.") from error
    if encode_line(line) != data:
        raise InvalidField("The line is not in canonical form", data[:80], "Ask for the entry's data again.")
    _require_bounds(line)
    return line


def _require_bounds(line: LogLine) -> None:
    """Hashes are hashes, accounts are accounts, numbers are such as an order can have: readers count with them."""
    for hashed in (line.order, line.execution_class, line.beta, *((line.secret,) if line.secret else ())):
        read_hash(hashed)
    for account in (*(seen.node for seen in line.results), *(said.verifier for said in line.verdicts)):
        read_address(account)
    numbers = {
        "positions_bucket": (line.positions_bucket, 64),
        "block_bucket": (line.block_bucket, 1 << 40),
        "reference_block": (line.reference_block, 1 << 40),
        "check_rate": (line.check_rate, 1 << 32),
        "results": (len(line.results), SEGMENTS_LIMIT),
        "node_share": (line.node_share, (1 << 16) - 1),
        "verdicts' segment": (max((abs(said.segment) for said in line.verdicts), default=0), 255),
        "verdicts' opinion": (max((abs(said.opinion) for said in line.verdicts), default=0), 255),
        "ballots' segment": (max((abs(one.segment) for one in ballots_in(line)), default=0), 255),
        "ballots' opinion": (max((abs(one) for _, one in opinions_in(line)), default=0), 255),
    }
    for name, (value, most) in numbers.items():
        if not 0 <= value <= most:
            raise InvalidField(f"A line's {name} is 0 to {most}", value, "Ask for the entry's data again.")


def encode_data(lines: Iterable[LogLine]) -> bytes:
    """An entry's data, sorted by order."""
    ordered = sorted(lines, key=lambda line: line.order)
    return b"".join(encode_line(line) + b"\n" for line in ordered)


def decode_data(data: bytes) -> tuple[LogLine, ...]:
    """The lines of an entry; raises InvalidField for anything that ``encode_data`` does not make."""
    if len(data) > DATA_LIMIT or (data and not data.endswith(b"\n")):
        raise InvalidField("An entry's data is whole lines, 64 MiB at most", len(data), "Ask for it again.")
    lines = tuple(decode_line(line) for line in data.split(b"\n")[:-1])
    orders = [line.order for line in lines]
    if orders != sorted(set(orders)):
        raise InvalidField("Lines are sorted by order, each once", len(lines), "Ask for the entry's data again.")
    return lines


# -------------------------------------------------------------------------------------------------- leaves and roots


def leaf_of(line: bytes) -> Hash32:
    """A line's place in the root."""
    return Hash32(keccak256(b"\x00" + line))


def promised_leaf(line: LogLine) -> Hash32:
    """What a promise of inclusion names: the line as it stood when the answer ended, before any secret was shown.

    The promise comes with the answer, and the secret and the verdicts after it; a promise of the finished line would
    be broken by every client that reveals its secret.
    """
    return leaf_of(encode_line(msgspec.structs.replace(line, secret="", verdicts=(), ballots=msgspec.UNSET)))


def root_of(leaves: Sequence[Hash32]) -> Hash32:
    """The root of an entry; zero without leaves."""
    level = list(leaves)
    while len(level) > 1:
        level = [_node(level[place : place + 2]) for place in range(0, len(level), 2)]
    return level[0] if level else ZERO_HASH


def _node(pair: Sequence[Hash32]) -> Hash32:
    return pair[0] if len(pair) == 1 else Hash32(keccak256(b"\x01" + pair[0] + pair[1]))


def data_root(data: bytes) -> Hash32:
    """The root over an entry's data."""
    return root_of([leaf_of(line) for line in data.split(b"\n")[:-1]])


def data_hash(data: bytes) -> Hash32:
    """The hash of an entry's data."""
    return Hash32(keccak256(data))


def next_chain(before: Hash32, number: int, root: Hash32, counts: LogCounts, data: Hash32) -> Hash32:
    """The chain hash after an entry. The Log keeps 192 bits of the one before, and hashes those with zeros behind."""
    types = ["bytes32", "uint64", "bytes32", "(uint32,uint64,uint32,uint32,uint32,uint32,uint96)", "bytes32"]
    counted = tuple(getattr(counts, name) for name in counts.__dataclass_fields__)
    return Hash32(abi_keccak(types, [before[:24] + bytes(8), number, root, counted, data]))


# ------------------------------------------------------------------------------------------------- reading of fields


def read_hash(text: str) -> Hash32:
    """A hash of a line."""
    return to_hash32(read_bytes(text))


def read_bytes(text: str) -> bytes:
    """Bytes of a line; raises InvalidField unless they are canonical hexadecimal."""
    try:
        raw = bytes.fromhex(text.removeprefix("0x"))
    except ValueError as error:
        raise InvalidField("Bytes are 0x and hexadecimal digits", text[:80], "Ask for the data again.") from error
    if "0x" + raw.hex() != text:
        raise InvalidField("Bytes are canonical hexadecimal", text[:80], "Ask for the data again.")
    return raw


def read_address(text: str) -> Address:
    """An account of a line, with its checksum."""
    address = to_address(text)
    if address != text:
        raise InvalidField("Accounts are written with their checksum", text, "Ask for the data again.")
    return address


def read_number(text: str) -> int:
    """A decimal string of a line."""
    if not text.isascii() or not text.isdecimal() or len(text) > 29 or str(int(text)) != text:
        raise InvalidField("Amounts are decimal strings", text[:80], "Ask for the data again.")
    return int(text)


def written(raw: bytes) -> str:
    """Bytes as a line writes them."""
    return "0x" + raw.hex()


def opinion_of(said: LoggedVerdict | LoggedBallot) -> Opinion:
    """An opinion; raises InvalidField for a number that is none."""
    try:
        return Opinion(said.opinion)
    except ValueError as error:
        raise InvalidField("There is no such opinion", said.opinion, "Ask for the data again.") from error


def is_drawn(line: LogLine) -> bool:
    """Whether the revealed secret hits; raises InvalidField for a secret or a beta that are no hashes."""
    if not line.secret:
        return False
    return lottery.hits(read_hash(line.secret), read_hash(line.beta), line.check_rate)


def is_rejected(line: LogLine) -> bool:
    """Whether more of the verdicts over some segment reject than do not."""
    by_segment: dict[int, list[int]] = {}
    for segment, opinion in opinions_in(line):
        by_segment.setdefault(segment, []).append(opinion)
    return any(2 * said.count(Opinion.REJECT) > len(said) for said in by_segment.values())
