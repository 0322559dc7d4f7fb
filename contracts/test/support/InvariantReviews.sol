// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Opening, Outcome, Phase, Settled, VrfProof} from "../../interfaces/TrothTypes.sol";
import {InvariantHandler} from "./InvariantHandler.sol";

/// @title Random disputes of settled tasks, and random steps of their reviews
abstract contract InvariantReviews is InvariantHandler {
    /// @notice Disputes ever raised, as abi.encode(Dispute), the task of each, and how each ended.
    bytes[] internal disputes;
    uint256[] internal disputed;
    Outcome[] internal ends;

    mapping(Outcome outcome => uint256) public reviewed;

    /// @param asked which segment, and whether the inferencer, a verifier or anybody disputes it; not all of them may
    function dispute(uint256 seed, uint256 asked, uint256 conduct) external step {
        (bool found, uint256 index) = _findSettled(seed);
        if (!found) return;
        Settled memory settled = abi.decode(settleds[index], (Settled));
        Play memory play = abi.decode(plays[index], (Play));
        Dispute memory made = disputeOf(play, settled, uint8(asked / 8 % settled.outcomes.length));
        uint256 party = asked % 8;
        address by = party < 4 ? partyOf(play, made.segment, party) : outsider;
        uint96 bond = _bondOf(made, by);
        noteDisputed(made, by, bond);
        _behaveInReview(made.review, conduct);
        bytes memory data = abi.encodeCall(troth.dispute, (play.id, play.task, settled, made.segment));
        if (!send(by, 0, data)) return;
        liveFees += bond;
        if (bond == BOND) stakes[by] -= bond;
        disputes.push(abi.encode(made));
        disputed.push(index);
        ends.push();
    }

    /// @dev Whatever a live review is due for.
    function review(uint256 seed) external step {
        (bool found, uint256 index, Dispute memory made) = _findReview(seed);
        if (!found) return;
        Phase phase = made.review.task.progress.phase;
        bool done;
        if (phase == Phase.Disputed) done = _assignReview(made);
        else if (phase == Phase.Assigned) done = _commitReview(made);
        else if (phase == Phase.Committed && _isTolerant(made) && seed % 3 == 0) done = _sampleReview(made);
        else done = _settleReview(index, made);
        if (done) disputes[index] = abi.encode(made);
    }

    function closeReview(uint256 seed) external step {
        (bool found, uint256 index, Dispute memory made) = _findReview(seed);
        if (found && send(funder, 0, abi.encodeCall(troth.closeReview, (made.review.id, made.review.task)))) {
            _end(index, made);
        }
    }

    /// @notice Reviews whose slot is neither the state they were last taken to nor the outcome they had.
    function wrongReviews() external view returns (uint256 count) {
        for (uint256 i = 0; i < disputes.length; ++i) {
            Dispute memory made = abi.decode(disputes[i], (Dispute));
            bytes32 expected = ends[i] == Outcome.None ? stateOf(made.review.task) : bytes32(uint256(ends[i]));
            if (troth.taskState(made.review.id) != expected) ++count;
        }
    }

    function _isTolerant(Dispute memory made) private view returns (bool) {
        return made.review.task.terms.executionClass == tolerant;
    }

    function _assignReview(Dispute memory made) private returns (bool done) {
        (VrfProof memory proof, address[] memory parties) = draw(made.review);
        done = send(funder, 0, abi.encodeCall(troth.assignReview, (made.review.id, made.review.task, proof)));
        noteDrawn(made.review, parties);
    }

    function _commitReview(Dispute memory made) private returns (bool done) {
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        VrfProof[] memory none = new VrfProof[](0);
        done = send(
            funder,
            0,
            abi.encodeCall(
                troth.commitReview, (made.review.id, made.review.task, none, commitments, signatures)
            )
        );
        noteReviewCommitted(made.review, commitments);
    }

    function _sampleReview(Dispute memory made) private returns (bool done) {
        (VrfProof memory proof, bytes32 drawn) = sampleProof(made.review);
        address by = made.review.task.terms.scheduler;
        done = send(by, 0, abi.encodeCall(troth.sample, (made.review.id, made.review.task, proof)));
        made.review.task.progress.phase = Phase.Sampled;
        made.review.task.progress.phaseBlock = uint40(vm.getBlockNumber());
        made.review.task.progress.seed = drawn;
    }

    function _settleReview(uint256 index, Dispute memory made) private returns (bool) {
        VrfProof memory proof;
        bytes32 drawn = made.review.task.progress.seed;
        bool samples = made.review.task.progress.phase == Phase.Committed && _isTolerant(made);
        if (samples) (proof, drawn) = sampleProof(made.review);
        Opening[] memory openings = openingsOf(made.review, drawn);
        bytes memory data = abi.encodeCall(
            troth.settleReview,
            (made.first.id, made.first.task, made.settled, made.segment, made.review.task, proof, openings)
        );
        if (!send(funder, 0, data)) return false;
        _end(index, made);
        _restate(disputed[index], Outcome(made.settled.outcomes[made.segment]), ends[index]);
        return true;
    }

    function _end(uint256 index, Dispute memory made) private {
        if (ends[index] != Outcome.None) ++backwardSteps;
        ends[index] = troth.outcomeOf(made.review.id);
        ++reviewed[ends[index]];
        liveFees -= made.review.task.terms.fee;
    }

    function _restate(uint256 task, Outcome first, Outcome second) private {
        if (second == Outcome.Indeterminate || second == first) return;
        if (second == Outcome.Accepted) --missing[task];
        else if (first == Outcome.Accepted) ++missing[task];
        if (second == Outcome.Rejected) outcomes[task] = Outcome.Rejected;
        else if (missing[task] == 0) outcomes[task] = Outcome.Accepted;
    }

    /// @dev Who would be paid by another outcome puts up eight units of its stake.
    function _bondOf(Dispute memory made, address by) private pure returns (uint96) {
        Outcome outcome = Outcome(made.settled.outcomes[made.segment]);
        if (outcome == Outcome.Indeterminate) return 0;
        bool rejected = outcome == Outcome.Rejected;
        if (rejected && by == inferencerOf(made)) return BOND;
        uint8 yes = made.settled.verdicts[made.segment];
        uint8 wronged = made.settled.valid[made.segment] & (rejected ? yes : ~yes);
        for (uint256 v = 0; v < 3; ++v) {
            if (wronged >> v & 1 == 1 && by == verifierOf(made, v)) return BOND;
        }
        return OUTSIDERS_BOND;
    }

    function _behaveInReview(Play memory play, uint256 seed) private pure {
        if (seed % 2 == 0) return;
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            uint256 die = uint256(keccak256(abi.encode(seed, i))) % 12;
            if (die == 0) play.conducts[i].opens = false;
            if (i == 0) continue;
            if (die == 1) play.conducts[i].commits = false;
            if (die == 2) play.conducts[i].verdict = !play.conducts[i].verdict;
            if (die == 3) play.conducts[i].data = keccak256(abi.encode(i));
        }
    }

    function _findSettled(uint256 seed) private view returns (bool found, uint256 index) {
        uint256 count = plays.length;
        for (uint256 i = 0; i < count; ++i) {
            index = (seed % count + i) % count;
            if (settleds[index].length != 0) return (true, index);
        }
    }

    function _findReview(uint256 seed) private view returns (bool found, uint256 index, Dispute memory made) {
        uint256 count = disputes.length;
        for (uint256 i = 0; i < count; ++i) {
            index = (seed % count + i) % count;
            if (ends[index] == Outcome.None) return (true, index, abi.decode(disputes[index], (Dispute)));
        }
    }
}
