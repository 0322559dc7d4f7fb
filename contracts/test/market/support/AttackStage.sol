// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Vm} from "@uniswap/v4-core/lib/forge-std/src/Vm.sol";
import {ICourt} from "../../../market/interfaces/ICourt.sol";
import {DrawRequest} from "../../../market/interfaces/MarketTypes.sol";
import {CasePhase, CaseState, NodeReveal} from "../../../market/interfaces/Proceedings.sol";
import {
    Draw,
    Opinion,
    Order,
    Result,
    ReviewCommitment,
    SignedOrder,
    Verdict,
    VrfProof
} from "../../../market/interfaces/Signed.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {Reveal, Reveals} from "../../../market/libraries/Reveals.sol";
import {MarketTest} from "./MarketTest.sol";

/// @title An order of the exact class as it was served, and its case on the real deployment, for whoever attacks it
abstract contract AttackStage is MarketTest {
    /// @dev Whoever plays it knows everybody's secrets.
    struct Served {
        SignedOrder order;
        bytes32 id;
        address[] nodes;
        Result[] results;
        bytes[] signatures;
        bytes32 resultsHash;
        Draw draw;
        bytes drawSignature;
        VrfProof proof;
        bytes32 secret;
        address[] seats;
        bytes hints;
        Verdict[] verdicts;
        bytes[] verdictSignatures;
    }

    /// @dev A case where it is.
    struct Trial {
        bytes32 id;
        CaseState state;
    }

    function serve(uint64 sequence) internal view returns (Served memory made) {
        return serve(signOrder(newOrder(exact, WHOLE, sequence)));
    }

    function serve(SignedOrder memory signed) internal view returns (Served memory made) {
        made.order = signed;
        made.id = orderId(signed.order);
        made.nodes = inferencers(signed.order);
        made.secret = drawSecret(signed.order.sequence);
        (made.results, made.signatures, made.resultsHash) = results(signed.order, made.nodes);
        (made.draw, made.drawSignature) = signDraw(signed.order, made.resultsHash);
        (made.proof,) = prove(scheduler, Messages.drawAlpha(made.id));
        (made.seats, made.hints) = seatsOf(made, new address[](0));
    }

    /// @dev The seats that check the only segment, silent nodes' owners passed over.
    function seatsOf(Served memory made, address[] memory silent)
        internal
        view
        returns (address[] memory seats, bytes memory hints)
    {
        Order memory order = made.order.order;
        DrawRequest memory request;
        (request.first, request.end) = segmentAt(order.ends, 0);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        bytes32 seed = Messages.checkSeed(made.id, made.secret, made.draw.beta, made.resultsHash);
        request.seed = Messages.segmentSeed(seed, 0);
        request.count = 3;
        request.seasoned = true;
        request.excluded = new address[](1 + silent.length);
        request.excluded[0] = registry.ownerOf(made.nodes[0]);
        for (uint256 i = 0; i < silent.length; ++i) request.excluded[1 + i] = registry.ownerOf(silent[i]);
        (seats, hints) = lens.draw(request);
    }

    /// @dev One verdict per drawn node, all of this opinion; None: no verdicts.
    function say(Served memory made, Opinion opinion) internal view {
        address[] memory nodes = distinct(made.seats);
        if (opinion == Opinion.None) nodes = new address[](0);
        made.verdicts = new Verdict[](nodes.length);
        made.verdictSignatures = new bytes[](nodes.length);
        for (uint256 i = 0; i < nodes.length; ++i) {
            made.verdicts[i] = verdictOf(made, opinion);
            made.verdictSignatures[i] = signAs(nodes[i], Messages.hash(made.verdicts[i]));
        }
    }

    function verdictOf(Served memory made, Opinion opinion) internal pure returns (Verdict memory) {
        return Verdict({
            order: made.id,
            segment: 0,
            result: Messages.hash(made.results[0]),
            commitment: keccak256("commitment"),
            opinion: uint8(opinion),
            locks: false
        });
    }

    // ---- a case

    function bondOf(Served memory made) internal view returns (uint96) {
        Result memory judged = made.results[0];
        uint256 rows = uint256(judged.prompt) + judged.cached + judged.written - 1;
        return court.bondFor(made.order.order.executionClass, rows);
    }

    /// @dev Opens a case by the drawn verifiers' common opinion; None: a Doubt.
    function open(Served memory made, Opinion opinion, address opener) internal returns (Trial memory trial) {
        say(made, opinion);
        if (!bank.tabOf(Messages.tabId(clientTab())).known) openClientTab();
        uint96 bond = bondOf(made);
        vm.deal(opener, opener.balance + bond);
        vm.recordLogs();
        vm.prank(opener);
        trial.id = sendOpen(made, bond);
        trial.state = abi.decode(logged(ICourt.CaseOpened.selector), (CaseState));
    }

    function sendOpen(Served memory made, uint256 bond) internal returns (bytes32) {
        return court.open{value: bond}(
            made.order,
            made.results,
            made.signatures,
            made.draw,
            made.drawSignature,
            0,
            made.verdicts.length == 0 ? bytes32(0) : made.secret,
            made.verdicts,
            made.verdictSignatures,
            made.proof,
            made.hints,
            false
        );
    }

    function openFails(Served memory made, Opinion opinion, address opener, bytes memory failure) internal {
        say(made, opinion);
        if (!bank.tabOf(Messages.tabId(clientTab())).known) openClientTab();
        uint96 bond = bondOf(made);
        vm.deal(opener, opener.balance + bond);
        vm.expectRevert(failure);
        vm.prank(opener);
        sendOpen(made, bond);
    }

    /// @dev Draws the reviewers as soon as anyone may.
    function drawReviewers(Trial memory trial) internal {
        uint256 due = trial.state.phaseBlock + parameters().lookahead;
        vm.roll(due + 1);
        bytes32 randao = keccak256(abi.encode("randao", trial.state.round));
        bytes memory header = setHeader(due, randao);
        bytes memory hints = reviewHints(trial, randao);
        vm.recordLogs();
        court.draw(trial.id, trial.state, header, hints);
        (,, trial.state.reviewers, trial.state.seats) =
            abi.decode(logged(ICourt.ReviewersDrawn.selector), (uint8, bytes32, address[], bytes));
        (trial.state.drawer, trial.state.phase) = (address(this), CasePhase.Drawn);
        trial.state.phaseBlock = uint40(vm.getBlockNumber());
    }

    function reviewHints(Trial memory trial, bytes32 randao) internal view returns (bytes memory hints) {
        DrawRequest memory request;
        (request.first, request.end) = segmentAt(trial.state.ends, trial.state.segment);
        request.executionClass = trial.state.executionClass;
        request.blockNumber = trial.state.referenceBlock;
        request.seed = Messages.courtSeed(trial.id, trial.state.round, randao);
        request.count = registry.rulesOf(trial.state.executionClass).reviewers;
        request.seasoned = true;
        request.excluded = trial.state.excluded;
        (, hints) = lens.draw(request);
    }

    function logged(bytes32 topic) internal returns (bytes memory data) {
        Vm.Log[] memory logs = vm.getRecordedLogs();
        for (uint256 i = logs.length; i > 0; --i) {
            if (logs[i - 1].topics[0] == topic) return logs[i - 1].data;
        }
        revert("not logged");
    }

    function reviewOf(address reviewer, Opinion opinion) internal pure returns (Reveal memory review) {
        review.opinion = uint8(opinion);
        review.salt = bytes16(keccak256(abi.encode("review", reviewer)));
        if (opinion == Opinion.Accept) review.root = traceRoot(0);
        if (opinion == Opinion.Reject) review.root = keccak256("what the model really gives");
    }

    function commitmentOf(Trial memory trial, address reviewer, Opinion opinion) internal pure returns (bytes32) {
        Reveal memory review = reviewOf(reviewer, opinion);
        return keccak256(
            abi.encode(
                Messages.hearing(trial.id, trial.state.round), reviewer, review.root, review.opinion, review.score,
                review.spread, review.salt
            )
        );
    }

    /// @dev All reviewers commit to this opinion, in one call.
    function commit(Trial memory trial, Opinion opinion) internal {
        address[] memory reviewers = trial.state.reviewers;
        bytes32[] memory commitments = new bytes32[](reviewers.length);
        bytes memory signatures;
        bytes32 hearing = Messages.hearing(trial.id, trial.state.round);
        for (uint256 i = 0; i < reviewers.length; ++i) {
            commitments[i] = commitmentOf(trial, reviewers[i], opinion);
            bytes32 word = Messages.hash(ReviewCommitment({caseId: hearing, commitment: commitments[i]}));
            signatures = bytes.concat(signatures, signAs(reviewers[i], word));
        }
        vm.recordLogs();
        court.commit(trial.id, trial.state, commitments, signatures);
        trial.state.commitments = abi.decode(logged(ICourt.ReviewsCommitted.selector), (bytes32[]));
        (trial.state.committer, trial.state.phase) = (address(this), CasePhase.Committed);
        trial.state.phaseBlock = uint40(vm.getBlockNumber());
    }

    function nodeReveal() internal pure returns (NodeReveal memory shown) {
        (shown.root, shown.salt) = (traceRoot(0), traceSalt(0));
    }

    function reviews(Trial memory trial, Opinion opinion) internal pure returns (Reveal[] memory all) {
        all = new Reveal[](trial.state.reviewers.length);
        for (uint256 i = 0; i < all.length; ++i) all[i] = reviewOf(trial.state.reviewers[i], opinion);
    }

    /// @dev As the Court reads them, in an exact class.
    function packed(Reveal[] memory shown) internal pure returns (bytes memory all) {
        for (uint256 i = 0; i < shown.length; ++i) all = bytes.concat(all, Reveals.pack(shown[i], false));
    }

    /// @dev From the draw of the reviewers to the last word, all of one opinion.
    function conclude(Trial memory trial, Opinion opinion) internal {
        drawReviewers(trial);
        commit(trial, opinion);
        court.decide(trial.id, trial.state, nodeReveal(), packed(reviews(trial, opinion)));
    }
}
