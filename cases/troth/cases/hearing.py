"""Whether what a party hands over for a case would be taken by the contracts: commitments, showings, the node's.

One wrong opening makes the deciding call fail for all, so that nothing is given on that was not checked here.
"""

from __future__ import annotations

from troth.cases.calls import is_told
from troth.cases.steps import reveals_now
from troth.protocol.errors import InvalidOpening, InvalidSignature
from troth.protocol.market import court, messages
from troth.protocol.market.messages import Signed
from troth.protocol.market.proceedings import CaseState, NodeReveal, Reveal
from troth.protocol.market.reveals import is_short
from troth.protocol.market.signed import Opinion, ReviewCommitment
from troth.protocol.market.types import Rules
from troth.protocol.tensors import Dtype
from troth.protocol.trace import TileOpening, opening_root, tile_count, tile_indices
from troth.protocol.typed_data import Domain
from troth.protocol.types import ZERO_HASH, Address, Hash32


def hearing_of(state: CaseState) -> Hash32:
    """What reviewers' commitments of this round name."""
    return messages.hearing_id(court.case_of(state), state.round)


def holds_pledge(state: CaseState, reviewer: Address, pledge: Signed[ReviewCommitment], domain: Domain) -> bool:
    """Whether this reviewer signed this for this round of this case."""
    message = pledge.message
    if reviewer not in state.reviewers or message.case_id != hearing_of(state) or message.commitment == ZERO_HASH:
        return False
    try:
        pledge.require(domain, reviewer)
    except InvalidSignature:
        return False
    return True


def sampled_tiles(state: CaseState, rules: Rules) -> tuple[int, ...]:
    """The tiles that are opened; none in an exact class. A short trace is opened whole."""
    if rules.exact:
        return ()
    count = tile_count(state.rows, rules.hidden_size, Dtype(rules.dtype))
    return tile_indices(state.seed, state.segment, min(rules.tiles, count), count)


def holds_reveal(state: CaseState, rules: Rules, reviewer: Address, shown: Reveal) -> bool:
    """Whether a showing is what its reviewer committed to, and opens the tiles that are due."""
    if not reveals_now(state, rules) or reviewer not in state.reviewers:
        return False
    commitment = state.commitments[state.reviewers.index(reviewer)]
    if not Opinion.NONE < shown.opinion <= Opinion.MISSING_TRACE:
        return False
    if shown.opinion == Opinion.MISSING_INPUT and state.segment == 0:
        return False
    if not is_short(shown.salt) or commitment_of(state, reviewer, shown) != commitment:
        return False
    if not is_told(shown):
        return not shown.tiles and not shown.siblings
    return _opens(state, rules, shown)


def commitment_of(state: CaseState, reviewer: Address, shown: Reveal) -> Hash32:
    """What a reviewer commits to before it shows this."""
    return messages.review_commitment(
        hearing_of(state),
        reviewer,
        root=shown.root,
        opinion=Opinion(shown.opinion),
        score=shown.score,
        spread=shown.spread,
        salt=shown.salt,
    )


def holds_node(state: CaseState, rules: Rules, shown: NodeReveal) -> bool:
    """Whether the node shows the trace that its result commits to, at the tiles that are due."""
    if not reveals_now(state, rules) or shown.root == ZERO_HASH:
        return False
    if messages.trace_commitment(shown.root, shown.salt) != state.trace_commitment:
        return False
    return _opens(state, rules, shown)


def _opens(state: CaseState, rules: Rules, shown: Reveal | NodeReveal) -> bool:
    if shown.root == ZERO_HASH:
        return False
    if rules.exact:
        return not shown.tiles and not shown.siblings
    opening = TileOpening(shown.tiles, shown.siblings)
    try:
        indices = sampled_tiles(state, rules)
        proven = opening_root(state.rows, rules.hidden_size, Dtype(rules.dtype), indices, opening)
    except InvalidOpening:
        return False
    return proven == shown.root
