// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ILeaves} from "../../market/interfaces/ILeaves.sol";
import {ClaimState, LeafKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {Result} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {AttackMoney} from "./support/AttackMoney.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title Claims of an honest scheduler, one of whose nodes makes its own leaf worthless
contract AttacksClaimsTest is AttackMoney {
    uint96 private constant WORTH = 6e11;

    Tab private tab;

    function setUp() public override {
        super.setUp();
        // So that these small answers are worth more than the gas of a strike.
        vm.fee(1000);
        openClientTab();
        tab = clientTab();
    }

    /// @dev Two words for a place of an order that nobody made: as often as there is stake above the penalty.
    function convictItself(address node) private {
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

    function answer(ClaimState memory state, Served memory made, uint64 number, uint96[] memory amounts) private {
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(state.claim.first, amounts, number - state.claim.first);
        (made.draw, made.drawSignature) = signDraw(made.order.order, made.resultsHash);
        bytes memory leaf = abi.encode(made.order, made.results, made.signatures, made.draw, made.drawSignature);
        bank.answer(tab, state, number, LeafKind.Order, WORTH, siblings, sums, leaf);
    }

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

    function answered(ClaimState memory state, Served memory made, uint96[] memory amounts) external {
        answer(state, made, state.claim.last, amounts);
    }
}
