"""M13 to M17: what a scheduler served behind its log entries, against the chain and against promises of inclusion."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from troth.audit.report import CheckReport, CheckResult, Finding, FindingKind
from troth.audit.subject import AuditSubject, shown
from troth.protocol import typed_data, vrf
from troth.protocol.errors import InvalidField, InvalidProof, InvalidSignature, ProtocolError
from troth.protocol.hashing import keccak256
from troth.protocol.identifiers import group_id
from troth.protocol.market import draws, log_data, messages, prices
from troth.protocol.market.ballots import CastBallot, hides_verifiers, members_of
from troth.protocol.market.ballots import count as count_ballots
from troth.protocol.market.log_data import LoggedBallots, LoggedVerdict, LogLine
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import LogCounts
from troth.protocol.market.signed import Inclusion, Opinion, Order, Verdict
from troth.protocol.market.state import LoggedEntry, Party, State
from troth.protocol.market.types import Ask, DrawRequest, Rules
from troth.protocol.rings import ring_in
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32, Segment, segments_from_ends

TITLES = {
    "M13": "Log data is served and hashes",
    "M14": "Roots and counts of log entries",
    "M15": "Who served, by VRF",
    "M16": "Lotteries, and who checked",
    "M17": "Promised leaves are in the log",
}


@dataclass(frozen=True, slots=True)
class MissingLogData:
    """Why there is no data of an entry; ``reached``: the scheduler itself answered so."""

    reason: str
    reached: bool


@dataclass(frozen=True, slots=True)
class ServedLogs:
    """Data of a scheduler's entries by number, or why there is none, and promises of inclusion by their holders."""

    scheduler: Address
    data: Mapping[int, bytes]
    refusals: Mapping[int, MissingLogData]
    promises: tuple[Signed[Inclusion], ...] = ()


@dataclass(frozen=True, slots=True)
class _ReadEntry:
    """One entry with its lines, as far as they can be read."""

    logged: LoggedEntry
    data: bytes
    lines: tuple[LogLine, ...]


def examine(subject: AuditSubject, served: ServedLogs, only: Collection[int] | None = None) -> tuple[CheckReport, ...]:
    """All checks over one scheduler's log, or over ``only`` these entries of it."""
    state = subject.history.state
    party = state.parties.get(served.scheduler)
    found: dict[str, list[CheckResult]] = {number: [] for number in TITLES}
    entries = []
    for logged in state.logs.get(served.scheduler, ()):
        if only is not None and logged.number not in only:
            continue
        entry, findings = _read(served, logged)
        found["M13"].append(CheckResult(logged.root, findings))
        if entry is not None:
            entries.append(entry)
    for entry in entries:
        found["M14"].append(CheckResult(entry.logged.root, tuple(_counts(entry))))
        for line in entry.lines:
            order = log_data.read_hash(line.order)
            leaf = _Leaf(subject, state, party, line, entry.logged)
            found["M15"].append(CheckResult(order, tuple(_guarded(leaf, "M15", order, _Leaf.served))))
            found["M16"].append(CheckResult(order, tuple(_guarded(leaf, "M16", order, _Leaf.checked))))
    found["M17"] = list(_promised(subject, served, entries))
    return tuple(CheckReport(number, TITLES[number], tuple(results)) for number, results in found.items())


def _guarded(
    leaf: _Leaf, number: str, order: Hash32, examine: Callable[[_Leaf], Iterator[Finding]]
) -> Iterator[Finding]:
    """A line that nobody can read is the scheduler's fault: its own word is malformed."""
    try:
        yield from examine(leaf)
    except (ProtocolError, ValueError, LookupError, ArithmeticError) as error:
        yield leaf.cheated(number, f"The line of order {shown(order)} cannot be checked: {error}")


