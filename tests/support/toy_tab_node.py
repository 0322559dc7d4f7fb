"""A node on tabs with a toy model in place of a transformer: real papers, real signatures, real commitments.

It reads the chain that it is given, refuses what a node must refuse, signs once, and answers a repeated question with
the same words. Faults are set by assigning to ``faults``. ``ToyWay`` is the channel to it without a network: messages
go through the real encoding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from support.toy_faults import Faults, proof_of_work
from support.toy_model import _EMBEDDING, COLUMNS, VOCABULARY, choose, layer
from support.toy_reminders import reminder_of

from troth.protocol import rings, tokens, typed_data
from troth.protocol.hashing import keccak256
from troth.protocol.imprints.naming import Imprints, imprints_of
from troth.protocol.imprints.rows import RowKind, imprints_root, round_row
from troth.protocol.logprobs import logprobs_of, logprobs_to_bytes
from troth.protocol.market import ballots, canonical, checks, life, lottery, messages, prices, tabs, views
from troth.protocol.market.ballots import Ballot
from troth.protocol.market.bodies import opening_context
from troth.protocol.market.checks import Opened, OrderView
from troth.protocol.market.messages import Signed
from troth.protocol.market.papers import (
    PAPERS_LIMIT,
    CheckPapers,
    Commitments,
    InferencePapers,
    Pay,
    Spoken,
    trace_salt,
)
from troth.protocol.market.rows import RowHashes, travel_as_hashes, verify_hashes, verify_rows, verify_veiled
from troth.protocol.market.signed import Promise, Result, TraceCommitment, Verdict, Work
from troth.protocol.market.types import NO_ADDRESS, Voucher
from troth.protocol.masks import TextRules
from troth.protocol.request import Request, from_canonical_bytes, output_hash, request_hash
from troth.protocol.tensors import Dtype, rows_from_bytes, tokens_from_bytes
from troth.protocol.trace import CommittedTrace, TileLayout
from troth.protocol.types import ZERO_HASH, Address, Hash32
from troth.protocol.wire import Decoded, Received, Released, Rows
from troth.protocol.wire_decoding import WantedText, WrittenPart, decode_wanted, encode_parts
from troth.protocol.wire_fields import RowSignature
from troth.protocol.wire_market import (
    Advance,
    Conclude,
    Concluded,
    Dismiss,
    Hidden,
    Inform,
    Introduce,
    Introduced,
    Judge,
    Judged,
    Noted,
    Poll,
    Polled,
    Proceed,
    Recommit,
    Redeemable,
    Remind,
    Reminded,
    Unveil,
    Unveiled,
)
from troth.transport.errors import ChannelTimeout, ChannelUnavailable, OverlayError, RemoteFailure
from troth.transport.identity import Operator
from troth.transport.sealing import seal


@dataclass
class _Session:
    papers: InferencePapers | CheckPapers
    view: OrderView
    request: Request | None
    layers: range
    chain: RowHashes
    outputs: list[np.ndarray]
    upstream: RowHashes | None
    prompt: int = 0
    seen: int = 0
    tokens: tuple[int, ...] = ()
    bound: tuple[int, ...] = ()
    rules: TextRules | None = None
    before: tuple[Address, ...] = ()


class ToyTabNode:
    """One node; ``chain`` says state, block and time. ``tokenizer``: that of its model, by which grammars mask."""

    tokenizer = ""

    def __init__(self, secret: bytes, domain: typed_data.Domain, chain: Callable[[], tuple[Any, int, int]]) -> None:
        self.operator = Operator(secret, domain)
        self.faults = Faults()
        self.seen: list[str] = []
        self.books: dict[Hash32, tabs.PayeeBook] = {}
        self.vouchers: dict[Hash32, Signed[Voucher]] = {}
        self.promises: dict[Hash32, dict[int, Signed[Promise]]] = {}
        self.told: dict[tuple[bytes, int], Spoken] = {}
        self._chain = chain
        self._sessions: dict[tuple[bytes, int, str], _Session] = {}
        self._words: dict[tuple[bytes, int, str], bytes] = {}
        self._traces: dict[tuple[bytes, int, str], tuple[CommittedTrace, Hash32]] = {}

    @property
    def address(self) -> Address:
        return self.operator.address

    def restart(self) -> None:
        """Sessions are lost; words and traces are on disk."""
        self._sessions.clear()

    async def handle(self, header: Any, payload: memoryview) -> tuple[Any, bytes]:
        self.seen.append(type(header).__name__)
        if type(header) in self.faults.silent:
            raise ChannelTimeout("The node did not answer")
        if self.faults.away.get(type(header), 0) > 0:
            self.faults.away[type(header)] -= 1
            raise ChannelUnavailable("Nobody listens there", type(header).__name__, "Try again.")
        if type(header) in self.faults.refuses:
            raise OverlayError("This node refuses", type(header).__name__, "Ask another.")
        answer = {
            Advance: self._advance,
            Proceed: self._proceed,
            Conclude: self._conclude,
            Recommit: self._recommit,
            Judge: self._judge,
            Introduce: lambda _header, _payload: (Introduced(), rings.public_key(self.operator.secret)),
            Poll: self._poll,
            Unveil: self._unveil,
            Inform: self._inform,
            Redeemable: self._redeemable,
            Remind: self._remind,
            Dismiss: lambda _header, _payload: (Released(), b""),
        }[type(header)]
        return answer(header, payload)

    # ---- inference

    def _advance(self, header: Advance, payload: memoryview) -> tuple[Any, bytes]:
        key = (header.order, header.segment, header.role)
        if header.papers_size and (key not in self._sessions or header.role == "check"):
            papers = payload[: header.papers_size]
            request = payload[header.papers_size : header.papers_size + header.request_size]
            self._sessions[key] = self._begin(header, papers, bytes(request))
        session = self._sessions[key]
        if self.faults.dies_at_position is not None and header.start + header.count > self.faults.dies_at_position:
            raise ChannelTimeout("the node died")
        assert header.start == sum(len(part) for part in session.outputs)
        session.prompt = session.prompt or header.count
        rest = payload[header.papers_size + header.request_size :]
        inputs, bound = self._inputs(header, session, rest)
        data, row = self._compute(session, inputs, bound)
        if header.role == "check":
            return Received(header.start + header.count), b""
        token, finished = self._emit(session) if header.emit else (None, None)
        asked = None if isinstance(header.logprobs, UnsetType) else header.logprobs
        return Rows(header.start, header.count, row, token, finished, 40, self._told(session, token, asked)), data

    def _told(self, session: _Session, token: int | None, asked: int | None) -> bytes | UnsetType:
        if token is None or asked is None:
            return UNSET
        return logprobs_to_bytes(logprobs_of(_EMBEDDING @ session.outputs[-1][-1], token, asked))

    def _compute(
        self, session: _Session, inputs: np.ndarray, bound: tuple[int, ...] | None
    ) -> tuple[bytes, RowSignature]:
        states = inputs
        for depth, _ in enumerate(session.layers):
            states = layer(states, self._last(session, depth))
            self._remember(session, depth, states[-1])
        states = (states * np.float32(1 + self.faults.noise)).astype(np.float32)
        session.outputs.append(states)
        data = states.tobytes()
        hashes = session.chain.hashes(data, 4 * COLUMNS, bound)
        session.chain, last = session.chain.extend_hashed(hashes)
        if self._sends_hashes(session):
            data = b"".join(hashes)
        secret = self.operator.secret
        if self.faults.wrong_signature_at is not None and last.position >= self.faults.wrong_signature_at:
            secret = keccak256(secret)
        signature = typed_data.sign(last, self.operator.domain, secret)
        return data, RowSignature(last.position, last.row_hash, last.previous, signature)

    def _sends_hashes(self, session: _Session) -> bool:
        exact, segments = session.view.rules.exact, len(session.papers.nodes)
        return travel_as_hashes(exact=exact, segments=segments) and not self.faults.sends_rows

    def _last(self, session: _Session, depth: int) -> np.ndarray:
        kept = getattr(self, "_kept", {})
        return kept.get((id(session), depth), np.zeros(COLUMNS, np.float32))

    def _remember(self, session: _Session, depth: int, row: np.ndarray) -> None:
        self._kept = {**getattr(self, "_kept", {}), (id(session), depth): row}

    def _begin(self, header: Advance, papers: memoryview, request: bytes) -> _Session:
        kind = InferencePapers if header.role == "infer" else CheckPapers
        shown = canonical.decode(kind, papers, PAPERS_LIMIT)
        state, block, now = self._chain()
        order = shown.order.message
        view = views.view_of(
            state,
            order,
            shown.tab,
            chain_id=self.operator.domain.chain_id,
            block=block,
            time=min(now, order.deadline),
            leaving=header.role != "infer",
        )
        assert messages.order_id(order, view.domain) == header.order
        if header.role == "infer":
            life.validate_order(shown.order, view)
        if NO_ADDRESS in shown.nodes:
            place = (header.segment, self.address)
            drawn = checks.require_own_place(order, shown.admission, place, shown.infer_proof, view)
        else:
            drawn = checks.require_admission(order, shown.admission, shown.nodes, shown.infer_proof, view)
        assert (shown.salt is not None) == (header.segment in (0, len(shown.nodes) - 1))
        if shown.salt is not None:
            assert request_hash(from_canonical_bytes(request), shown.salt) == order.request_hash
        self._require_paid(shown, header.segment, view)
        span = view.segments(order)[header.segment]
        chain = RowHashes(Hash32(header.order), header.segment)
        upstream = RowHashes(Hash32(header.order), header.segment - 1) if header.segment else None
        parsed = from_canonical_bytes(request) if request else None
        before = drawn[header.segment - 1] if header.segment else ()
        return _Session(shown, view, parsed, range(span.first, span.end), chain, [], upstream, before=before)

    def _require_paid(self, shown: Any, segment: int, view: OrderView) -> None:
        pay: Pay = shown.pay
        order = shown.order.message
        assert pay.tab == type(pay.tab)(shown.tab.payee, self.address, shown.tab.payee)
        if isinstance(shown, InferencePapers):
            assert shown.nodes[segment] == self.address
            checks.require_promise(order, pay.promise, segment=segment, work=Work.INFERENCE, least=1, view=view)
        else:
            results = checks.require_results(order, shown.results, shown.nodes, view)
            seen = shown.draw.message.block_number
            beta = checks.require_draw(order, shown.draw, results, shown.draw_proof, seen_at=seen, view=view)
            assert lottery.is_drawn(order, shown.secret, beta)
            state = self._chain()[0]
            order_id = messages.order_id(order, view.domain)
            silent = {place: state.silent_in_check(order_id, place) for place in range(len(results))}
            drawn = checks.verifiers(order, results, shown.secret, beta, nodes=shown.nodes, view=view, silent=silent)[
                segment
            ]
            least = prices.check_reward(view.rules, prices.positions(results[segment])) * drawn.seats[self.address]
            checks.require_promise(order, pay.promise, segment=segment, work=Work.CHECK, least=least, view=view)
        self._accept(pay)

    def _accept(self, pay: Pay) -> None:
        tab, promised = messages.tab_id(pay.tab), pay.promise.message
        pay.voucher.require(self.operator.domain, pay.tab.key)
        known = self.promises.get(tab, {}).get(promised.sequence)
        if known is not None and replace(known.message, price=promised.price) != promised:
            raise RemoteFailure(self.address, "not_paid", "this number of the tab was promised for other work", "")
        book = self.books.get(tab, tabs.PayeeBook(tabs.first_voucher(tab)))
        if pay.voucher.message.sequence >= book.best.sequence:
            book = tabs.accept(book, pay.voucher.message)
            self.vouchers[tab] = pay.voucher
        if promised.sequence not in book.worth:
            book = tabs.admit(book, promised.sequence, promised.price, self._chain()[0].tab_state(tab))
        self.books[tab] = book
        self.promises.setdefault(tab, {})[promised.sequence] = pay.promise

    def _remind(self, _header: Remind, _payload: memoryview) -> tuple[Any, bytes]:
        return Reminded(), canonical.encode(reminder_of(self.vouchers, self.promises, self._words))

    def _inputs(
        self, header: Advance, session: _Session, payload: memoryview
    ) -> tuple[np.ndarray, tuple[int, ...] | None]:
        if header.segment == 0:
            tokens = tokens_from_bytes(payload, header.count, VOCABULARY)
            session.bound += tokens
            return _EMBEDDING[list(tokens)], tokens
        size = 4 * header.count if header.segment == 1 else 0
        bound = tokens_from_bytes(payload[:size], header.count, VOCABULARY) if size else None
        assert session.upstream is not None
        chained = (session.upstream, payload[size:], 4 * COLUMNS)
        signer, domain = session.papers.nodes[header.segment - 1], self.operator.domain
        if signer == NO_ADDRESS:
            assert header.upstream is None
            session.upstream = verify_veiled(
                *chained, header.veiled, members=session.before, domain=domain, tokens=bound
            )
        else:
            assert header.upstream is not None
            session.upstream = verify_rows(*chained, header.upstream, signer=signer, domain=domain, tokens=bound)
        return rows_from_bytes(payload[size:], header.count, COLUMNS, Dtype.FLOAT32), None

    def _emit(self, session: _Session) -> tuple[int, str | None]:
        assert session.request is not None
        token = self._chosen(session, session.request)
        session.tokens = (*session.tokens, token)
        if token in session.request.end_tokens:
            return token, "stop"
        return token, "length" if len(session.tokens) == session.request.max_tokens else None

    def _chosen(self, session: _Session, request: Request) -> int:
        """The likeliest token, of those that the request's transforms leave."""
        row = session.outputs[-1][-1]
        if not request.transforms.any:
            return choose(row)
        if session.rules is None:
            session.rules = TextRules(request, VOCABULARY, self.tokenizer)
        token = tokens.choose(_EMBEDDING @ row, tokens.Sampling(0.0, 1.0), None, session.rules.row())
        session.rules.take(token)
        return token

    def _proceed(self, header: Proceed, payload: memoryview) -> tuple[Any, bytes]:
        parts = [self._write(wanted, header.most) for wanted in decode_wanted(payload, header.texts)]
        return Decoded(len(parts)), encode_parts(parts)

    def _write(self, wanted: WantedText, most: int) -> WrittenPart:
        session = self._sessions[wanted.order, 0, "infer"]
        assert wanted.start == sum(len(part) for part in session.outputs)
        if self.faults.dies_at_position is not None and wanted.start >= self.faults.dies_at_position:
            raise ChannelUnavailable("the node died")
        tokens, data, finished = [], b"", None
        told: list[bytes] = []
        while finished is None and len(tokens) < min(most, 4):
            token = session.tokens[-1]
            rows, row = self._compute(session, _EMBEDDING[[token]], (token,))
            chosen, finished = self._emit(session)
            tokens.append(chosen)
            data += rows
            packed = self._told(session, chosen, wanted.alternatives)
            told += [] if isinstance(packed, UnsetType) else [packed]
        size = len(data) // len(tokens)
        return WrittenPart(wanted.order, wanted.start, tuple(tokens), row, data, size, finished, 40, tuple(told))

    def _conclude(self, header: Conclude, payload: memoryview) -> tuple[Any, bytes]:
        key = (header.order, header.segment, "infer")
        if key not in self._words:
            if not header.positions:
                raise OverlayError("Nothing was concluded here", 0, "Conclude what was computed.")
            session = self._sessions[key]
            papers, order = session.papers, session.papers.order.message
            trace = self._commit(key, session, header.positions)
            salt = trace_salt(Hash32(header.order), header.segment, self.address, papers.head_salt)
            self._traces[key] = (trace, salt)
            last = header.segment == len(papers.nodes) - 1
            tokens = tokens_from_bytes(payload, header.tokens, VOCABULARY) if last else ()
            head = order.request_hash
            if session.upstream is not None:
                head = checks.head(Hash32(header.order), papers.head_salt, session.upstream.link)
            result = Result(
                order=Hash32(header.order),
                segment=header.segment,
                input_head=head,
                output_head=checks.head(Hash32(header.order), papers.head_salt, session.chain.link),
                prompt=header.positions - header.tokens + 1,
                cached=0,
                written=header.tokens,
                trace_commitment=messages.trace_commitment(Hash32(trace.root), salt),
                output_hash=output_hash(papers.salt, tokens) if last else ZERO_HASH,
            )
            result = replace(result, **self.faults.wrong_result)
            self._words[key] = canonical.encode(Signed(result, self.operator.sign(result)))
        session = self._sessions.get(key)
        shows = session is not None and self._sends_hashes(session)
        last_row = session.outputs[-1][-1].astype("<f4").tobytes() if session is not None and shows else b""
        return Concluded(last_row, self._imprints(key)), self._words[key]

    def _imprints(self, key: Any) -> bytes:
        """What it signs of its last rows' imprints, where the class names them."""
        session, signed = self._sessions.get(key), self.result_of(key[0], key[1])
        if session is None or signed is None:
            return b""
        definition, _ = views.class_of(self._chain()[0], session.view.execution_class)
        if imprints_of(definition.name) is None:
            return b""
        if key[1] != len(session.papers.nodes) - 1 or self.faults.no_imprints:
            return b""
        rows = np.concatenate(session.outputs).astype(np.float32)[-signed.message.written :]
        root = imprints_root([round_row(row, RowKind.STATE).imprint() for row in rows])
        word = replace(Imprints(typed_data.struct_hash(signed.message), root), **self.faults.wrong_imprints)
        return canonical.encode(Signed(word, self.operator.sign(word)))

    def result_of(self, order: Hash32, segment: int) -> Signed[Result] | None:
        """What it signed."""
        word = self._words.get((order, segment, "infer"))
        return None if word is None else canonical.decode(Signed[Result], word, 1 << 13)

    def _commit(self, key: Any, session: _Session, positions: int) -> CommittedTrace:
        rows = np.concatenate(session.outputs)
        assert len(rows) == positions
        model = session.view.execution_class
        state = self._chain()[0]
        layout = TileLayout(Hash32(key[0]), state.classes[model].model, positions, COLUMNS, Dtype.FLOAT32)
        return layout.commit(rows)

    # ---- checks

    def _recommit(self, header: Recommit, _payload: memoryview) -> tuple[Any, bytes]:
        key = (header.order, header.segment, "check")
        name = (header.order, header.segment, "hidden")
        if name not in self._words:
            trace = self._commit(key, self._sessions[key], header.positions)
            salt = Hash32(keccak256(self.operator.secret + header.order))
            self._traces[key] = (trace, salt)
            place = (Hash32(header.order), header.segment)
            hidden = messages.verifier_commitment(*place, self.address, root=Hash32(trace.root), salt=salt)
            papers = self._sessions[key].papers
            assert isinstance(papers, CheckPapers)
            judged = typed_data.struct_hash(papers.results[header.segment].message)
            message = TraceCommitment(*place, judged, hidden)
            self._words[name] = canonical.encode(Signed(message, self.operator.sign(message)))
        return Hidden(), self._words[name]

    def _judge(self, header: Judge, payload: memoryview) -> tuple[Any, bytes]:
        key, name = (header.order, header.segment, "check"), (header.order, header.segment, "verdict")
        if name in self._words:
            return Judged(), self._words[name]
        session = self._sessions[key]
        assert (header.order, header.segment, "hidden") in self._words
        session.seen += header.count
        if session.seen < header.positions:
            return Received(session.seen), b""
        papers = session.papers
        assert isinstance(papers, CheckPapers)
        assert header.row is not None
        result = papers.results[header.segment].message
        chain = RowHashes(Hash32(header.order), header.segment)
        signer, domain = papers.nodes[header.segment], self.operator.domain
        if self._sends_hashes(session):
            chain = verify_hashes(chain, payload, header.row, signer=signer, domain=domain)
        else:
            tokens = session.bound if header.segment == 0 else None
            size = 4 * COLUMNS
            chain = verify_rows(chain, payload, size, header.row, signer=signer, domain=domain, tokens=tokens)
        assert checks.head(Hash32(header.order), papers.head_salt, chain.link) == result.output_head
        hidden = canonical.decode(Signed[TraceCommitment], self._words[header.order, header.segment, "hidden"], 4096)
        verdict = Verdict(
            Hash32(header.order),
            header.segment,
            typed_data.struct_hash(result),
            hidden.message.commitment,
            self.faults.opinion,
            locks=False,
        )
        self._words[name] = canonical.encode(Signed(verdict, self.operator.sign(verdict)))
        if self.faults.proof is None:
            return Judged(), self._words[name]
        rules = views.rules_in(self._chain()[0], session.view.execution_class)
        judged = trace_salt(Hash32(header.order), header.segment, signer, papers.head_salt)
        proof = self.faults.proof(proof_of_work(*self._traces[key], judged, result, rules))
        return Judged(len(proof)), self._words[name] + proof

    def _poll(self, header: Poll, payload: memoryview) -> tuple[Any, bytes]:
        word = self._words[header.order, header.segment, "verdict"]
        said = canonical.decode(Signed[Verdict], word, 4096).message
        ballot = Ballot(said.order, said.segment, said.result, self.faults.ballot or said.opinion)
        cast = ballots.cast(self.operator.secret, rings.ring_in(payload), ballot, self.operator.domain)
        return Polled(), cast.signature

    def _unveil(self, header: Unveil, payload: memoryview) -> tuple[Any, bytes]:
        given = canonical.decode(Commitments, payload, PAPERS_LIMIT)
        key = (header.order, header.segment, header.role)
        papers = given.check or self._sessions[key].papers
        assert isinstance(papers, CheckPapers)
        order = papers.order.message
        lottery.require_tiles_secret(order, given.second_secret)
        state, block, now = self._chain()
        view = views.view_of(
            state, order, papers.tab, chain_id=self.operator.domain.chain_id, block=block, time=now, leaving=True
        )
        shown = [one.message.commitment for one in given.commitments]
        result = papers.results[header.segment].message
        trace, salt = self._traces[key]
        opened = Opened(Hash32(trace.root), salt)
        if not view.rules.exact:
            tiles = checks.check_tiles(given.second_secret, shown, result, view.rules)
            opened = replace(opened, tiles=trace.open(tiles))
        context = opening_context(Hash32(header.order), header.segment, self.address)
        return Unveiled(), seal(canonical.encode(opened), order.reply_key, context)

    def _inform(self, header: Inform, payload: memoryview) -> tuple[Noted, bytes]:
        assert len(payload) == header.size
        self.told[header.order, header.segment] = canonical.decode(Spoken, payload, header.size)
        return Noted(), b""

    def _redeemable(self, _header: Redeemable, payload: memoryview) -> tuple[Any, bytes]:
        signed = canonical.decode(Signed[Voucher], payload, 4096)
        tab = signed.message.tab
        self.books[tab] = tabs.accept(self.books[tab], signed.message)
        self.vouchers[tab] = signed
        return Noted(), b""
