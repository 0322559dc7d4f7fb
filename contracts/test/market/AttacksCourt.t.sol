// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {IJudgement} from "../../market/interfaces/IJudgement.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {NodeReveal, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Opinion, Order, Result} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {Reveals} from "../../market/libraries/Reveals.sol";
import {AttackStage} from "./support/AttackStage.sol";

/// @title Attempts on cases: openings, committees, commitments, reveals, locks and exits
contract AttacksCourtTest is AttackStage {
    address private friend = makeAddr("friend");

    function wealth(address account) private view returns (uint256) {
        return account.balance + creditOf(account);
    }

    function outcome(Trial memory trial) private view returns (uint256) {
        return uint256(court.caseOf(trial.id));
    }

    // ---- holding the true case out

    /// @dev Whoever opens it, the case is the same one, and everybody may carry it on.
    function test_AFriendThatOpensFirstOpensTheTrueCase() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, friend);
        openFails(made, Opinion.Reject, stranger, abi.encodeWithSelector(ICourt.CaseUnderWay.selector, trial.id));
        uint256 before = stakeOf(made.nodes[0]) + lockedOf(made.nodes[0]);
        conclude(trial, Opinion.Reject);
        assertEq(outcome(trial), uint256(Outcome.Convicted));
        assertEq(before - stakeOf(made.nodes[0]), PENALTY);
        assertEq(lockedOf(made.nodes[0]), 0);
    }

    /// @dev Friend and node are one: bond, gas and half of a tenth come back, and L is gone.
    function test_AFriendsCaseGivesACheatNothingBack() public {
        Served memory made = serve(1);
        address node = made.nodes[0];
        uint96 bond = bondOf(made);
        uint256 before = wealth(friend) + bond + wealth(client) + stakeOf(node);
        Trial memory trial = open(made, Opinion.Reject, friend);
        conclude(trial, Opinion.Reject);
        // Even with the client's refund it is poorer by most of L.
        uint256 later = wealth(friend) + wealth(client) + stakeOf(node);
        assertLt(later + PENALTY * 3 / 4, before);
    }

    /// @dev A case that is lost for want of a prompt costs a bond each time, and the stake cannot leave before.
    function test_ShamsDoNotLastUntilTheStakeIsFree() public {
        Served memory made = serve(1);
        address node = made.nodes[0];
        vm.prank(node);
        registry.deregister(node);
        // Who leaves changes entries: which hints are needed now depends on who is drawn.
        (made.seats, made.hints) = seatsOf(made, new address[](0));
        uint40 exit = uint40(vm.getBlockNumber() + parameters().unbonding);
        for (uint256 i = 0; i < 3; ++i) {
            uint256 before = wealth(friend);
            Trial memory trial = open(made, Opinion.Reject, friend);
            vm.expectRevert(abi.encodeWithSelector(IRegistry.StillUnbonding.selector, exit, vm.getBlockNumber()));
            registry.withdrawStake(node);
            conclude(trial, Opinion.MissingPrompt);
            assertEq(outcome(trial), uint256(Outcome.OpenerMissing));
            assertLe(wealth(friend), before, "the bond that was given to it is gone");
        }
        // Honest data holders need one case, and have the whole window for it.
        Trial memory last_ = open(made, Opinion.Reject, stranger);
        conclude(last_, Opinion.Reject);
        assertEq(outcome(last_), uint256(Outcome.Convicted));
        assertEq(stakeOf(node), NODE_STAKE - PENALTY);
    }

    function test_StakeThatIsLockedDoesNotLeaveAfterUnbonding() public {
        Served memory made = serve(1);
        address node = made.nodes[0];
        vm.prank(node);
        registry.deregister(node);
        // Who leaves changes entries: which hints are needed now depends on who is drawn.
        (made.seats, made.hints) = seatsOf(made, new address[](0));
        open(made, Opinion.Reject, stranger);
        pass(parameters().unbonding + 1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeLocked.selector, node, PENALTY));
        registry.withdrawStake(node);
    }

    function test_ACaseThatWasDecidedIsNotOpenedAgain() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        conclude(trial, Opinion.Accept);
        bytes memory closed = abi.encodeWithSelector(ICourt.CaseClosed.selector, trial.id, Outcome.Upheld);
        openFails(made, Opinion.Reject, stranger, closed);
        // Nor by the same verifiers' word turned round, nor as a doubt.
        openFails(made, Opinion.Accept, client, closed);
        openFails(made, Opinion.None, client, closed);
    }

    function test_AnUpheldShamPaysItsOpenerNothing() public {
        Served memory made = serve(1);
        uint96 bond = bondOf(made);
        uint256 before = wealth(friend) + bond;
        Trial memory trial = open(made, Opinion.Reject, friend);
        conclude(trial, Opinion.Accept);
        assertEq(wealth(friend), before - bond);
        assertEq(stakeOf(made.nodes[0]), NODE_STAKE, "an honest node loses nothing");
        assertEq(registry.convictionCount(made.nodes[0]), 0);
    }

    // ---- who may open what

    function test_ADoubtOrAnAcceptanceIsTheClientsAlone() public {
        Served memory made = serve(1);
        bytes memory refused = abi.encodeWithSelector(IDocket.NotClient.selector, friend, client, tabKey);
        openFails(made, Opinion.None, friend, refused);
        openFails(made, Opinion.Accept, friend, refused);
        openFails(made, Opinion.CannotTell, friend, refused);
    }

    function test_VerifiersOfAnotherSecretOrdersOrResultsAreNone() public {
        openClientTab();
        Served memory made = serve(1);
        Served memory other = serve(2);
        // Verdicts over another order's result.
        (made.seats, other.seats) = (other.seats, made.seats);
        say(other, Opinion.Reject);
        Served memory mixed = serve(1);
        (mixed.verdicts, mixed.verdictSignatures) = (other.verdicts, other.verdictSignatures);
        uint96 bond = bondOf(mixed);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.ForeignVerdict.selector, 0, Messages.hash(other.results[0]))
        );
        vm.prank(stranger);
        sendOpen(mixed, bond);
        // Another secret than the order's.
        mixed.secret = drawSecret(2);
        vm.expectRevert(
            abi.encodeWithSelector(IDocket.WrongSecret.selector, drawSecret(2), mixed.order.order.drawHash)
        );
        vm.prank(stranger);
        sendOpen(mixed, bond);
    }

    /// @dev The draw's output is chosen by client and scheduler together so that friends verify.
    function test_AnOutputOfOnesOwnChoiceOpensNothing() public {
        Served memory made = serve(1);
        bytes32 proven = made.draw.beta;
        made.draw.beta = keccak256("friends");
        made.drawSignature = sign(SCHEDULER_KEY, Messages.hash(made.draw));
        (made.seats, made.hints) = seatsOf(made, new address[](0));
        openFails(
            made, Opinion.Reject, friend, abi.encodeWithSelector(IDocket.WrongBeta.selector, made.draw.beta, proven)
        );
    }

    function test_TheBondIsTheWholeBond() public {
        openClientTab();
        Served memory made = serve(1);
        say(made, Opinion.Reject);
        uint96 bond = bondOf(made);
        vm.expectRevert();
        vm.prank(stranger);
        sendOpen(made, bond - 1);
        vm.expectRevert();
        vm.prank(stranger);
        sendOpen(made, bond + 1);
        vm.prank(stranger);
        bytes32 id = sendOpen(made, bond);
        assertEq(bank.balanceOf(PotKind.Bond, id), bond);
    }

    /// @dev Two cases of one node lock twice L, and each takes its own.
    function test_TwoCasesOfOneNodeTakeTwoPenalties() public {
        (Served memory one, Served memory other) = twoOfOneNode();
        address node = one.nodes[0];
        Trial memory first = open(one, Opinion.Reject, stranger);
        Trial memory second = open(other, Opinion.Reject, stranger);
        assertEq(lockedOf(node), 2 * PENALTY);
        conclude(first, Opinion.Reject);
        assertEq(lockedOf(node), PENALTY);
        drawReviewers(second);
        commit(second, Opinion.Reject);
        court.decide(second.id, second.state, nodeReveal(), packed(reviews(second, Opinion.Reject)));
        assertEq(lockedOf(node), 0);
        assertEq(stakeOf(node), NODE_STAKE - 2 * PENALTY);
    }

    function twoOfOneNode() private view returns (Served memory one, Served memory other) {
        one = serve(1);
        for (uint64 sequence = 2;; ++sequence) {
            other = serve(sequence);
            if (other.nodes[0] == one.nodes[0]) return (one, other);
        }
    }

    // ---- committees

    function test_WhoLeavesAfterTheReferenceBlockStillJudges() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        address leaver = exactNode(5) == made.nodes[0] ? exactNode(6) : exactNode(5);
        uint256 before = registry.sizeAt(registry.groupId(exact, 0, LAYERS), trial.state.referenceBlock);
        vm.prank(leaver);
        registry.deregister(leaver);
        assertEq(registry.sizeAt(registry.groupId(exact, 0, LAYERS), trial.state.referenceBlock), before);
        conclude(trial, Opinion.Reject);
        assertEq(outcome(trial), uint256(Outcome.Convicted), "the same committee, by hints");
    }

    function test_AnotherBlocksHeaderDrawsNobody() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        uint256 due = trial.state.phaseBlock + parameters().lookahead;
        vm.roll(due + 3);
        setHeader(due, keccak256("the chain's"));
        bytes memory later = setHeader(due + 1, keccak256("a better one"));
        vm.expectPartialRevert(IDocket.WrongHeader.selector);
        court.draw(trial.id, trial.state, later, "");
        // A header of the right number that no chain has.
        vm.store(HISTORY, bytes32(due), keccak256("the chain's"));
        vm.expectPartialRevert(IDocket.WrongHeader.selector);
        court.draw(trial.id, trial.state, later, "");
    }

    /// @dev It copies who is honest: a commitment holds its reviewer's address.
    function test_ACopiedCommitmentOpensForNobodyElse() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        drawReviewers(trial);
        (address honest, address copier) = (trial.state.reviewers[0], trial.state.reviewers[1]);
        bytes32 copied = commitmentOf(trial, honest, Opinion.Reject);
        vm.prank(copier);
        court.post(trial.id, trial.state, copied);
        commit(trial, Opinion.Reject);
        bytes memory review = Reveals.pack(reviewOf(honest, Opinion.Reject), false);
        vm.expectPartialRevert(IJudgement.CommitmentMismatch.selector);
        vm.prank(copier);
        court.reveal(trial.id, trial.state, 1, review);
        // In the other's name, or from a place that does not exist.
        vm.expectRevert(abi.encodeWithSelector(IJudgement.NotReviewer.selector, copier, 0));
        vm.prank(copier);
        court.reveal(trial.id, trial.state, 0, review);
        vm.expectRevert(abi.encodeWithSelector(IJudgement.NotReviewer.selector, copier, 127));
        vm.prank(copier);
        court.reveal(trial.id, trial.state, 127, review);
    }

    function test_StrangersHaveNoPartInACase() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        drawReviewers(trial);
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotReviewer.selector, friend, trial.id));
        vm.prank(friend);
        court.post(trial.id, trial.state, "mine");
        vm.expectRevert(abi.encodeWithSelector(ICourt.NotReviewer.selector, made.nodes[0], trial.id));
        vm.prank(made.nodes[0]);
        court.post(trial.id, trial.state, "mine");
        commit(trial, Opinion.Accept);
        // Nobody shows the node's trace in its name.
        vm.expectRevert(abi.encodeWithSelector(IJudgement.NotReviewer.selector, friend, 255));
        vm.prank(friend);
        court.revealNode(trial.id, trial.state, nodeReveal());
    }

    /// @dev Who decides leaves the node out, or shows another trace for it.
    function test_NobodyDecidesWithoutTheNode() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, friend);
        drawReviewers(trial);
        commit(trial, Opinion.Accept);
        NodeReveal memory none;
        bytes memory all = packed(reviews(trial, Opinion.Accept));
        vm.expectPartialRevert(IJudgement.RevealMissing.selector);
        vm.prank(friend);
        court.decide(trial.id, trial.state, none, all);
        NodeReveal memory another = nodeReveal();
        another.root = keccak256("another");
        vm.expectPartialRevert(IJudgement.TraceMismatch.selector);
        vm.prank(friend);
        court.decide(trial.id, trial.state, another, all);
        vm.prank(made.nodes[0]);
        court.revealNode(trial.id, trial.state, nodeReveal());
        pass(parameters().revealWindow + 1);
        vm.expectPartialRevert(IJudgement.RevealMissing.selector);
        vm.prank(friend);
        court.decide(trial.id, trial.state, none, all);
        court.decide(trial.id, trial.state, nodeReveal(), all);
        assertEq(outcome(trial), uint256(Outcome.Upheld));
    }

    /// @dev A better state: more bond, another node, another round.
    function test_AnInventedStateIsNotTheCases() public {
        Served memory made = serve(1);
        Trial memory trial = open(made, Opinion.Reject, stranger);
        bytes memory original = abi.encode(trial);
        trial.state.bond *= 2;
        stateFails(trial);
        trial = abi.decode(original, (Trial));
        trial.state.node = exactNode(0) == trial.state.node ? exactNode(1) : exactNode(0);
        stateFails(trial);
        trial = abi.decode(original, (Trial));
        trial.state.round = 1;
        stateFails(trial);
        trial = abi.decode(original, (Trial));
        trial.state.opener = friend;
        stateFails(trial);
    }

    function stateFails(Trial memory trial) private {
        vm.expectPartialRevert(ICourt.StateMismatch.selector);
        court.expire(trial.id, trial.state);
    }

    /// @dev Who does not like a committee lets the draw lapse: anybody draws instead of it, and each time costs a bond.
    function test_LettingADrawLapseCostsTheBondAndFreesTheNode() public {
        Served memory made = serve(1);
        uint96 bond = bondOf(made);
        uint256 before = wealth(friend) + bond;
        Trial memory trial = open(made, Opinion.Reject, friend);
        pass(parameters().lookahead + parameters().drawWindow + 1);
        court.expire(trial.id, trial.state);
        assertEq(outcome(trial), uint256(Outcome.Lapsed));
        assertEq(wealth(friend), before - bond);
        assertEq(stakeOf(made.nodes[0]), NODE_STAKE);
        // Not before anybody could have drawn.
        trial = open(made, Opinion.Reject, friend);
        vm.expectPartialRevert(IJudgement.TooEarly.selector);
        court.expire(trial.id, trial.state);
    }
}