def _read(served: ServedLogs, logged: LoggedEntry) -> tuple[_ReadEntry | None, tuple[Finding, ...]]:
    def finding(message: str, action: str, kind: FindingKind = FindingKind.CHEATED) -> tuple[None, tuple[Finding, ...]]:
        said = Finding(
            "M13",
            kind,
            f"Entry {logged.number}: {message}",
            logged.root,
            party=served.scheduler,
            role="scheduler",
            place=logged.meta,
            action=action,
        )
        return None, (said,)

    data = served.data.get(logged.number)
    if data is None:
        why = served.refusals.get(logged.number, MissingLogData("nobody gave it", reached=False))
        # Who cannot reach a scheduler does not know whose line is broken.
        kind = FindingKind.CHEATED if why.reached else FindingKind.INCONCLUSIVE
        return finding(f"its data is not served ({why.reason})", "ask again; if it stays so, order elsewhere", kind)
    if log_data.data_hash(data) != logged.data_hash:
        return finding("what is served is not what was posted", "show both: the chain has the hash")
    try:
        lines = log_data.decode_data(data)
    except ProtocolError as error:
        return finding(f"the data cannot be read: {error}", "show it: the chain has its hash")
    return _ReadEntry(logged, data, lines), ()


# -------------------------------------------------------------------------------------------------- roots and counts


def _counts(entry: _ReadEntry) -> Iterator[Finding]:
    logged = entry.logged
    root = log_data.data_root(entry.data)
    if root != logged.root:
        yield _entry_finding(entry, f"The leaves' root is {shown(root)}, posted was {shown(logged.root)}")
    counted = count(entry.lines)
    for one in fields(LogCounts):
        posted = getattr(logged.counts, one.name)
        least, most = counted[one.name]
        if not least <= posted <= most:
            allowed = str(least) if least == most else f"{least} to {most}"
            yield _entry_finding(entry, f"{one.name} was posted as {posted}, and the data gives {allowed}")


def count(lines: Iterable[LogLine]) -> dict[str, tuple[int, int]]:
    """What an entry must count, each as the least and the most that buckets allow; fees only have a least."""
    lines = tuple(lines)
    drawn = [line for line in lines if log_data.is_drawn(line)]
    positions = [line.positions_bucket for line in lines]
    exact = {
        "orders": len(lines),
        "drawn": len(drawn),
        "checked": sum(bool(log_data.opinions_in(line)) for line in drawn),
        "rejected": sum(log_data.is_rejected(line) for line in drawn),
        "unrevealed": sum(not line.secret for line in lines),
    }
    bounds = {name: (value, value) for name, value in exact.items()}
    bounds["positions"] = (
        sum((1 << bucket - 1) + 1 if bucket else 1 for bucket in positions),
        sum(1 << bucket for bucket in positions),
    )
    bounds["fees"] = (0, (1 << 96) - 1)
    return bounds


def _entry_finding(entry: _ReadEntry, message: str) -> Finding:
    logged = entry.logged
    action = "show the data: the chain has its hash"
    what = f"Entry {logged.number}: {message}"
    return Finding("M14", FindingKind.CHEATED, what, logged.root, place=logged.meta, action=action)


# ------------------------------------------------------------------------------------------------------- single leaves


@dataclass(frozen=True, slots=True)
class _Spoken:
    """A line's verdict; ``signed``: by this verifier, over this result."""

    verifier: Address
    opinion: Opinion
    signed: bool


