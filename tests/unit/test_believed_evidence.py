"""What a member believes of others' credits while it does not know what earlier epochs added up to."""

from __future__ import annotations

from troth.committee.rating.evidence import MOST_NODES, NOTHING_YET, SURE, UNKNOWN
from troth.protocol.credit import Credit, CreditEvidence
from troth.protocol.reputation import ONE
from troth.protocol.types import address_from_bytes


def credit_with(above: float) -> Credit:
    return Credit(ONE, 1.0, 0.0, 4, 400, CreditEvidence(above))


def test_who_is_not_sure_believes_the_half_and_nothing_else() -> None:
    own = Credit(900_000_000, 0.9, 0.0, 4, 400)
    for value, sure, unsure in (
        (905_000_000, True, True), (700_000_000, False, True), (450_000_000, False, True), (430_000_000, False, False),
        (920_000_000, False, False),
    ):  # fmt: skip
        assert NOTHING_YET.allows(own, value) is sure
        assert UNKNOWN.allows(own, value) is unsure
    known = UNKNOWN
    for number in range(SURE):
        assert known.judged == number
        known = known.after({})
    assert known == NOTHING_YET
    many = {address_from_bytes(n.to_bytes(20, "big")): credit_with(1 + n % 7) for n in range(1, MOST_NODES + 100)}
    kept = known.after(many)
    assert len(kept.sums) == MOST_NODES
    assert {many[node].evidence.above for node in set(many) - set(kept.nodes)} == {1}
    assert kept.after({node: credit_with(0) for node in many}).sums == {}
