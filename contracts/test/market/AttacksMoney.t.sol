// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {IDocket} from "../../market/interfaces/IDocket.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {ILeaves} from "../../market/interfaces/ILeaves.sol";
import {
    ClaimState,
    LeafKind,
    Parameters,
    Role,
    Tab,
    TabConsent,
    Voucher
} from "../../market/interfaces/MarketTypes.sol";
import {Opinion} from "../../market/interfaces/Signed.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {AttackMoney} from "./support/AttackMoney.sol";

/// @dev A key that agrees with everything until it is told not to.
contract FickleKey {
    bool public refuses;

    function change(bool refuses_) external {
        refuses = refuses_;
    }

    function isValidSignature(bytes32, bytes calldata) external view returns (bytes4) {
        return refuses ? bytes4(0) : bytes4(0x1626ba7e);
    }
}

/// @title Attempts on tabs, vouchers, claims, promises and credit
contract AttacksMoneyTest is AttackMoney {
    // ---- keys and consents

    function test_APrecompileIsNobodysKey() public {
        // The identity precompile returns what it is asked, which begins with EIP-1271's word.
        for (uint160 key = 1; key <= 10; ++key) {
            Tab memory tab = Tab({payer: stranger, payee: scheduler, key: address(key)});
            vm.expectRevert(
                abi.encodeWithSelector(IBank.InvalidTabConsent.selector, address(key), Messages.tabId(tab))
            );
            vm.prank(stranger);
            bank.openTab{value: 1 ether}(scheduler, address(key), 1 ether, hex"1626ba7e");
        }
    }

    function test_AConsentToRegisterIsNoConsentToATab() public {
        bytes memory consent = consentOf(TAB_KEY, client);
        Tab memory tab = Tab({payer: client, payee: tabKey, key: tabKey});
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, tabKey, Messages.tabId(tab)));
        vm.prank(client);
        bank.openTab{value: 1 ether}(tabKey, tabKey, 1 ether, consent);
        // And the other way round: who is a key for a payer is not yet its operator.
        consent = sign(TAB_KEY, Messages.hash(TabConsent({payer: client, payee: tabKey})));
        vm.expectRevert();
        register(client, NODE_STAKE, abi.encodeCall(
            registry.registerNode, (nodeRegistration(tabKey, exact, false, NODE_STAKE), consent)
        ));
        (Role role,,) = registry.roleOf(tabKey);
        assertEq(uint8(role), uint8(Role.None));
    }

    function test_AKeyThatChangesItsMindTakesWhatItsPayeeTrustedItWith() public {
        FickleKey key = new FickleKey();
        Tab memory tab = Tab({payer: client, payee: scheduler, key: address(key)});
        vm.prank(client);
        bank.openTab{value: DEPOSIT}(scheduler, address(key), DEPOSIT, "");
        Voucher memory voucher = voucherOf(tab, 1 ether, 2 ether, 2);
        bank.redeem(tab, voucher, "");
        assertEq(creditOf(scheduler), 1 ether, "while it agrees it pays");
        key.change(true);
        voucher.spent = 2 ether;
        vm.expectRevert(
            abi.encodeWithSelector(IBank.InvalidVoucher.selector, address(key), Messages.hash(voucher))
        );
        bank.redeem(tab, voucher, "");
        // What was paid stays paid, and the payer gets its own deposit alone.
        vm.prank(client);
        bank.close(tab);
        pass(parameters().closeDelay);
        bank.finishClosing(tab);
        assertEq(client.balance, 1000 ether - 1 ether);
    }

    function test_ASchedulersNameUnderAStrangersTabConvictsNobody() public {
        // A tab whose key is the scheduler would make it answer for the payer's debts.
        Tab memory tab = Tab({payer: stranger, payee: makeAddr("friend"), key: scheduler});
        bytes memory consent = sign(CLIENT_KEY, Messages.hash(TabConsent({payer: stranger, payee: tab.payee})));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, scheduler, Messages.tabId(tab)));
        vm.prank(stranger);
        bank.openTab{value: 1}(tab.payee, scheduler, 1, consent);
        // The scheduler's consent to its own payer says nothing about another one.
        consent = sign(SCHEDULER_KEY, Messages.hash(TabConsent({payer: ownerOf(scheduler), payee: tab.payee})));
        vm.expectRevert(abi.encodeWithSelector(IBank.InvalidTabConsent.selector, scheduler, Messages.tabId(tab)));
        vm.prank(stranger);
        bank.openTab{value: 1}(tab.payee, scheduler, 1, consent);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingShort.selector, Messages.tabId(tab)));
        evidence.convictPayer(tab);
    }

    function test_AClientsDebtConvictsNobody() public {
        openClientTab();
        Tab memory tab = clientTab();
        Voucher memory voucher = voucherOf(tab, 0, DEPOSIT + 1, 1);
        ClaimState memory state = claim(tab, voucher, TAB_KEY, oneLeaf(1, DEPOSIT + 1), scheduler);
        pass(parameters().claimDelay);
        bank.settle(tab, state);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.WrongParty.selector, tabKey, Role.None, Role.Scheduler));
        evidence.convictPayer(tab);
    }

    // ---- money out of nothing

    function test_ATabWithOneselfMakesNoMoney() public {
        bytes memory consent = sign(CLIENT_KEY, Messages.hash(TabConsent({payer: client, payee: client})));
        vm.prank(client);
        bank.openTab{value: DEPOSIT}(client, client, DEPOSIT, consent);
        Tab memory tab = Tab({payer: client, payee: client, key: client});
        Voucher memory voucher = voucherOf(tab, 0, type(uint96).max, 1);
        ClaimState memory state = claim(tab, voucher, CLIENT_KEY, oneLeaf(1, type(uint96).max), client);
        vm.prank(client);
        bank.close(tab);
        pass(parameters().closeDelay);
        bank.settle(tab, state);
        bank.finishClosing(tab);
        assertEq(wealth(client), 1000 ether, "not a unit more, and none of gas");
        vm.prank(client);
        bank.withdraw(client);
        vm.expectRevert(abi.encodeWithSelector(IBank.NothingToWithdraw.selector, client));
        bank.withdraw(client);
    }

    function test_ManyClaimsOnOnesOwnTabMakeNoMoney() public {
        bytes memory consent = sign(CLIENT_KEY, Messages.hash(TabConsent({payer: client, payee: stranger})));
        vm.prank(client);
        bank.openTab{value: 1 ether}(stranger, client, 1 ether, consent);
        Tab memory tab = Tab({payer: client, payee: stranger, key: client});
        uint256 before = wealth(client) + wealth(stranger);
        for (uint64 number = 1; number <= 3; ++number) {
            Voucher memory voucher = voucherOf(tab, number - 1, 1 ether, number);
            ClaimState memory state = claim(tab, voucher, CLIENT_KEY, oneLeaf(number, 1), stranger);
            pass(parameters().claimDelay);
            bank.settle(tab, state);
        }
        // Each brought one unit, and no gas: the tab holds nothing beyond what is authorised.
        assertEq(creditOf(stranger), 3);
        assertEq(bank.tabOf(Messages.tabId(tab)).balance, 1 ether - 3);
        assertEq(wealth(client) + wealth(stranger), before + 3);
    }

    function test_TheBankIsAPayeeThatNobodyEmpties() public {
        bytes memory consent = sign(TAB_KEY, Messages.hash(TabConsent({payer: client, payee: address(bank)})));
        vm.prank(client);
        bank.openTab{value: 1 ether}(address(bank), tabKey, 1 ether, consent);
        Tab memory tab = Tab({payer: client, payee: address(bank), key: tabKey});
        Voucher memory voucher = voucherOf(tab, 1 ether, 1 ether, 1);
        bank.redeem(tab, voucher, sign(TAB_KEY, Messages.hash(voucher)));
        vm.expectRevert(abi.encodeWithSelector(IBank.TransferFailed.selector, address(bank), 1 ether));
        bank.withdraw(address(bank));
        assertEq(creditOf(address(bank)), 1 ether);
    }

    function test_AWithdrawalForSomebodyElsePaysThatOne() public {
        vm.prank(client);
        bank.credit{value: 1 ether}(exactNode(0), 1 ether);
        uint256 before = stranger.balance;
        vm.prank(stranger);
        bank.withdraw(exactNode(0));
        assertEq(stranger.balance, before);
        assertEq(ownerOf(exactNode(0)).balance, 1 ether, "to the operator's owner");
    }

    // ---- claims

    function test_AClaimWithAnotherClaimerOrSumIsNotTheClaim() public {
        openClientTab();
        Tab memory tab = clientTab();
        ClaimState memory state = claim(tab, voucherOf(tab, 0, 2 ether, 2), TAB_KEY, oneLeaf(1, 1 ether), scheduler);
        pass(parameters().claimDelay);
        state.claimer = stranger;
        vm.expectPartialRevert(IBank.ClaimMismatch.selector);
        bank.settle(tab, state);
        (state.claimer, state.owed) = (scheduler, 2 ether);
        vm.expectPartialRevert(IBank.ClaimMismatch.selector);
        bank.settle(tab, state);
        state.owed = 1 ether;
        state.settlesAt -= 1;
        vm.expectPartialRevert(IBank.ClaimMismatch.selector);
        bank.settle(tab, state);
        assertEq(creditOf(scheduler), 0);
    }

    function test_APayeeCannotObjectToTakeThePayersDeposits() public {
        openClientTab();
        Tab memory tab = clientTab();
        ClaimState memory state = claim(tab, voucherOf(tab, 0, 2 ether, 2), TAB_KEY, oneLeaf(1, 1 ether), scheduler);
        address[3] memory callers = [scheduler, ownerOf(scheduler), stranger];
        for (uint256 i = 0; i < callers.length; ++i) {
            vm.expectRevert(abi.encodeWithSelector(IBank.NotPayer.selector, Messages.tabId(tab), callers[i]));
            vm.prank(callers[i]);
            bank.object(tab, state, 1);
        }
        assertEq(bank.tabOf(Messages.tabId(tab)).balance, DEPOSIT);
    }

    // ---- promises

    function test_AVerifierThatAlwaysSaysYesIsPaidNothing() public {
        Served memory made = serve(1);
        bytes32 nothing = keccak256("computed nothing");
        (Tab memory tab, bytes memory leaf) = checkLeaf(made, Opinion.Accept, nothing);
        ILeaves leaves = ILeaves(factory.addressesOf(parameters()).leaves);
        vm.expectRevert(abi.encodeWithSelector(ILeaves.NotChecked.selector, nothing, traceRoot(0)));
        leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
        // Nor is who says no or cannot tell: such words prove no more work than a yes.
        for (uint8 opinion = uint8(Opinion.Reject); opinion <= uint8(Opinion.CannotTell); ++opinion) {
            (tab, leaf) = checkLeaf(made, Opinion(opinion), nothing);
            vm.expectRevert(abi.encodeWithSelector(ILeaves.NotChecked.selector, nothing, traceRoot(0)));
            leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
        }
        (tab, leaf) = checkLeaf(made, Opinion.MissingTrace, traceRoot(0));
        vm.expectRevert(abi.encodeWithSelector(ILeaves.NoOpinion.selector, uint8(Opinion.MissingTrace)));
        leaves.leafWorth(tab, LeafKind.Promise, 1, leaf);
    }

    function test_AnAnswerThatWasNeverSeenAndIsClaimedLateCanStillBeDoubted() public {
        openClientTab();
        Served memory made = serve(1);
        Tab memory tab = clientTab();
        ClaimState memory state =
            claim(tab, voucherOf(tab, 0, FEE_CAP, 1), TAB_KEY, oneLeaf(1, 6e11), scheduler);
        pass(200);
        vm.prank(client);
        bank.object(tab, state, 1);
        // The client sees these results for the first time; the draw over them is fresh.
        bytes memory leaf = freshLeaf(made);
        uint96[] memory none = new uint96[](0);
        bank.answer(tab, state, 1, LeafKind.Order, 6e11, new bytes32[](0), none, leaf);
        Trial memory trial = open(made, Opinion.None, client);
        assertEq(trial.state.node, made.nodes[0], "the court hears its doubt");
    }

    /// @dev Leaves and court take draws of the same age: what nobody can doubt any more nobody owes.
    function test_AnOrderThatTheCourtHearsNoMoreIsOwedByNobody() public {
        Served memory made = serve(1);
        Parameters memory chosen = parameters();
        // Here stake may leave before two claims could have ended.
        uint256 age = chosen.unbonding - 5;
        vm.roll(made.order.order.referenceBlock + age + 1);
        bytes memory leaf = freshLeaf(made);
        ILeaves leaves = ILeaves(factory.addressesOf(chosen).leaves);
        assertGt(leaves.leafWorth(clientTab(), LeafKind.Order, 1, leaf), 0);
        pass(1);
        leaf = freshLeaf(made);
        vm.expectRevert(abi.encodeWithSelector(ILeaves.LeafStale.selector, last(), vm.getBlockNumber()));
        leaves.leafWorth(clientTab(), LeafKind.Order, 1, leaf);
        openFails(
            made,
            Opinion.None,
            client,
            abi.encodeWithSelector(
                IDocket.DrawOutOfTime.selector, last(), made.order.order.referenceBlock, vm.getBlockNumber()
            )
        );
    }

    /// @dev The scheduler signs its draw anew, over the same results.
    function freshLeaf(Served memory made) private view returns (bytes memory) {
        (made.draw, made.drawSignature) = signDraw(made.order.order, made.resultsHash);
        return abi.encode(made.order, made.results, made.signatures, made.draw, made.drawSignature);
    }
}
