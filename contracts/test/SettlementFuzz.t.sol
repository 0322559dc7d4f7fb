// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Outcome} from "../interfaces/TrothTypes.sol";
import {TaskTest} from "./support/TaskTest.sol";

/// @title Any conduct of all parties, against a second statement of the rules
contract SettlementFuzzTest is TaskTest {
    struct Verdict {
        Outcome outcome;
        uint256 cluster;
    }

    mapping(address account => int256) private _change;
    mapping(address account => uint256) private _stakeBefore;
    int256 private _reserve;
    int256 private _released;

    /// @dev Party conduct from a draw: data of three kinds, verdict, commits (never the inferencer not), opens.
    function behave(Play memory play, uint256 seed) private view {
        uint256 absent;
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            uint256 draw = uint256(keccak256(abi.encode(seed, i)));
            uint256 kind = draw % 5;
            play.conducts[i].data = kind < 3 ? TRUE_DATA : kind == 3 ? FALSE_DATA : keccak256(abi.encode(i));
            play.conducts[i].verdict = (draw >> 8) % 3 != 0;
            play.conducts[i].opens = (draw >> 16) % 4 != 0;
            if (i % play.width == 0) absent = 0;
            else if ((draw >> 24) % 5 == 0 && absent++ == 0) play.conducts[i].commits = false;
        }
    }

    function testFuzz_TolerantTasksFollowTheRules(uint256 seed) public {
        run(tolerant, WHOLE, seed);
    }

    function testFuzz_ExactTasksOfTwoSegmentsFollowTheRules(uint256 seed) public {
        run(exact, HALVES, seed);
    }

    function run(bytes32 class, bytes32 ends, uint256 seed) private {
        Play memory play = newPlay(class, ends);
        behave(play, seed);
        open(play);
        assign(play);
        commit(play);
        pass(1);
        if (class == tolerant) sample(play);
        pass(REVEAL_WINDOW + 1);
        uint96 escrow = troth.escrowOf(client);
        for (uint256 i = 0; i < play.task.progress.parties.length; ++i) {
            _stakeBefore[play.task.progress.parties[i]] = stakeOf(play.task.progress.parties[i]);
        }
        settle(play);
        Outcome expected = predict(play);
        assertEq(uint8(troth.outcomeOf(play.id)), uint8(expected), "outcome");
        for (uint256 i = 0; i < play.task.progress.parties.length; ++i) {
            address party = play.task.progress.parties[i];
            assertEq(int256(owned(party)), int256(_stakeBefore[party]) + _change[party], "party");
        }
        assertEq(int256(owned(reserve)), _reserve, "reserve");
        assertEq(int256(uint256(troth.escrowOf(client))), int256(uint256(escrow)) + _released, "client");
        assertSolvent(0);
    }

    function committed(Play memory play, uint256 s, uint256 party) private pure returns (bool) {
        return play.conducts[s * play.width + party].commits;
    }

    function opened(Play memory play, uint256 s, uint256 party) private pure returns (bool) {
        return committed(play, s, party) && play.conducts[s * play.width + party].opens;
    }

    function sameData(Play memory play, uint256 s, uint256 a, uint256 b) private pure returns (bool) {
        return play.conducts[s * play.width + a].data == play.conducts[s * play.width + b].data;
    }

    function verdict(Play memory play, uint256 s, uint256 party) private pure returns (bool) {
        return play.conducts[s * play.width + party].verdict;
    }

    /// @dev Verifiers 1..3: the largest set of consistent ones that are alike. Data is alike or not, so that being in
    ///      one cluster is the same as being alike.
    function judge(Play memory play, uint256 s) private pure returns (Verdict memory made) {
        for (uint256 v = 1; v < play.width; ++v) {
            if (!consistent(play, s, v)) continue;
            uint256 alike = 0;
            uint256 count = 0;
            for (uint256 w = 1; w < play.width; ++w) {
                bool same = sameData(play, s, v, w) && verdict(play, s, v) == verdict(play, s, w);
                if (consistent(play, s, w) && same) {
                    alike |= 1 << w;
                    ++count;
                }
            }
            if (count < 2) continue;
            made.cluster = alike;
            made.outcome = verdict(play, s, v) ? Outcome.Accepted : Outcome.Rejected;
        }
        if (made.cluster == 0) made.outcome = Outcome.Indeterminate;
        if (!opened(play, s, 0)) made.outcome = Outcome.Rejected;
    }

    function consistent(Play memory play, uint256 s, uint256 v) private pure returns (bool) {
        if (!opened(play, s, v)) return false;
        return !(verdict(play, s, v) && opened(play, s, 0) && !sameData(play, s, 0, v));
    }

    function predict(Play memory play) private returns (Outcome outcome) {
        uint256 segments = play.task.progress.segments;
        Verdict[] memory verdicts = new Verdict[](segments);
        outcome = Outcome.Accepted;
        for (uint256 s = 0; s < segments; ++s) {
            verdicts[s] = judge(play, s);
            if (verdicts[s].outcome == Outcome.Rejected) outcome = Outcome.Rejected;
            else if (verdicts[s].outcome == Outcome.Indeterminate && outcome == Outcome.Accepted) {
                outcome = Outcome.Indeterminate;
            }
        }
        int256 unit = int256(uint256(UNIT));
        int256 paid = 0;
        for (uint256 s = 0; s < segments; ++s) {
            for (uint256 v = 1; v < play.width; ++v) {
                if (!committed(play, s, v)) continue;
                address verifier = partyOf(play, s, v);
                bool inside = verdicts[s].cluster >> v & 1 == 1;
                bool decided = outcome != Outcome.Indeterminate && verdicts[s].cluster != 0;
                if (inside && outcome == Outcome.Accepted) {
                    _change[verifier] += 6 * unit;
                    paid += 6 * unit;
                } else if (inside && verdicts[s].outcome == Outcome.Rejected) {
                    _change[verifier] += 6 * unit;
                    _change[partyOf(play, s, 0)] -= 6 * unit;
                } else if (!inside && (!opened(play, s, v) || decided)) {
                    _change[verifier] -= 2 * unit;
                    _reserve += 2 * unit;
                }
            }
            if (outcome == Outcome.Accepted) {
                _change[partyOf(play, s, 0)] += 6 * unit;
                paid += 6 * unit;
            } else if (verdicts[s].outcome == Outcome.Rejected) {
                _change[partyOf(play, s, 0)] -= 2 * unit;
                _reserve += 2 * unit;
            }
        }
        if (outcome == Outcome.Accepted) paid += 6 * unit;
        _released = int256(uint256(play.task.terms.fee)) - paid;
    }
}
