// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {IEvidence} from "../../market/interfaces/IEvidence.sol";
import {IProofs} from "../../market/interfaces/IProofs.sol";
import {IProver} from "../../market/interfaces/IProver.sol";
import {Parameters, Role, Tab} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {Messages} from "../../market/libraries/Messages.sol";
import {EvidenceTest} from "./support/EvidenceTest.sol";

/// @dev Proves whatever it is told.
contract ProverMock is IProver {
    function proven(bytes calldata evidence) external pure returns (address, uint64, bytes32) {
        return abi.decode(evidence, (address, uint64, bytes32));
    }
}

/// @title Payers that do not cover what their operators promised
contract EvidencePayersTest is EvidenceTest {
    uint96 private constant SHORT = 0.5 ether;
    address private reporter = makeAddr("reporter");
    address private payee = exactNode(0);

    /// @dev The bank knows of a settled claim that the tab did not cover.
    function owe(uint96 short) private returns (Tab memory tab) {
        tab = nodeTab(payee);
        bytes32 id = Messages.tabId(tab);
        vm.mockCall(address(bank), abi.encodeCall(IBank.shortOf, (id)), abi.encode(short, uint40(vm.getBlockNumber())));
        vm.mockCall(address(bank), abi.encodeWithSelector(IBank.forgive.selector), "");
    }

    function endow(uint96 amount) private {
        vm.deal(address(this), amount);
        registry.topUp{value: amount}(scheduler, amount);
    }

    function test_StakeBeyondTheLeastPaysThePayee() public {
        endow(1 ether);
        Tab memory tab = owe(SHORT);
        vm.expectCall(address(bank), abi.encodeCall(IBank.forgive, (Messages.tabId(tab), SHORT)));
        vm.prank(reporter);
        evidence.convictPayer(tab);
        assertEq(creditOf(payee), SHORT);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE + 1 ether - SHORT - SHORT / 10);
        assertGe(creditOf(reporter), SHORT / 100);
        assertLt(creditOf(reporter), SHORT / 100 + 150_000 gwei);
        assertEq(registry.convictionCount(scheduler), 1);
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictPayer(tab);
    }

    /// @dev A debt to a friend is no way out for the stake that others' losses stand on.
    function test_TheLeastStakePaysNobodyAndIsBurntInstead() public {
        Tab memory tab = owe(SHORT);
        uint256 burnt = burntMoney();
        vm.prank(reporter);
        evidence.convictPayer(tab);
        assertEq(creditOf(payee), 0);
        assertEq(stakeOf(scheduler), SCHEDULER_STAKE - SHORT - SHORT / 10);
        assertGe(burntMoney() - burnt, (uint256(SHORT) + SHORT / 10) * 9 / 10 - 150_000 gwei);
    }

    function test_ADebtBeyondAllStakeTakesAllAndPaysWhatIsBeyondTheLeast() public {
        endow(1 ether);
        Tab memory tab = owe(100 ether);
        vm.prank(reporter);
        evidence.convictPayer(tab);
        assertEq(creditOf(payee), 1 ether);
        assertEq(stakeOf(scheduler), 0);
        assertLt(creditOf(reporter), SCHEDULER_STAKE / 10 + 150_000 gwei);
    }

    function test_WithoutAShortfallOrASchedulersKeyThereIsNoProof() public {
        Tab memory tab = nodeTab(payee);
        vm.expectRevert(abi.encodeWithSelector(IEvidence.NothingShort.selector, Messages.tabId(tab)));
        evidence.convictPayer(tab);
        tab.key = exactNode(1);
        bytes32 id = Messages.tabId(tab);
        vm.mockCall(address(bank), abi.encodeCall(IBank.shortOf, (id)), abi.encode(SHORT, uint40(1)));
        vm.expectRevert(
            abi.encodeWithSelector(IEvidence.WrongParty.selector, exactNode(1), Role.Node, Role.Scheduler)
        );
        evidence.convictPayer(tab);
    }

    function test_APayerThatHasLeftIsOutOfReach() public {
        vm.prank(scheduler);
        registry.deregister(scheduler);
        (,, uint40 exitBlock) = registry.roleOf(scheduler);
        vm.roll(exitBlock + 1);
        Tab memory tab = owe(SHORT);
        vm.expectPartialRevert(IEvidence.PartyLeft.selector);
        evidence.convictPayer(tab);
    }

    function test_WithoutAProverOfItsOwnADeploymentHasProofs() public {
        vm.expectRevert(abi.encodeWithSelector(IProofs.NoSuchProof.selector, bytes4(0)));
        evidence.convictByProof("");
    }
}

/// @title Convictions by the deployment's prover
contract EvidenceProverTest is EvidenceTest {
    address private prover;

    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.prover = prover;
    }

    function setUp() public override {
        prover = address(new ProverMock());
        super.setUp();
    }

    /// @dev Whatever k and m' said before: the court is not asked.
    function test_AProofConvictsAgainstAnyMajority() public {
        bytes32 subject = keccak256("result");
        evidence.convictByProof(abi.encode(exactNode(0), last(), subject));
        assertEq(stakeOf(exactNode(0)), NODE_STAKE - PENALTY);
        assertTrue(evidence.isProven(keccak256(abi.encode(Fault.ByProof, subject))));
        assertTrue(registry.isVoidByAny(exactNode(0), last()));
    }

    function test_AProofIsUsedOnce() public {
        bytes memory proof = abi.encode(exactNode(0), last(), keccak256("result"));
        evidence.convictByProof(proof);
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictByProof(proof);
        vm.expectPartialRevert(IEvidence.AlreadyProven.selector);
        evidence.convictByProof(abi.encode(exactNode(1), last(), keccak256("result")));
    }

    function test_ASchedulerLosesTheLeastStakeByProof() public {
        evidence.convictByProof(abi.encode(scheduler, last(), keccak256("word")));
        assertEq(stakeOf(scheduler), 0);
    }

    function test_StrangersAndFutureBlocksAreHandled() public {
        vm.expectPartialRevert(IEvidence.WrongParty.selector);
        evidence.convictByProof(abi.encode(stranger, last(), keccak256("word")));
        evidence.convictByProof(abi.encode(exactNode(0), type(uint64).max, keccak256("word")));
        assertTrue(registry.isVoidByAny(exactNode(0), uint64(vm.getBlockNumber())));
    }
}
