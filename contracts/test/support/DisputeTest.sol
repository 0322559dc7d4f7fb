// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {ITrothSettlement} from "../../interfaces/ITrothSettlement.sol";
import {Outcome, Phase, Progress, Settled, Task, Terms, VrfProof} from "../../interfaces/TrothTypes.sol";
import {Permutation} from "../../libraries/Permutation.sol";
import {P256Prover} from "./P256Prover.sol";
import {TaskTest} from "./TaskTest.sol";
import {Traces} from "./Traces.sol";

/// @title Takes disputes through their life, from outside, by the specification rather than by the contract's code
abstract contract DisputeTest is TaskTest {
    using Permutation for Permutation.Walk;

    uint256 internal constant MORE_NODES = 6;
    uint256 internal constant REVIEWERS = 5;
    uint96 internal constant BOND = 8 * UNIT;
    /// @dev Of a scheduler whose review has no result: 8, and what a wrong rejection by three costs.
    uint96 internal constant FINE = (8 + 2 + 6 * 3) * UNIT;
    uint96 internal constant OUTSIDERS_BOND = 8 * UNIT + 6 * UNIT * uint96(REVIEWERS);

    /// @notice A settled task, one segment of it, and its review, which is played like a task of one segment.
    struct Dispute {
        Play first;
        Settled settled;
        uint8 segment;
        Play review;
    }

    /// @dev Where the trace under review comes from.
    struct Origin {
        bytes32 taskId;
        uint256 segment;
    }

    address internal outsider = makeAddr("outsider");
    mapping(bytes32 reviewId => Origin) private _origins;

    function setUp() public virtual override {
        super.setUp();
        for (uint256 i = NODES; i < NODES + MORE_NODES; ++i) {
            registerNode(NODE_KEY + i, tolerant, NODE_STAKE);
            registerNode(NODE_KEY + 100 + i, exact, NODE_STAKE);
        }
        vm.deal(outsider, 1 ether);
        vm.prank(outsider);
        troth.deposit{value: 1 ether}(outsider);
        vm.roll(1020);
    }

    /// @dev The reviewed trace is the first round's; reviewers compute the same segment again.
    function traceOf(Play memory play, uint256 segment, uint256 party)
        internal
        view
        virtual
        override
        returns (Traces.Trace memory)
    {
        Origin memory origin = _origins[play.id];
        if (origin.taskId == 0) return super.traceOf(play, segment, party);
        bool noisy = !troth.rulesOf(play.task.terms.executionClass).exact;
        bytes32 maker = party == 0 ? origin.taskId : play.id;
        uint256 made = party == 0 ? origin.segment : 0;
        return Traces.Trace({
            data: keccak256(abi.encode(play.conducts[party].data, origin.segment)),
            noise: noisy ? keccak256(abi.encode(maker, made, party)) : bytes32(0)
        });
    }

    /// @dev Opens, assigns, commits, samples and settles; waits for those who stay silent.
    function finishFirst(Play memory play) internal returns (Settled memory) {
        open(play);
        assign(play);
        commit(play);
        pass(1);
        if (!troth.rulesOf(play.task.terms.executionClass).exact) sample(play);
        if (_anySilent(play)) pass(REVEAL_WINDOW + 1);
        return settledBy(play);
    }

    /// @dev Settles and reads what the event tells of it.
    function settledBy(Play memory play) internal returns (Settled memory settled) {
        vm.recordLogs();
        settle(play);
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = 0; i < logs.length; ++i) {
            if (logs[i].topics[0] != ITrothSettlement.TaskSettled.selector) continue;
            (, settled.outcomes, settled.verdicts, settled.clusters, settled.valid) =
                abi.decode(logs[i].data, (uint8, uint8[], uint8[], uint8[], uint8[]));
        }
        settled.settledBlock = uint40(vm.getBlockNumber());
    }

    function _anySilent(Play memory play) internal pure returns (bool) {
        for (uint256 i = 0; i < play.conducts.length; ++i) {
            if (play.conducts[i].commits && !play.conducts[i].opens) return true;
        }
        return false;
    }

    /// @dev A dispute about one segment, not raised yet, with reviewers that tell the truth.
    function disputeOf(Play memory play, Settled memory settled, uint8 segment)
        internal
        view
        returns (Dispute memory made)
    {
        made.first = play;
        made.settled = settled;
        made.segment = segment;
        made.review = _newReview(play, segment);
    }

    /// @dev Disputes, and expects the state that the rules give.
    /// @param bond zero where nobody has to ask
    function dispute(Dispute memory made, address by, uint96 bond) internal {
        noteDisputed(made, by, bond);
        vm.prank(by);
        bytes32 id = troth.dispute(made.first.id, made.first.task, made.settled, made.segment);
        assertEq(id, made.review.id, "review id");
        assertEq(troth.taskState(id), stateHash(made.review.task), "review state");
    }

    /// @dev What a dispute of this block leaves behind.
    function noteDisputed(Dispute memory made, address by, uint96 bond) internal {
        Task memory task = made.review.task;
        task.terms.client = bond == 0 ? address(0) : by;
        task.terms.fee = bond;
        task.terms.referenceBlock = uint64(vm.getBlockNumber() - 1);
        task.progress.phaseBlock = uint40(vm.getBlockNumber());
        _origins[made.review.id] = Origin(made.first.id, made.segment);
    }

    function _newReview(Play memory play, uint8 segment) private view returns (Play memory review) {
        Progress memory before = play.task.progress;
        review.id = keccak256(abi.encode(keccak256("troth/review/1"), play.id, segment));
        review.order.scheduler = play.task.terms.scheduler;
        review.width = 1 + REVIEWERS;
        review.conducts = new Conduct[](1 + REVIEWERS);
        Conduct memory inferencer = play.conducts[segment * play.width];
        review.conducts[0] = Conduct({data: inferencer.data, verdict: true, commits: true, opens: true});
        for (uint256 i = 1; i <= REVIEWERS; ++i) {
            bool right = inferencer.data == TRUE_DATA;
            review.conducts[i] = Conduct({data: TRUE_DATA, verdict: right, commits: true, opens: true});
        }
        bytes32 ends = play.task.terms.ends;
        uint8 first = segment == 0 ? 0 : uint8(ends[segment - 1]);
        review.task.terms = Terms({
            client: address(0),
            scheduler: play.task.terms.scheduler,
            executionClass: play.task.terms.executionClass,
            fee: 0,
            referenceBlock: 0,
            ends: bytes32(bytes3(abi.encodePacked(uint8(0), first, uint8(ends[segment]))))
        });
        Progress memory progress = review.task.progress;
        progress.phase = Phase.Disputed;
        (progress.segments, progress.candidates) = (1, 1);
        (progress.attempt, progress.positions) = (before.attempt, before.positions);
        progress.outputHash = before.outputHash;
        progress.parties = new address[](before.parties.length / before.segments);
        for (uint256 i = 0; i < progress.parties.length; ++i) {
            progress.parties[i] = before.parties[segment * progress.parties.length + i];
        }
        progress.posts = new bytes32[](1);
        progress.posts[0] = before.posts[segment * play.width];
    }

    function drawAlpha(Play memory review, uint256 size) internal view returns (bytes32) {
        return keccak256(
            abi.encode(
                keccak256("troth/review/draw/1"),
                block.chainid,
                address(troth),
                review.id,
                size,
                blockhash(review.task.progress.phaseBlock)
            )
        );
    }

    /// @dev Derives the proof and the inferencer with its reviewers on its own.
    function draw(Play memory review) internal view returns (VrfProof memory proof, address[] memory parties) {
        Terms memory terms = review.task.terms;
        bytes32 group = troth.groupId(terms.executionClass, uint8(terms.ends[1]), uint8(terms.ends[2]));
        uint256 size = troth.groupSizeAt(group, terms.referenceBlock);
        bytes32 beta;
        (proof, beta) = P256Prover.prove(VRF_SECRET, drawAlpha(review, size));
        Permutation.Walk memory walk = Permutation.start(beta, size);
        parties = new address[](1 + REVIEWERS);
        address[] memory before = review.task.progress.parties;
        parties[0] = before[0];
        for (uint256 found = 0; found < REVIEWERS;) {
            address member = troth.memberAt(group, walk.next(), terms.referenceBlock);
            if (member != address(0) && !_contains(before, member)) parties[++found] = member;
        }
    }

    function _contains(address[] memory list, address wanted) internal pure returns (bool) {
        for (uint256 i = 0; i < list.length; ++i) {
            if (list[i] == wanted) return true;
        }
        return false;
    }

    /// @dev What a draw leaves behind.
    function noteDrawn(Play memory review, address[] memory parties) internal view {
        Progress memory progress = review.task.progress;
        bytes32 root = progress.posts[0];
        progress.parties = parties;
        progress.posts = new bytes32[](parties.length);
        progress.posts[0] = root;
        progress.phase = Phase.Assigned;
        progress.phaseBlock = uint40(vm.getBlockNumber());
    }

    function assignReview(Dispute memory made) internal {
        (VrfProof memory proof, address[] memory parties) = draw(made.review);
        troth.assignReview(made.review.id, made.review.task, proof);
        noteDrawn(made.review, parties);
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task), "drawn state");
    }

    /// @dev Commitments of the reviewers that commit, with their signatures.
    function reviewPosts(Play memory review)
        internal
        view
        returns (bytes32[] memory commitments, bytes memory signatures)
    {
        commitments = new bytes32[](REVIEWERS);
        for (uint256 party = 1; party <= REVIEWERS; ++party) {
            if (!review.conducts[party].commits) continue;
            bytes32 post = commitmentOf(review, 0, party);
            commitments[party - 1] = post;
            signatures = bytes.concat(signatures, postSignature(review, 0, party, post));
        }
    }

    function noteReviewCommitted(Play memory review, bytes32[] memory commitments) internal view {
        Progress memory progress = review.task.progress;
        for (uint256 i = 0; i < commitments.length; ++i) {
            progress.posts[1 + i] = commitments[i];
        }
        progress.phase = Phase.Committed;
        progress.phaseBlock = uint40(vm.getBlockNumber());
    }

    /// @dev Those who are missing are waited for.
    function commitReview(Dispute memory made) internal {
        (bytes32[] memory commitments, bytes memory signatures) = reviewPosts(made.review);
        uint256 patience = uint256(made.review.task.progress.phaseBlock) + COMMIT_WINDOW * 3 / 4;
        for (uint256 v = 0; v < commitments.length; ++v) {
            if (commitments[v] == 0 && vm.getBlockNumber() <= patience) vm.roll(patience + 1);
        }
        troth.commitReview(made.review.id, made.review.task, new VrfProof[](0), commitments, signatures);
        noteReviewCommitted(made.review, commitments);
        assertEq(troth.taskState(made.review.id), stateHash(made.review.task), "committed state");
    }

    /// @dev Draws, commits and, in a tolerant class, samples; waits for those who stay silent.
    function readyReview(Dispute memory made) internal {
        pass(1);
        assignReview(made);
        commitReview(made);
        pass(1);
        if (!troth.rulesOf(made.review.task.terms.executionClass).exact) sample(made.review);
        if (_anySilent(made.review)) pass(REVEAL_WINDOW + 1);
    }

    function settleReview(Dispute memory made) internal {
        VrfProof memory proof;
        bytes32 seed = made.review.task.progress.seed;
        bool samples = made.review.task.progress.phase == Phase.Committed
            && !troth.rulesOf(made.review.task.terms.executionClass).exact;
        if (samples) (proof, seed) = sampleProof(made.review);
        troth.settleReview(
            made.first.id,
            made.first.task,
            made.settled,
            made.segment,
            made.review.task,
            proof,
            openingsOf(made.review, seed)
        );
    }

    /// @dev From the draw to the end.
    function finishReview(Dispute memory made) internal returns (Outcome) {
        readyReview(made);
        settleReview(made);
        return troth.outcomeOf(made.review.id);
    }

    function inferencerOf(Dispute memory made) internal pure returns (address) {
        return partyOf(made.first, made.segment, 0);
    }

    function verifierOf(Dispute memory made, uint256 verifier) internal pure returns (address) {
        return partyOf(made.first, made.segment, 1 + verifier);
    }

    function reviewerOf(Dispute memory made, uint256 reviewer) internal pure returns (address) {
        return made.review.task.progress.parties[1 + reviewer];
    }

    function assertOutcome(bytes32 id, Outcome expected) internal view {
        assertEq(uint8(troth.outcomeOf(id)), uint8(expected), "outcome");
    }
}