def _least_seats(drawn: Sequence[Address], members: Sequence[Address], opinions: Mapping[bytes, Opinion]) -> int:
    """The seats that those who reject have at least: which of the ring they are is not known."""
    rejecting = sum(one is Opinion.REJECT for one in opinions.values())
    return sum(sorted(drawn.count(member) for member in members)[:rejecting])


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One line against the chain."""

    subject: AuditSubject
    state: State
    party: Party | None
    line: LogLine
    logged: LoggedEntry

    @property
    def order(self) -> Hash32:
        return log_data.read_hash(self.line.order)

    @property
    def domain(self) -> Domain:
        return self.subject.evidence.domain

    @property
    def rules(self) -> Rules:
        definition = self.state.classes.get(log_data.read_hash(self.line.execution_class))
        if definition is None:
            raise InvalidField("The class was never registered", self.line.execution_class, "Show the line.")
        model = self.state.models[definition.model]
        return prices.rules_of(definition, hidden_size=model.hidden_size, layers=model.layers)

    def segments(self) -> tuple[Segment, ...]:
        ends = log_data.read_hash(self.line.ends).rstrip(b"\0")
        return segments_from_ends(tuple(ends), self.rules.layers)

    def served(self) -> Iterator[Finding]:
        """(1) The proof holds; (2) each node signed its result; (3) each was drawn at the order's block."""
        beta = self._beta(messages.infer_alpha(self.order), self.line.infer_proof, "who infers")
        spans = self.segments()
        if len(self.line.results) != len(spans):
            yield self.cheated("M15", f"{len(self.line.results)} results for {len(spans)} segments")
        for segment, (seen, span) in enumerate(zip(self.line.results, spans, strict=False)):
            node = log_data.read_address(seen.node)
            result = log_data.read_hash(seen.result)
            if not self._signed(result, seen.signature, node):
                yield self.cheated("M15", f"The result of segment {segment} is not signed by {node}", segment)
            drawn = self._draw(beta, segment, span, self.rules.candidates, bound=self._bound(span))
            if node not in drawn:
                action = "Evidence.convictNodes with the order's admission: its client holds both"
                what = f"{node} was not drawn for segment {segment}"
                yield self.cheated("M15", what, segment, action=action)

    def checked(self) -> Iterator[Finding]:
        """(1) Beta is the VRF's; (2) the secret is the order's; (3) what hits is checked, by seats that were drawn."""
        beta = self._beta(messages.draw_alpha(self.order), self.line.draw_proof, "the lottery")
        if beta != log_data.read_hash(self.line.beta):
            action = "Evidence.convictBeta with the signed draw: its client holds it"
            yield self.cheated("M16", "Beta is not the output of the scheduler's proof", action=action)
        if not self.line.secret:
            return
        secret = log_data.read_hash(self.line.secret)
        if keccak256(secret) != log_data.read_hash(self.line.draw_hash):
            yield self.cheated("M16", "The secret is not the one that the order committed to")
        if not log_data.is_drawn(self.line):
            if log_data.opinions_in(self.line):
                yield self.cheated("M16", "An answer was checked that was not drawn")
            return
        if not log_data.opinions_in(self.line):
            action = "Summons.summonCheck with order, draw and secret, within half the lag"
            yield self.cheated("M16", "The answer was drawn, and there is no check of it", action=action)
            return
        yield from self._verdicts(secret, beta)

    def _verdicts(self, secret: Hash32, beta: Hash32) -> Iterator[Finding]:
        results = [log_data.read_hash(seen.result) for seen in self.line.results]
        seed = messages.check_seed(self.order, secret, beta, Hash32(keccak256(b"".join(results))))
        owners = {self.state.owner_of(log_data.read_address(seen.node)) for seen in self.line.results}
        for segment, span in enumerate(self.segments()):
            spoken = [self._spoken(said, results) for said in self.line.verdicts if said.segment == segment]
            cast = [one for one in log_data.ballots_in(self.line) if one.segment == segment]
            yield from self._named_rightly(segment, len(spoken), len(cast))
            if cast:
                yield from self._ballots(seed, span, owners, cast[0], results[segment])
                continue
            passed = self._passed_over(segment, [one.verifier for one in spoken if one.signed])
            excluded = owners | passed
            drawn = self._draw(seed, segment, span, self.rules.verifiers, excluded=tuple(excluded), seasoned=True)
            opinions: dict[Address, Opinion] = {}
            for one in spoken:
                if one.verifier not in drawn:
                    yield self.cheated("M16", f"{one.verifier} was not drawn to check segment {segment}", segment)
                elif not one.signed:
                    what = f"The verdict over segment {segment} is not of {one.verifier}"
                    yield self.cheated("M16", what, segment)
                else:
                    opinions[one.verifier] = one.opinion
            yield from self._majority(segment, drawn, opinions)

    def _spoken(self, said: LoggedVerdict, results: Sequence[Hash32]) -> _Spoken:
        verifier, opinion = log_data.read_address(said.verifier), log_data.opinion_of(said)
        commitment = log_data.read_hash(said.commitment)
        verdict = Verdict(self.order, said.segment, results[said.segment], commitment, opinion, said.locks)
        return _Spoken(verifier, opinion, self._signed(typed_data.struct_hash(verdict), said.signature, verifier))

    def _named_rightly(self, segment: int, named: int, cast: int) -> Iterator[Finding]:
        """A veiled class's log names a verifier only where it is alone, and no other's hides any."""
        definition = self.state.classes[log_data.read_hash(self.line.execution_class)]
        if hides_verifiers(definition.name, definition.verifiers, len(self.segments())):
            if named > 1 or (named and cast) or cast > 1:
                yield self.cheated("M16", f"The verifiers of segment {segment} are named, or polled twice", segment)
        elif cast:
            yield self.cheated("M16", f"Who verified segment {segment} is hidden, in a class that names it", segment)

    def _ballots(
        self, seed: Hash32, span: Segment, owners: set[Address], cast: LoggedBallots, result: Hash32
    ) -> Iterator[Finding]:
        """As of verdicts; who of the ring said what is nobody's to know."""
        segment = cast.segment
        try:
            ring = ring_in(log_data.read_bytes(cast.ring))
            given = [CastBallot(log_data.opinion_of(one), log_data.read_bytes(one.signature)) for one in cast.ballots]
            members = members_of(ring)
            excluded = owners | self._passed_over(segment, members)
            drawn = self._draw(seed, segment, span, self.rules.verifiers, excluded=tuple(excluded), seasoned=True)
            opinions = count_ballots(given, ring, (self.order, segment, result), drawn=drawn, domain=self.domain)
        except ProtocolError as error:
            yield self.cheated("M16", f"The ballots over segment {segment} do not hold: {error.what}", segment)
            return
        if [one.tag for one in given] != sorted(opinions):
            yield self.cheated("M16", f"The ballots over segment {segment} are not in the order of their tags", segment)
        silent = sorted({seat for seat in drawn if seat not in members})
        missing = len(members) - len(opinions)
        if silent or missing:
            what = f"{', '.join(silent) or missing} of {len(set(drawn))} verifiers gave no verdict or no ballot"
            action = "Summons.summonCheck with order, draw and secret, within half the lag"
            yield self.cheated("M16", what, segment, action=action)
        yield from self._unbrought(segment, len(drawn), _least_seats(drawn, members, opinions))

    def _passed_over(self, segment: int, spoken: Iterable[Address]) -> set[Address]:
        """Owners whom a summons proved silent, but not those whose own verdict is here: a check that was complete is
        not undone by a verifier that is silent afterwards (the court's rule, too)."""
        silent = {self.state.owner_of(node) for node in self.state.silent_in_check(self.order, segment)}
        return silent - {self.state.owner_of(one) for one in spoken}

    def _majority(
        self, segment: int, drawn: tuple[Address, ...], opinions: Mapping[Address, Opinion]
    ) -> Iterator[Finding]:
        silent = sorted({seat for seat in drawn if seat not in opinions})
        if silent:
            action = "Summons.summonCheck with order, draw and secret, within half the lag"
            yield self.cheated("M16", f"{', '.join(silent)} gave no verdict", segment, action=action)
        yield from self._unbrought(segment, len(drawn), sum(opinions.get(seat) is Opinion.REJECT for seat in drawn))

    def _unbrought(self, segment: int, seats: int, rejecting: int) -> Iterator[Finding]:
        if 2 * rejecting > seats and messages.case_id(self.order, segment) not in self.state.cases:
            what = f"{rejecting} of {seats} seats reject segment {segment}, and nobody brought it to the court"
            action = "Court.open with the receipt: a tenth of the penalty is the reward"
            yield Finding(
                "M16", FindingKind.INCONCLUSIVE, what, self.order, segment, place=self.logged.meta, action=action
            )

    # ---- parts

    def _beta(self, alpha: Hash32, proof: str, of: str) -> Hash32:
        if self.party is None:
            raise InvalidProof("No scheduler is registered under this address", self.logged.meta.block, "Check it.")
        try:
            return Hash32(vrf.verify(self.party.vrf_key, alpha, log_data.read_bytes(proof)))
        except InvalidProof as error:
            raise InvalidProof(f"The proof of {of} does not hold", proof[:40], "Show the line.") from error

    def _bound(self, span: Segment) -> Ask:
        line, empty = self.line, ZERO_HASH
        order = Order(
            tab=empty,
            sequence=0,
            execution_class=empty,
            request_hash=empty,
            ends=empty,
            prompt_price=log_data.read_number(line.prompt_price),
            cached_price=log_data.read_number(line.cached_price),
            written_price=log_data.read_number(line.written_price),
            node_share=line.node_share,
            max_fee=0,
            check_rate=line.check_rate,
            deadline=0,
            reference_block=line.reference_block,
            draw_hash=empty,
            tiles_hash=empty,
            reply_key=empty,
        )
        return prices.bound(order, span.end - span.first, self.rules.layers)

    def _draw(
        self,
        chance: Hash32,
        segment: int,
        span: Segment,
        count: int,
        *,
        excluded: tuple[Address, ...] = (),
        seasoned: bool = False,
        bound: Ask | None = None,
    ) -> tuple[Address, ...]:
        execution_class = log_data.read_hash(self.line.execution_class)
        request = DrawRequest(
            execution_class=execution_class,
            first=span.first,
            end=span.end,
            block_number=self.line.reference_block,
            seed=messages.segment_seed(chance, segment),
            count=count,
            seasoned=seasoned,
            distinct=not seasoned,
            excluded=excluded,
            bound=bound or Ask(),
        )
        group = self.state.group(group_id(execution_class, span))
        seasoning = self.subject.evidence.parameters.seasoning
        return draws.draw(request, group, seat_cap=self.rules.seat_cap, seasoning=seasoning).operators

    def _signed(self, struct_hash: Hash32, signature: str, signer: Address) -> bool:
        digest = keccak256(b"\x19\x01" + typed_data.domain_separator(self.domain) + struct_hash)
        try:
            return typed_data.recover_digest(digest, log_data.read_bytes(signature)) == signer
        except InvalidSignature:
            return False

    def cheated(
        self, number: str, message: str, segment: int | None = None, action: str = "show the line and its entry"
    ) -> Finding:
        """A finding about what the scheduler itself wrote."""
        return Finding(
            number,
            FindingKind.CHEATED,
            message,
            self.order,
            segment,
            party=None if self.party is None else self.party.operator,
            role="scheduler",
            place=self.logged.meta,
            action=action,
        )


