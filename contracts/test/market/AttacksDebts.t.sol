// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {ClaimState, LeafKind, Parameters, PotKind, Tab, Voucher} from "../../market/interfaces/MarketTypes.sol";
import {Opinion} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {AttackMoney} from "./support/AttackMoney.sol";
import {SumTrees} from "./support/SumTrees.sol";

/// @title A scheduler's debt that is claimed again and again
contract AttacksDebtsTest is AttackMoney {
    uint96 private constant SHORT = 0.5 ether;
    uint96 private constant FINE = SHORT + SHORT / 10;

    address private node = exactNode(0);
    Tab private tab;
    bytes32 private id;

    function setUp() public override {
        super.setUp();
        openNodeTab(node);
        tab = nodeTab(node);
        id = Messages.tabId(tab);
    }

    /// @dev A claim of all that was ever authorised, which the tab's deposit covers but for `short`.
    function claimAll(uint96 short) private {
        Voucher memory voucher = voucherOf(tab, 0, DEPOSIT + short, 1);
        ClaimState memory state = claim(tab, voucher, SCHEDULER_KEY, oneLeaf(1, DEPOSIT + short), node);
        pass(parameters().claimDelay);
        bank.settle(tab, state);
    }

    function convict() private {
        vm.prank(node);
        evidence.convictPayer(tab);
    }

    function refused(uint96 short) private {
        vm.expectRevert(abi.encodeWithSelector(IEvidence.AlreadyFined.selector, id, short));
        convict();
    }

    /// @dev Each fine is burnt but for a tenth, which would be the payee's, until there is no stake.
    function test_ADebtIsFinedOnceHoweverOftenItIsClaimed() public {
        claimAll(SHORT);
        convict();
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - FINE);
        uint256 earned = wealth(node);
        for (uint256 again = 0; again < 3; ++again) {
            claimAll(SHORT);
            refused(SHORT);
        }
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - FINE);
        assertEq(wealth(node), earned, "who claims again earns nothing");
    }

    function test_OfALargerDebtWhatIsNewIsFined() public {
        claimAll(SHORT);
        convict();
        claimAll(SHORT + 0.1 ether);
        convict();
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - FINE - 0.11 ether);
        claimAll(SHORT + 0.1 ether);
        refused(SHORT + 0.1 ether);
    }

    /// @dev Once fined it is still owed: stake beyond the least pays it, and is not burnt.
    function test_AFinedDebtIsPaidOnceThereIsStakeBeyondTheLeast() public {
        claimAll(SHORT);
        convict();
        uint256 burnt = bank.balanceOf(PotKind.Burnt, 0);
        registry.topUp{value: FINE + 0.2 ether}(scheduler, FINE + 0.2 ether);
        claimAll(SHORT);
        uint256 before = creditOf(node);
        convict();
        assertEq(creditOf(node), before + 0.2 ether, "all that is beyond the least, and no reward of it");
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE);
        assertEq(bank.balanceOf(PotKind.Burnt, 0), burnt);
        (uint96 short,) = bank.shortOf(id);
        assertEq(short, SHORT - 0.2 ether);
    }

    /// @dev What stake could not bear is fined when there is stake again, and no more than that.
    function test_AFineThatFoundTooLittleStakeIsTakenLater() public {
        claimAll(2 * SCHEDULER_STAKE);
        convict();
        assertEq(stakeOf(scheduler), 0);
        for (uint256 again = 0; again < 2; ++again) {
            registry.topUp{value: SCHEDULER_STAKE}(scheduler, SCHEDULER_STAKE);
            claimAll(2 * SCHEDULER_STAKE);
            convict();
        }
        // Of 4.4 in all, 2 and 2 were there.
        assertApproxEqAbs(stakeOf(scheduler), SCHEDULER_STAKE - 0.4 ether, 10);
        claimAll(2 * SCHEDULER_STAKE);
        refused(2 * SCHEDULER_STAKE);
    }

    /// @dev A debt that was paid meanwhile counts for no later one.
    function test_ADebtThatWasPaidIsNoLongerFined() public {
        claimAll(SHORT);
        convict();
        bank.topUp{value: SHORT}(id, SHORT);
        claimAll(SHORT);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingShort.selector, id));
        convict();
        claimAll(SHORT + 0.1 ether);
        convict();
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - FINE - 0.11 ether);
    }

    // ---- gas by old words

    /// @dev What the tab does not know of is authorised, too: the gas of a claim by an old voucher comes out of what
    ///      covers the newest. The next claim, which shows it, is seen for a whole delay before it is settled.
    function claimByAnOldVoucher() private returns (ClaimState memory next) {
        Voucher memory old = voucherOf(tab, 0, 4 ether, 1);
        ClaimState memory first = claim(tab, old, SCHEDULER_KEY, oneLeaf(1, 4 ether), node);
        pass(parameters().claimDelay);
        bank.settle(tab, first);
        Voucher memory newest = voucherOf(tab, 4 ether, DEPOSIT, 2);
        newest.acknowledgedThrough = 1;
        next = claim(tab, newest, SCHEDULER_KEY, oneLeaf(2, 6 ether), node);
    }

    function test_AClaimByAnOldVoucherLeavesADelayToCoverWhatItsGasTook() public {
        ClaimState memory next = claimByAnOldVoucher();
        uint96 missing = 6 ether - bank.tabOf(id).balance;
        assertEq(missing, 100_000 gwei);
        assertEq(next.settlesAt - vm.getBlockNumber(), parameters().claimDelay);
        vm.roll(next.settlesAt);
        bank.topUp{value: missing}(id, missing);
        bank.settle(tab, next);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingShort.selector, id));
        convict();
    }

    function test_AGapThatAnOldVouchersGasLeftCostsItsSchedulerLittleMoreThanThatGas() public {
        ClaimState memory next = claimByAnOldVoucher();
        vm.roll(next.settlesAt);
        bank.settle(tab, next);
        (uint96 short,) = bank.shortOf(id);
        assertEq(short, 100_000 gwei);
        convict();
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - short - short / 10);
        // What is fined is less than the conviction's gas, and pays for it.
        assertEq(creditOf(node), DEPOSIT + short + short / 10);
    }
}

