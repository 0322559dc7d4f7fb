// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ICourt} from "../../market/interfaces/ICourt.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {PotKind} from "../../market/interfaces/MarketTypes.sol";
import {CaseKind, Outcome} from "../../market/interfaces/Proceedings.sol";
import {Order, Verdict} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {EcVrf} from "../../libraries/EcVrf.sol";
import {CourtTest} from "./support/CourtTest.sol";

/// @title Who opens a case, when, and whom it suspends
contract CourtOpeningTest is CourtTest {
    function drawn(uint8 first, uint8 second, uint8 third, bool locks) private returns (Play memory play) {
        play = newPlay(exact, FALSE);
        verify(play, first, second, third, locks);
    }

    // ---- what is written down

    function test_theStateSaysWhatWasSigned() public {
        Play memory play = drawn(REJECT, REJECT, CANNOT_TELL, true);
        play.suspend = true;
        open(play, stranger);
        assertEq(uint256(play.state.kind), uint256(CaseKind.Rejection));
        assertEq(play.state.order, play.digest);
        assertEq(play.state.result, Messages.hash(play.results[0]));
        assertEq(play.state.node, node(0));
        assertEq(play.state.opener, stranger);
        assertEq(play.state.rows, 99);
        assertEq(play.state.unit, UNIT);
        assertEq(play.state.fee, FEE);
        assertEq(play.state.locked, L);
        assertEq(uint8(play.state.opinions[2]), CANNOT_TELL);
        assertEq(play.caseId, court.caseIdOf(play.digest, 0));
        assertEq(court.caseOf(play.caseId), keccak256(abi.encode(play.state)));
        assertEq(bank.balanceOf(PotKind.Bond, play.caseId), play.state.bond);
        assertEq(registry.suspendedBy(node(0)), play.caseId);
        assertEq(lockedOf(node(1)), L);
        assertEq(lockedOf(node(2)), L);
        assertEq(lockedOf(node(3)), 0);
        // Owners of node and verifiers, the scheduler's, the client, the opener.
        assertEq(play.state.excluded.length, 7);
    }

    function test_anOwnersReviewersCannotJudgeItsCase() public {
        registry.setOwner(stranger, ownerOf(9));
        registry.setOwner(client, ownerOf(10));
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        open(play, stranger);
        for (uint256 i = 0; i < 4; ++i) {
            assertTrue(excludes(play, ownerOf(i)));
        }
        assertTrue(excludes(play, ownerOf(9)));
        assertTrue(excludes(play, ownerOf(10)));
        assertTrue(excludes(play, client));
        assertTrue(excludes(play, stranger));
        assertTrue(excludes(play, registry.ownerOf(scheduler)));
        assertFalse(excludes(play, ownerOf(4)));
    }

    function excludes(Play memory play, address owner) private pure returns (bool) {
        for (uint256 i = 0; i < play.state.excluded.length; ++i) {
            if (play.state.excluded[i] == owner) return true;
        }
        return false;
    }

    function test_aVerifierWithTwoSeatsCountsTwiceAndLocksOnce() public {
        Play memory play = newPlay(exact, HONEST);
        verify(play, REJECT, REJECT, REJECT, true);
        address[] memory seats = new address[](3);
        (seats[0], seats[1], seats[2]) = (node(1), node(2), node(1));
        registry.force(seats);
        play.verdicts = new Verdict[](1);
        play.verdictSignatures = new bytes[](1);
        play.verdicts[0] = verdictOf(play, REJECT, true);
        play.verdictSignatures[0] = signed(NODE_KEY + 1, Messages.hash(play.verdicts[0]));
        play.suspend = true;
        open(play, client);
        assertEq(lockedOf(node(1)), L);
        assertEq(lockedOf(node(2)), 0);
        conclude(play, HONEST, say(5, ACCEPT, HONEST));
        assertOutcome(play, Outcome.Upheld);
        assertEq(stakeOf(node(1)), STAKE - L - 4 * UNIT);
        assertEq(lockedOf(node(1)), 0);
    }

    function test_stakeBelowThePenaltyIsLockedAsFarAsItGoes() public {
        bank.drain(PotKind.Stake, node(0));
        bank.fund(PotKind.Stake, node(0), 1);
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        open(play, client);
        assertEq(play.state.locked, 1);
        uint96 bond = play.state.bond;
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
        // The client's refund is out of the stake alone; the reviewers are paid all the same.
        assertEq(creditOf(client), 1 + bond - 30 * UNIT);
        assertEq(creditOf(node(4)), 6 * UNIT);
    }

    // ---- who may

    function test_onlyTheClientDoubts() public {
        Play memory play = newPlay(exact, FALSE);
        bytes memory reason =
            abi.encodeWithSelector(IDocket.NotClient.selector, stranger, client, vm.addr(TAB_KEY));
        expectOpen(play, stranger, reason);
        verify(play, ACCEPT, ACCEPT, ACCEPT, false);
        expectOpen(play, stranger, reason);
        address key = vm.addr(TAB_KEY);
        vm.deal(key, 10 ether);
        open(play, key);
        assertEq(play.state.opener, key);
    }

    /// @dev Whoever copies a rejection from the mempool puts up the bond, and the rejecters have half of the reward.
    function test_aFrontRunOpeningLeavesTheRejectersTheirReward() public {
        Play memory play = drawn(REJECT, REJECT, ACCEPT, false);
        open(play, stranger);
        uint96 bond = play.state.bond;
        expectOpen(play, client, abi.encodeWithSelector(ICourt.CaseUnderWay.selector, play.caseId));
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertEq(creditOf(stranger), bond + L / 20);
        assertEq(creditOf(node(1)), L / 40);
        assertEq(creditOf(node(2)), L / 40);
        assertEq(creditOf(node(3)), 0);
        assertEq(creditOf(client), FEE);
    }

    function test_aRejecterThatOpensHasAllOfIt() public {
        Play memory play = drawn(REJECT, REJECT, ACCEPT, false);
        vm.deal(node(1), 10 ether);
        open(play, node(1));
        uint96 bond = play.state.bond;
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertEq(creditOf(node(1)), bond + L / 10);
        assertEq(creditOf(node(2)), 0);
    }

    /// @dev A rejection that is opened beside a Doubt, and decided first; by the convict's stake its client is whole.
    function rejectedBesideADoubt(Vote[] memory votes, Outcome outcome) private {
        Play memory doubt = newPlay(exact, FALSE);
        open(doubt, client);
        Play memory play = newPlay(exact, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        open(play, stranger);
        assertNotEq(play.caseId, doubt.caseId);
        assertEq(doubt.caseId, court.caseIdOf(play.digest, 128));
        conclude(play, FALSE, votes);
        assertOutcome(play, outcome);
        assertEq(creditOf(client), FEE);
        pass(1);
        vm.roll(doubt.state.phaseBlock);
        conclude(doubt, FALSE, say(5, REJECT, HONEST));
        assertEq(uint256(court.caseOf(doubt.caseId)), uint256(Outcome.Refunded));
        assertFalse(court.isVoided(play.digest, 0), "its client was refunded by the convict already");
    }

    /// @dev Client and node would otherwise doubt what verifiers reject, and share what the node keeps.
    function test_aDoubtKeepsNoRejectionOutOfTheCourt() public {
        rejectedBesideADoubt(say(5, REJECT, HONEST), Outcome.Convicted);
    }

    function test_aLeafForWhichItsNodeShowedNothingFallsByNoDoubt() public {
        rejectedBesideADoubt(say(5, MISSING_TRACE, 0), Outcome.NodeMissing);
    }

    function test_aLeafThatFellIsNotRefundedAgain() public {
        Play memory play = newPlay(exact, FALSE);
        verify(play, REJECT, REJECT, REJECT, false);
        Play memory doubt = newPlay(exact, FALSE);
        open(doubt, client);
        open(play, stranger);
        uint256 begun = vm.getBlockNumber();
        conclude(doubt, FALSE, say(5, REJECT, HONEST));
        assertTrue(court.isVoided(play.digest, 0));
        uint96 before = creditOf(client);
        vm.roll(begun);
        conclude(play, FALSE, say(5, REJECT, HONEST));
        assertOutcome(play, Outcome.Convicted);
        assertEq(creditOf(client), before);
    }

    function test_noDoubtOverWhatADrawnCaseDecided() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        open(play, stranger);
        Play memory doubt = newPlay(exact, FALSE);
        expectOpen(doubt, client, abi.encodeWithSelector(ICourt.CaseUnderWay.selector, play.caseId));
        conclude(play, FALSE, say(5, REJECT, HONEST));
        vm.roll(doubt.draw.blockNumber);
        bytes memory closed = abi.encodeWithSelector(ICourt.CaseClosed.selector, play.caseId, Outcome.Convicted);
        expectOpen(doubt, client, closed);
        expectOpen(play, stranger, closed);
    }

    /// @dev Rounds have eight bits: with a 129th opening those of the first would begin again, with what was said in them.
    function test_aCaseIsOpened128TimesAtMost() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        bytes32 caseId = court.caseIdOf(play.digest, 0);
        // The contract's first variable: of an ended case block, openings and outcome.
        bytes32 slot = keccak256(abi.encode(caseId, 0));
        uint256 ended = vm.getBlockNumber() << 16 | uint8(Outcome.OpenerMissing);
        vm.store(address(court), slot, bytes32(ended | 128 << 8));
        expectOpen(play, stranger, abi.encodeWithSelector(ICourt.CaseClosed.selector, caseId, Outcome.OpenerMissing));
        vm.store(address(court), slot, bytes32(ended | 127 << 8));
        open(play, stranger);
        assertEq(play.state.round, 254);
    }

    function test_aCaseIsOpenedInTime() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        uint256 last = play.draw.blockNumber + LAG + 15 * SUMMONS_WINDOW;
        vm.roll(last + 1);
        expectOpen(play, client, abi.encodeWithSelector(ICourt.TooLate.selector, last + 1, last));
        vm.roll(last);
        open(play, client);
    }

    // ---- suspension

    function test_onlyWhoLocksSuspends() public {
        Play memory play = drawn(REJECT, REJECT, ACCEPT, false);
        play.suspend = true;
        expectOpen(play, client, abi.encodeWithSelector(IDocket.LockMissing.selector, 0, node(1)));
        play.suspend = false;
        open(play, client);
        assertEq(registry.suspendedBy(node(0)), 0);
    }

    function test_aVerifierWithoutLCannotSuspend() public {
        bank.drain(PotKind.Stake, node(2));
        Play memory play = drawn(REJECT, REJECT, ACCEPT, true);
        play.suspend = true;
        uint96 bond = court.bondFor(exact, 99);
        vm.prank(client);
        vm.expectRevert();
        sendOpen(play, bond);
        play.suspend = false;
        open(play, client);
    }

    function test_onlyARejectionSuspends() public {
        Play memory play = drawn(ACCEPT, ACCEPT, REJECT, true);
        play.suspend = true;
        expectOpen(play, client, abi.encodeWithSelector(IDocket.CannotSuspend.selector, CaseKind.Acceptance));
    }

    function test_aSuspendedNodeIsNotSuspendedAgain() public {
        registry.suspend(node(0), "another case");
        Play memory play = drawn(REJECT, REJECT, ACCEPT, true);
        play.suspend = true;
        expectOpen(play, client, abi.encodeWithSelector(ICourt.NotSuspended.selector, node(0)));
    }

    // ---- verdicts

    function test_aVerifierSpeaksOnce() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        play.verdicts[1] = play.verdicts[0];
        play.verdictSignatures[1] = play.verdictSignatures[0];
        expectOpen(play, client, abi.encodeWithSelector(IDocket.AlreadyJudged.selector, 1, node(1)));
    }

    function test_whoWasNotDrawnHasNoVerdict() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        play.verdictSignatures[2] = signed(NODE_KEY + 4, Messages.hash(play.verdicts[2]));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.NotVerifier.selector, 2, node(4)));
    }

    function test_aVerdictOverAnotherResultIsNone() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        play.verdicts[1].result = keccak256("another");
        play.verdictSignatures[1] = signed(NODE_KEY + 2, Messages.hash(play.verdicts[1]));
        expectOpen(play, client, abi.encodeWithSelector(IDocket.ForeignVerdict.selector, 1, keccak256("another")));
    }

    /// @dev Verifiers that only say that they are there keep no drawn leaf out of the court.
    function test_whereNoMajorityRejectsOnlyTheClientCallsTheResultIntoQuestion() public {
        Play memory play = drawn(REJECT, ACCEPT, CANNOT_TELL, false);
        expectOpen(
            play,
            stranger,
            abi.encodeWithSelector(IDocket.NotClient.selector, stranger, client, vm.addr(TAB_KEY))
        );
        open(play, client);
        assertEq(uint8(play.state.kind), uint8(CaseKind.Acceptance));
        play = drawn(REJECT, MISSING_PROMPT, REJECT, false);
        expectOpen(play, client, abi.encodeWithSelector(IDocket.InvalidOpinion.selector, 1, MISSING_PROMPT));
    }

    function test_aDrawnLeafThatNobodyJudgedIsTheClientsToBring() public {
        Play memory play = drawn(ACCEPT, ACCEPT, ACCEPT, false);
        (play.verdicts, play.verdictSignatures) = (new Verdict[](0), new bytes[](0));
        open(play, client);
        assertEq(uint8(play.state.kind), uint8(CaseKind.Acceptance));
    }

    /// @dev Leaving out the accepting verdicts does not turn a minority into a majority.
    function test_missingVerdictsCountForNobody() public {
        Play memory play = drawn(REJECT, ACCEPT, ACCEPT, false);
        Verdict[] memory one = new Verdict[](1);
        bytes[] memory signature = new bytes[](1);
        (one[0], signature[0]) = (play.verdicts[0], play.verdictSignatures[0]);
        (play.verdicts, play.verdictSignatures) = (one, signature);
        expectOpen(
            play,
            stranger,
            abi.encodeWithSelector(IDocket.NotClient.selector, stranger, client, vm.addr(TAB_KEY))
        );
    }

    function test_nobodyIsMadeAClientOfATabThatItNeverOpened() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        bank.forget(play.order.order.tab);
        expectOpen(play, client, abi.encodeWithSelector(IDocket.TabUnknown.selector, play.order.order.tab));
    }

    // ---- lottery

    function test_theSecretIsTheOrders() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        play.secret = "another";
        expectOpen(
            play,
            client,
            abi.encodeWithSelector(IDocket.WrongSecret.selector, bytes32("another"), play.order.order.drawHash)
        );
    }

    function test_aLeafThatWasNotDrawnConvictsNobody() public {
        Play memory play = newPlay(exact, FALSE);
        Order memory order = play.order.order;
        order.checkRate = 1;
        setOrder(play, order);
        play.results[0].order = play.digest;
        signResults(play);
        signDraw(play, uint64(vm.getBlockNumber()));
        verify(play, REJECT, REJECT, REJECT, false);
        expectOpen(
            play, client, abi.encodeWithSelector(IDocket.NotHit.selector, play.secret, play.draw.beta, uint32(1))
        );
    }

    function test_verifiersAreDrawnByTheSchedulersProof() public {
        Play memory play = drawn(REJECT, REJECT, REJECT, false);
        Play memory other = newPlay(exact, HONEST);
        Order memory order = other.order.order;
        order.requestHash = keccak256("another request");
        setOrder(other, order);
        signDraw(other, uint64(vm.getBlockNumber()));
        play.check = other.check;
        uint96 bond = court.bondFor(exact, 99);
        vm.prank(client);
        vm.expectPartialRevert(EcVrf.InvalidProof.selector);
        sendOpen(play, bond);
    }
}