# ----------------------------------------------------------------------------------------------------------- promises


def _promised(subject: AuditSubject, served: ServedLogs, entries: list[_ReadEntry]) -> Iterator[CheckResult]:
    """A leaf that was promised is in the entry that was named, or an earlier one, once that entry is posted.

    A promise names the line as it was before its secret was shown, or as it is.
    """
    places = {log_data.leaf_of(line): entry.logged.number for entry in entries for line in entry.data.split(b"\n")[:-1]}
    places |= {log_data.promised_leaf(line): entry.logged.number for entry in entries for line in entry.lines}
    posted = subject.history.state.head_of(served.scheduler)[0]
    for promise in served.promises:
        message = promise.message
        try:
            promise.require(subject.evidence.domain, served.scheduler)
        except InvalidSignature as error:
            what = f"The promise was not signed by this scheduler: {error}"
            yield CheckResult(message.order, (Finding("M17", FindingKind.INCONCLUSIVE, what, message.order),))
            continue
        if message.entry > posted:
            what = f"The leaf is promised for entry {message.entry}; {posted} are posted"
            yield CheckResult(message.order, (Finding("M17", FindingKind.INCONCLUSIVE, what, message.order),))
        elif places.get(message.leaf, posted + 1) > message.entry:
            what = f"A leaf that was promised by entry {message.entry} is not in the log"
            action = "show the promise: a log that leaves out what it promised is false"
            found = Finding(
                "M17", FindingKind.CHEATED, what, message.order, party=served.scheduler, role="scheduler", action=action
            )
            yield CheckResult(message.order, (found,))
        else:
            yield CheckResult(message.order, ())
