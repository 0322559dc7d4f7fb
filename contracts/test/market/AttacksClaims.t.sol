// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaves} from "../../market/interfaces/ILeaves.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {ClaimState, LeafKind, Parameters, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {Result} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {AttackMoney} from "./support/AttackMoney.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title Claims of an honest scheduler, whose nodes make their own leaves worthless
abstract contract FallingClaims is AttackMoney {
    uint96 internal constant WORTH = 6e11;

    Tab internal tab;

    function setUp() public virtual override {
        super.setUp();
        // So that these small answers are worth more than the gas of a strike.
        vm.fee(1000);
        openClientTab();
        tab = clientTab();
    }

    /// @dev Two words for a place of an order that nobody made: as often as there is stake above the penalty.
    function convictItself(address node) internal {
        Result memory one;
        while (stakeOf(node) >= PENALTY) {
            one.order = keccak256(abi.encode(one.order));
            bytes memory first = signAs(node, Messages.hash(one));
            Result memory other = abi.decode(abi.encode(one), (Result));
            other.written = 1;
            vm.prank(node);
            evidence.convictResults(one, first, other, signAs(node, Messages.hash(other)));
        }
    }

    function answer(ClaimState memory state, Served memory made, uint64 number, uint96[] memory amounts) internal {
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(state.claim.first, amounts, number - state.claim.first);
        (made.draw, made.drawSignature) = signDraw(made.order.order, made.resultsHash);
        bytes memory leaf = abi.encode(made.order, made.results, made.signatures, made.draw, made.drawSignature);
        bank.answer(tab, state, number, LeafKind.Order, WORTH, siblings, sums, leaf);
    }
}

contract AttacksClaimsTest is FallingClaims {
    /// @dev A client's friend convicts itself while the claim runs: the answers of all others fall with the claim, until
    ///      it is filed again without that one.
    function test_AClaimThatFallsByAFriendsOwnConvictionIsFiledAgainWithoutItsLeaf() public {
        uint64 first = 1;
        while (serve(first).nodes[0] == serve(first + 1).nodes[0]) ++first;
        (Served memory honest, Served memory friends) = (serve(first), serve(first + 1));
        uint96[] memory amounts = new uint96[](2);
        (amounts[0], amounts[1]) = (WORTH, WORTH);
        Voucher memory voucher = voucherOf(tab, 0, 2 * FEE_CAP, first + 1);
        ClaimState memory state = claim(tab, voucher, TAB_KEY, SumTrees.claim(first, amounts), scheduler);
        address friend = friends.nodes[0];
        uint256 before = wealth(friend) + stakeOf(friend);
        pass(1);
        convictItself(friend);
        vm.prank(client);
        bank.object(tab, state, first + 1);
        vm.expectPartialRevert(ILeaves.NotBonded.selector);
        this.answered(state, friends, amounts);
        pass(parameters().answerWindow + 1);
        bank.strike(tab, state, first + 1);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, 90_000 * 1000, "what the strike cost its payer");
        // Nobody is paid for what a node that has nothing to lose answered; the others' answers are.
        ClaimState memory again = claim(tab, voucher, TAB_KEY, oneLeaf(first, WORTH), scheduler);
        vm.prank(client);
        bank.object(tab, again, first);
        uint96[] memory one = new uint96[](1);
        one[0] = WORTH;
        answer(again, honest, first, one);
        vm.roll(again.settlesAt);
        bank.settle(tab, again);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, WORTH);
        assertLt(wealth(friend) + stakeOf(friend), before - 2 * PENALTY, "its stake is worth more than what it delayed");
    }

    /// @dev A node serves garbage by the hundred and loses its stake for the first that are found. Its scheduler, which is in
    ///      league with it, gives it a penalty again for the day on which it shows the others: they were paid.
    function test_NoGiftMakesAnswersOfANodeWithoutPenaltyWorthSomethingAgain() public {
        Served memory made = serve(1);
        (address node, uint96[] memory amounts) = (made.nodes[0], new uint96[](1));
        amounts[0] = WORTH;
        ClaimState memory state = claim(tab, voucherOf(tab, 0, FEE_CAP, 1), TAB_KEY, oneLeaf(1, WORTH), scheduler);
        convictItself(node);
        vm.prank(client);
        bank.object(tab, state, 1);
        for (uint256 i = 0; i < 3; ++i) {
            address giver = [scheduler, node, ownerOf(node)][i];
            vm.deal(giver, SEAT);
            vm.prank(giver);
            vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeTooLow.selector, stakeOf(node), PENALTY));
            registry.topUp{value: SEAT}(node, SEAT);
        }
        vm.expectPartialRevert(ILeaves.NotBonded.selector);
        this.answered(state, made, amounts);
    }

    function answered(ClaimState memory state, Served memory made, uint96[] memory amounts) external {
        answer(state, made, state.claim.last, amounts);
    }
}

