// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothDisputes} from "../interfaces/ITrothDisputes.sol";
import {Outcome} from "../interfaces/TrothTypes.sol";
import {Balances} from "./support/Balances.sol";

/// @title Any conduct in both rounds, with any stakes, against a second statement of the rules
contract ReviewFuzzTest is Balances {
    /// @dev Masks over all parties of a segment, the inferencer in bit 0.
    struct Verdict {
        Outcome outcome;
        uint256 committed;
        uint256 opened;
        uint256 yes;
        uint256 cluster;
        uint256 valid;
    }

    struct Due {
        address payee;
        uint256 amount;
    }

    mapping(address node => uint256) private _stakes;
    Due[] private _dues;
    uint256 private _total;

    function draw(uint256 seed, string memory what, uint256 index) private pure returns (uint256) {
        return uint256(keccak256(abi.encode(seed, what, index)));
    }

    /// @param most how many verifiers of a segment may not commit
    function behave(Play memory play, uint256 seed, uint256 most) private pure {
        uint256 absent;
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            uint256 die = draw(seed, "conduct", i);
            bool infers = i % play.width == 0;
            Conduct memory conduct = play.conducts[i];
            uint256 kind = die % 6;
            bytes32 data = kind < 4 ? TRUE_DATA : kind == 4 ? FALSE_DATA : keccak256(abi.encode(i));
            if (!infers || play.width == 4) conduct.data = data;
            // Mostly the truth, so that committees often decide.
            bool right = conduct.data == play.conducts[i - i % play.width].data;
            conduct.verdict = (die >> 8) % 4 == 0 ? !right : right;
            conduct.opens = (die >> 16) % 8 != 0;
            if (infers) absent = 0;
            else if ((die >> 24) % 5 == 0 && absent < most) (conduct.commits, absent) = (false, absent + 1);
        }
    }

    function testFuzz_TolerantReviewsFollowTheRules(uint256 seed) public {
        run(tolerant, WHOLE, seed);
    }

    function testFuzz_ExactReviewsOfOneOfTwoSegmentsFollowTheRules(uint256 seed) public {
        run(exact, HALVES, seed);
    }

    function run(bytes32 class, bytes32 ends, uint256 seed) private {
        Play memory play = newPlay(class, ends);
        behave(play, draw(seed, "first", 0), 1);
        uint8 segment = ends == HALVES ? uint8(draw(seed, "segment", 0) % 2) : 0;
        Dispute memory made = disputeOf(play, finishFirst(play), segment);
        Verdict memory first = judge(play, segment);
        assertEq(made.settled.outcomes[segment], uint8(first.outcome), "first outcome");
        assertEq(made.settled.verdicts[segment], first.yes >> 1, "first verdicts");
        assertEq(made.settled.clusters[segment], first.cluster >> 1, "first cluster");
        assertEq(made.settled.valid[segment], first.valid >> 1, "first valid");
        if (!disputable(made, first)) return refused(made);
        address disputer = disputerOf(made, first, seed);
        bool outside = disputer == outsider || disputer == client;
        uint96 bond = first.outcome == Outcome.Indeterminate ? 0 : outside ? OUTSIDERS_BOND : BOND;
        dispute(made, disputer, bond);
        behave(made.review, draw(seed, "second", 0), 2);
        readyReview(made);
        shorten(made, seed);
        snap();
        change(disputer, int256(uint256(bond)));
        uint256 before = uint8(troth.outcomeOf(play.id));
        settleReview(made);
        Verdict memory second = judge(made.review, 0);
        predict(made, first, second, disputer, outside && bond != 0);
        assertOutcome(made.review.id, second.outcome);
        assertRestated(made, Outcome(before), second.outcome);
        assertChanges(0);
    }

    function refused(Dispute memory made) private {
        vm.prank(outsider);
        vm.expectPartialRevert(ITrothDisputes.NotDisputable.selector);
        troth.dispute(made.first.id, made.first.task, made.settled, made.segment);
    }

    function disputable(Dispute memory made, Verdict memory first) private pure returns (bool) {
        if (first.outcome == Outcome.Indeterminate) return true;
        if (first.outcome == Outcome.Rejected) return first.opened & 1 == 1;
        for (uint256 s = 0; s < made.settled.outcomes.length; ++s) {
            if (judge(made.first, s).outcome != Outcome.Accepted) return false;
        }
        return true;
    }

    /// @dev A party that another outcome would pay, if there is one and the draw says so; else the client or an outsider.
    function disputerOf(Dispute memory made, Verdict memory first, uint256 seed) private view returns (address) {
        uint256 die = draw(seed, "disputer", 0);
        if (die % 4 == 0) return outsider;
        if (die % 4 == 1) return client;
        bool rejected = first.outcome == Outcome.Rejected;
        if (rejected && die % 4 == 2) return inferencerOf(made);
        uint256 wronged = first.valid & (rejected ? first.yes : ~first.yes);
        for (uint256 party = 1; party < 4; ++party) {
            if (wronged >> party & 1 == 1) return partyOf(made.first, made.segment, party);
        }
        return outsider;
    }

    /// @dev Some have little stake left by the time of the settlement.
    function shorten(Dispute memory made, uint256 seed) private {
        for (uint256 party = 0; party < 9; ++party) {
            uint256 die = draw(seed, "stake", party);
            if (die % 4 != 0) continue;
            bool before = party < 4;
            address node = before ? partyOf(made.first, made.segment, party) : reviewerOf(made, party - 4);
            setStake(node, uint96((die >> 8) % (before ? 40 * UNIT : 3 * UNIT)));
        }
    }

    function says(Play memory play, uint256 segment, uint256 party) private pure returns (Conduct memory) {
        return play.conducts[segment * play.width + party];
    }

    /// @dev Data is alike or not, so that being in one cluster is the same as being alike.
    function judge(Play memory play, uint256 s) private pure returns (Verdict memory made) {
        for (uint256 party = 0; party < play.width; ++party) {
            Conduct memory conduct = says(play, s, party);
            if (!conduct.commits) continue;
            made.committed |= 1 << party;
            if (!conduct.opens) continue;
            made.opened |= 1 << party;
            if (party > 0 && conduct.verdict) made.yes |= 1 << party;
        }
        bool shown = made.opened & 1 == 1;
        uint256 heard = 0;
        for (uint256 v = 1; v < play.width; ++v) {
            bool lies = shown && made.yes >> v & 1 == 1 && says(play, s, v).data != says(play, s, 0).data;
            if (made.opened >> v & 1 == 1 && !lies) heard |= 1 << v;
        }
        if (shown) made.valid = heard;
        for (uint256 v = 1; v < play.width; ++v) {
            (uint256 alike, uint256 count) = alikeWith(play, s, v, heard, made.yes);
            if (count > (play.width - 1) / 2) made.cluster = alike;
        }
        made.outcome = made.cluster & made.yes != 0 ? Outcome.Accepted : Outcome.Rejected;
        if (made.cluster == 0) made.outcome = Outcome.Indeterminate;
        if (!shown) made.outcome = Outcome.Rejected;
    }

    function alikeWith(Play memory play, uint256 s, uint256 v, uint256 heard, uint256 yes)
        private
        pure
        returns (uint256 alike, uint256 count)
    {
        if (heard >> v & 1 == 0) return (0, 0);
        for (uint256 w = 1; w < play.width; ++w) {
            bool sameVerdict = (yes >> v ^ yes >> w) & 1 == 0;
            if (heard >> w & 1 == 0 || !sameVerdict || says(play, s, v).data != says(play, s, w).data) continue;
            alike |= 1 << w;
            ++count;
        }
    }

    function predict(
        Dispute memory made,
        Verdict memory first,
        Verdict memory second,
        address disputer,
        bool prepaid
    ) private {
        delete _dues;
        _total = 0;
        uint256 reserved = 0;
        bool decided = second.outcome != Outcome.Indeterminate && second.cluster != 0;
        for (uint256 v = 1; v <= REVIEWERS; ++v) {
            bool inside = second.cluster >> v & 1 == 1;
            bool silent = second.opened >> v & 1 == 0;
            bool loses = second.committed >> v & 1 == 1 && !inside && (silent || decided);
            if (loses) reserved += take(reviewerOf(made, v - 1), 2 * UNIT);
        }
        if (second.outcome == Outcome.Indeterminate && bits(second.committed) != 1 + REVIEWERS) {
            uint256 fine = take(scheduler, FINE);
            if (prepaid || first.outcome == Outcome.Indeterminate) reserved += fine;
            else change(disputer, int256(fine));
        }
        if (second.outcome != Outcome.Indeterminate) {
            owe(scheduler, 6);
            for (uint256 v = 1; v <= REVIEWERS; ++v) {
                if (second.cluster >> v & 1 == 1) owe(reviewerOf(made, v - 1), 6);
            }
            reserved += second.outcome == first.outcome
                ? upheld(second, disputer, prepaid)
                : fallen(made, first, second, disputer, prepaid);
        }
        change(reserve, int256(reserved));
    }

    function upheld(Verdict memory second, address disputer, bool prepaid) private returns (uint256) {
        uint256 price = 6 * UNIT * bits(second.cluster);
        change(disputer, -int256(uint256(BOND)));
        if (prepaid) change(disputer, -int256(price));
        return pay(BOND + (prepaid ? price : take(disputer, price)));
    }

    function fallen(
        Dispute memory made,
        Verdict memory first,
        Verdict memory second,
        address disputer,
        bool prepaid
    ) private returns (uint256) {
        bool accepts = second.outcome == Outcome.Accepted;
        bool punished = first.outcome != Outcome.Indeterminate;
        uint256 right = first.valid & (accepts ? first.yes : ~first.yes);
        if (prepaid) owe(disputer, 6);
        if (accepts) owe(inferencerOf(made), punished ? 8 + 6 * bits(first.cluster) : 6);
        for (uint256 v = 1; v < 4; ++v) {
            if (right >> v & 1 == 1) owe(partyOf(made.first, made.segment, v), punished ? 8 : 6);
        }
        uint256 refund = 0;
        if (first.outcome == Outcome.Accepted) {
            uint256 paid = 1 + made.settled.outcomes.length;
            for (uint256 s = 0; s < made.settled.outcomes.length; ++s) {
                paid += bits(judge(made.first, s).cluster);
            }
            refund = 6 * UNIT * paid;
        }
        uint256 losers = second.opened & 1 == 1 ? first.committed & ~right & ~uint256(1) : 0;
        if (!accepts) losers |= 1;
        uint256 pool = chargeEach(made, losers, refund + _total);
        uint256 refunded = pool < refund ? pool : refund;
        change(client, int256(refunded));
        return pay(pool - refunded);
    }

    function chargeEach(Dispute memory made, uint256 losers, uint256 owed) private returns (uint256 pool) {
        if (losers == 0) return 0;
        (uint256 share,) = shared(owed, bits(losers));
        for (uint256 party = 0; party < 4; ++party) {
            if (losers >> party & 1 == 1) pool += take(partyOf(made.first, made.segment, party), share);
        }
    }

    /// @dev From the stake as it was before the settlement: no call slashes anybody twice.
    function take(address node, uint256 amount) private returns (uint256 taken) {
        taken = _stakes[node] < amount ? _stakes[node] : amount;
        change(node, -int256(taken));
    }

    function owe(address payee, uint256 count) private {
        _dues.push(Due(payee, count * UNIT));
        _total += count * UNIT;
    }

    function pay(uint256 pool) private returns (uint256 left) {
        left = pool;
        for (uint256 i = 0; i < _dues.length; ++i) {
            uint256 amount = _dues[i].amount;
            if (pool < _total) amount = amount * pool / _total;
            change(_dues[i].payee, int256(amount));
            left -= amount;
        }
    }

    function bits(uint256 mask) private pure returns (uint256 count) {
        for (; mask != 0; mask >>= 1) {
            count += mask & 1;
        }
    }

    function snap() internal override {
        super.snap();
        for (uint256 i = 0; i < people.length; ++i) {
            _stakes[people[i]] = stakeOf(people[i]);
        }
    }

    function assertRestated(Dispute memory made, Outcome before, Outcome second) private view {
        Outcome expected = before;
        if (second == Outcome.Rejected && made.settled.outcomes[made.segment] != uint8(second)) {
            expected = Outcome.Rejected;
        } else if (second == Outcome.Accepted) {
            bool all = true;
            for (uint256 s = 0; s < made.settled.outcomes.length; ++s) {
                all = all && (s == made.segment || made.settled.outcomes[s] == uint8(Outcome.Accepted));
            }
            if (all) expected = Outcome.Accepted;
        }
        assertOutcome(made.first.id, expected);
    }
}