/// @title Answers that are served while a claim on their tab runs: only the next claim can show them
contract AttacksWaitingTest is AttackMoney {
    uint96 private constant WORTH = 6e11;

    /// @dev As on a network of real money, stake stays longer than two claims last.
    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.unbonding = 2 * chosen.claimDelay + 400;
    }

    /// @dev The client acknowledges nothing, orders while the first claim runs, and objects to the second as late as it
    ///      can. It had all these answers for nothing: the court heard draws no longer than for one claim.
    function test_WhatIsServedWhileAClaimRunsIsShownAtTheEndOfTheNextOne() public {
        openClientTab();
        Tab memory tab = clientTab();
        Served[2] memory made;
        made[0] = serve(1);
        // Long due: three lags.
        pass(150);
        ClaimState memory first = claim(tab, voucherOf(tab, 0, FEE_CAP, 1), TAB_KEY, oneLeaf(1, WORTH), scheduler);
        pass(1);
        made[1] = serve(2);
        vm.roll(first.settlesAt);
        bank.settle(tab, first);
        uint96[] memory amounts = new uint96[](2);
        (amounts[0], amounts[1]) = (WORTH, WORTH);
        Voucher memory voucher = voucherOf(tab, 0, 2 * FEE_CAP, 2);
        ClaimState memory next = claim(tab, voucher, TAB_KEY, SumTrees.claim(1, amounts), scheduler);
        vm.roll(next.settlesAt - parameters().answerWindow - 1);
        for (uint64 number = 1; number <= 2; ++number) {
            vm.prank(client);
            bank.object(tab, next, number);
        }
        pass(parameters().answerWindow);
        for (uint64 number = 1; number <= 2; ++number) {
            (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(1, amounts, number - 1);
            Served memory shown_ = made[number - 1];
            (shown_.draw, shown_.drawSignature) = signDraw(shown_.order.order, shown_.resultsHash);
            bank.answer(
                tab,
                next,
                number,
                LeafKind.Order,
                WORTH,
                siblings,
                sums,
                abi.encode(shown_.order, shown_.results, shown_.signatures, shown_.draw, shown_.drawSignature)
            );
        }
        pass(1);
        bank.settle(tab, next);
        assertEq(bank.tabOf(Messages.tabId(tab)).redeemed, 2 * WORTH);
        // And what is worth something, the court hears.
        Trial memory trial = open(made[1], Opinion.None, client);
        assertEq(trial.state.node, made[1].nodes[0]);
    }
}