/// @title Two friends of the client's, one after the other, where stake stays longer than two claims last
contract AttacksFriendsTest is FallingClaims {
    uint96 private constant STRIKE = 90_000 * 1000;

    /// @dev Encoded, since structs of arrays cannot be kept.
    bytes[3] private kept;
    uint64 private first;

    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.unbonding = 4 * chosen.claimDelay;
    }

    /// @dev Three answers in a row by three nodes: that of an honest one, and those of two friends.
    function setUp() public override {
        super.setUp();
        for (first = 1;; ++first) {
            address[3] memory nodes;
            for (uint64 i = 0; i < 3; ++i) {
                Served memory served = serve(first + i);
                (kept[i], nodes[i]) = (abi.encode(served), served.nodes[0]);
            }
            if (nodes[0] != nodes[1] && nodes[1] != nodes[2] && nodes[0] != nodes[2]) break;
        }
    }

    function made(uint256 i) private view returns (Served memory) {
        return abi.decode(kept[i], (Served));
    }

    /// @dev All numbers before `count` of them, with nothing for the friends that fell.
    function claimWithout(uint256 fallen) private returns (ClaimState memory state, uint96[] memory amounts) {
        amounts = new uint96[](3);
        for (uint256 i = 0; i < 3; ++i) if (i == 0 || i > fallen) amounts[i] = WORTH;
        Voucher memory voucher = voucherOf(tab, 0, 3 * FEE_CAP, first + 2);
        state = claim(tab, voucher, TAB_KEY, SumTrees.claim(first, amounts), scheduler);
    }

    /// @dev The client asks for a number as late as it can.
    function askLate(ClaimState memory state, uint64 number) private {
        vm.roll(state.settlesAt - parameters().answerWindow - 1);
        vm.prank(client);
        bank.object(tab, state, number);
    }

    function fall(uint64 friend) private {
        (ClaimState memory state, uint96[] memory amounts) = claimWithout(friend - 1);
        convictItself(made(friend).nodes[0]);
        askLate(state, first + friend);
        vm.expectPartialRevert(ILeaves.NotBonded.selector);
        this.show(state, friend, amounts);
        vm.roll(state.settlesAt);
        bank.strike(tab, state, first + friend);
    }

    function show(ClaimState memory state, uint64 i, uint96[] memory amounts) external {
        answer(state, made(i), first + i, amounts);
    }

    /// @dev After one friend the others' answers are shown as late as the client can ask for them.
    function test_WhatFellByOneFriendIsShownAtTheEndOfTheNextClaim() public {
        fall(1);
        (ClaimState memory state, uint96[] memory amounts) = claimWithout(1);
        askLate(state, first);
        answer(state, made(0), first, amounts);
        vm.roll(state.settlesAt);
        bank.settle(tab, state);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, 2 * WORTH);
    }

    /// @dev After two, the court hears no draw over them any more. It cost the friends their stakes. A scheduler bounds
    ///      what one client can take so: who does not acknowledge what is long due is served no more.
    function test_TwoFriendsTakeWhatTwoClaimsShowedAndLoseTheirStakes() public {
        uint256 before = fortune();
        fall(1);
        fall(2);
        (ClaimState memory state, uint96[] memory amounts) = claimWithout(2);
        askLate(state, first);
        vm.expectPartialRevert(ILeaves.LeafStale.selector);
        this.show(state, 0, amounts);
        vm.roll(state.settlesAt);
        bank.strike(tab, state, first);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, 3 * STRIKE, "no answer was paid");
        // A stake is two penalties at least: of each a tenth comes back to whoever convicts.
        assertLt(fortune() + 3 * PENALTY, before);
    }

    function fortune() private view returns (uint256 sum) {
        for (uint256 i = 1; i < 3; ++i) {
            address friend = made(i).nodes[0];
            sum += wealth(friend) + stakeOf(friend);
        }
    }

    /// @dev Why a claim falls whole: a node that lost its stake may have served a hundred answers, and one objection takes
    ///      all of them. Were each taken out alone, the client could not ask for all before the claim is settled.
    function test_OneObjectionTakesAllThatANodeWithoutStakeServed() public {
        uint64 next = first;
        while (serve(next + 1).nodes[0] != serve(next).nodes[0]) ++next;
        uint96[] memory amounts = new uint96[](2);
        (amounts[0], amounts[1]) = (WORTH, WORTH);
        Voucher memory voucher = voucherOf(tab, 0, 3 * FEE_CAP, next + 1);
        ClaimState memory state = claim(tab, voucher, TAB_KEY, SumTrees.claim(next, amounts), scheduler);
        convictItself(serve(next).nodes[0]);
        askLate(state, next);
        vm.roll(state.settlesAt);
        bank.strike(tab, state, next);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, STRIKE);
    }
}
