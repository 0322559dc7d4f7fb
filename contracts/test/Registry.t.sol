// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothMoney} from "../interfaces/ITrothMoney.sol";
import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";
import {Account as Standing, NodeRegistration, Role, SchedulerRegistration, Segment} from "../interfaces/TrothTypes.sol";
import {TrothTest} from "./support/TrothTest.sol";

contract RegistryTest is TrothTest {
    uint256 private constant NEW_KEY = 0x4e300;
    address private newcomer = vm.addr(NEW_KEY);
    address private stranger = makeAddr("stranger");

    function test_RegistersANode() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        bytes memory consent = consentOf(NEW_KEY, owner);
        uint40 next = uint40(vm.getBlockNumber() + 1);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.NodeRegistered(
            newcomer, owner, tolerant, payout, 0, 4, registration.endpoint, registration.tlsKeyHash, NODE_STAKE
        );
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotFilled(troth.groupId(tolerant, 0, 4), newcomer, tolerant, 0, 4, uint32(NODES), next);
        vm.prank(owner);
        troth.registerNode{value: NODE_STAKE}(registration, consent);
        Standing memory account = troth.accountOf(newcomer);
        assertEq(account.stake, NODE_STAKE);
        assertEq(account.credit, 0);
        assertEq(account.exitBlock, 0);
        assertEq(uint8(account.role), uint8(Role.Node));
        assertEq(troth.ownerOf(newcomer), owner);
        assertEq(troth.payoutOf(newcomer), payout);
    }

    function test_RegistersAScheduler() public {
        SchedulerRegistration memory registration = schedulerRegistration(newcomer, 9);
        bytes memory consent = consentOf(NEW_KEY, owner);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SchedulerRegistered(
            newcomer,
            owner,
            payout,
            registration.vrfX,
            registration.vrfY,
            registration.endpoint,
            registration.tlsKeyHash,
            SCHEDULER_STAKE
        );
        vm.prank(owner);
        troth.registerScheduler{value: SCHEDULER_STAKE}(registration, consent);
        (uint256 x, uint256 y) = troth.vrfKeyOf(newcomer);
        assertEq(x, registration.vrfX);
        assertEq(y, registration.vrfY);
        assertEq(uint8(troth.accountOf(newcomer).role), uint8(Role.Scheduler));
    }

    function test_RefusesAnotherOwnersConsent() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        bytes memory consent = consentOf(NEW_KEY, stranger);
        vm.prank(owner);
        vm.expectPartialRevert(ITrothRegistry.InvalidConsent.selector);
        troth.registerNode{value: NODE_STAKE}(registration, consent);
    }

    function test_RefusesAConsentThatSomebodyElseSigned() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        bytes32 structHash =
            keccak256(abi.encode(keccak256("Consent(address owner,address operator)"), owner, newcomer));
        bytes memory consent = signed(CLIENT_KEY, structHash);
        refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.InvalidConsent.selector, newcomer, client));
    }

    function test_RefusesZeroAddresses() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        bytes memory consent = consentOf(NEW_KEY, owner);
        registration.payout = address(0);
        refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothMoney.ZeroAddress.selector));
        registration = nodeRegistration(address(0), tolerant);
        refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothMoney.ZeroAddress.selector));
    }

    function test_RefusesAnEndpointWithoutTls() public {
        string[3] memory endpoints = ["http://node.example", "https://", ""];
        bytes memory consent = consentOf(NEW_KEY, owner);
        for (uint256 i = 0; i < 3; ++i) {
            NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
            registration.endpoint = endpoints[i];
            refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.EndpointNotHttps.selector, endpoints[i]));
        }
    }

    function test_RefusesAnEndpointThatIsNotPlain() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        registration.endpoint = string(abi.encodePacked("https://", hex"fe"));
        refusedNode(
            registration,
            consentOf(NEW_KEY, owner),
            NODE_STAKE,
            abi.encodeWithSelector(ITrothMoney.TextNotPlain.selector, 9)
        );
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.TextNotPlain.selector, 9));
        troth.setEndpoint(nodeAddress(0), registration.endpoint, 0);
    }

    function test_RefusesTooLittleStake() public {
        bytes memory consent = consentOf(NEW_KEY, owner);
        refusedNode(
            nodeRegistration(newcomer, tolerant),
            consent,
            NODE_STAKE - 1,
            abi.encodeWithSelector(ITrothRegistry.StakeTooLow.selector, NODE_STAKE - 1, NODE_STAKE)
        );
        SchedulerRegistration memory registration = schedulerRegistration(newcomer, 9);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.StakeTooLow.selector, 1, SCHEDULER_STAKE));
        troth.registerScheduler{value: 1}(registration, consent);
    }

    function test_RefusesAStakeBeyond96Bits() public {
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        bytes memory consent = consentOf(NEW_KEY, owner);
        uint256 amount = uint256(type(uint96).max) + 1;
        vm.deal(owner, amount);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothMoney.AmountTooLarge.selector, amount));
        troth.registerNode{value: amount}(registration, consent);
    }

    function test_RefusesUnknownClass() public {
        refusedNode(
            nodeRegistration(newcomer, bytes32("nothing")),
            consentOf(NEW_KEY, owner),
            NODE_STAKE,
            abi.encodeWithSelector(ITrothMoney.UnknownClass.selector, bytes32("nothing"))
        );
    }

    function test_RefusesSlices() public {
        bytes memory consent = consentOf(NEW_KEY, owner);
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        registration.end = 5;
        refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.InvalidSlice.selector, 0, 5, 4));
        registration.end = 0;
        refusedNode(registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.InvalidSlice.selector, 0, 0, 4));
    }

    function test_RefusesSegmentsOutsideTheSlice() public {
        bytes memory consent = consentOf(NEW_KEY, owner);
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        registration.first = 1;
        refusedNode(
            registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.SegmentOutsideSlice.selector, 0, 4, 1, 4)
        );
        registration.first = 0;
        registration.segments[1] = Segment({first: 2, end: 2});
        refusedNode(
            registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.SegmentOutsideSlice.selector, 2, 2, 0, 4)
        );
    }

    function test_RefusesNoSegmentsAndTooMany() public {
        bytes memory consent = consentOf(NEW_KEY, owner);
        NodeRegistration memory registration = nodeRegistration(newcomer, tolerant);
        registration.segments = new Segment[](0);
        refusedNode(
            registration, consent, NODE_STAKE, abi.encodeWithSelector(ITrothRegistry.InvalidSegmentCount.selector, 0)
        );
        registration.segments = new Segment[](2);
        registration.segments[0] = Segment({first: 0, end: 4});
        registration.segments[1] = Segment({first: 0, end: 4});
        refusedNode(
            registration,
            consent,
            NODE_STAKE,
            abi.encodeWithSelector(ITrothRegistry.AlreadyEnrolled.selector, troth.groupId(tolerant, 0, 4), newcomer)
        );
    }

    function test_AnOperatorRegistersOnceInItsLife() public {
        bytes memory consent = consentOf(NODE_KEY, owner);
        refusedNode(
            nodeRegistration(nodeAddress(0), tolerant),
            consent,
            NODE_STAKE,
            abi.encodeWithSelector(ITrothRegistry.OperatorKnown.selector, nodeAddress(0))
        );
        vm.prank(owner);
        troth.deregister(nodeAddress(0));
        pass(UNBONDING_PERIOD + 1);
        troth.withdraw(nodeAddress(0));
        refusedNode(
            nodeRegistration(nodeAddress(0), tolerant),
            consent,
            NODE_STAKE,
            abi.encodeWithSelector(ITrothRegistry.OperatorKnown.selector, nodeAddress(0))
        );
    }

    function test_RefusesAVrfKeyOffTheCurve() public {
        SchedulerRegistration memory registration = schedulerRegistration(newcomer, 9);
        bytes memory consent = consentOf(NEW_KEY, owner);
        ++registration.vrfY;
        vm.prank(owner);
        vm.expectRevert(
            abi.encodeWithSelector(ITrothRegistry.InvalidVrfKey.selector, registration.vrfX, registration.vrfY)
        );
        troth.registerScheduler{value: SCHEDULER_STAKE}(registration, consent);
    }

    function test_EnrollsByOwnerOnly() public {
        vm.prank(nodeAddress(0));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NotOwner.selector, nodeAddress(0), nodeAddress(0)));
        troth.enroll(nodeAddress(0), 1, 3);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, newcomer));
        troth.enroll(newcomer, 1, 3);
        vm.startPrank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.WrongRole.selector, scheduler, Role.Scheduler));
        troth.enroll(scheduler, 1, 3);
        troth.enroll(nodeAddress(0), 1, 3);
        bytes32 group = troth.groupId(tolerant, 1, 3);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.AlreadyEnrolled.selector, group, nodeAddress(0)));
        troth.enroll(nodeAddress(0), 1, 3);
        assertEq(troth.memberAt(group, 0, vm.getBlockNumber()), address(0));
        assertEq(troth.memberAt(group, 0, vm.getBlockNumber() + 1), nodeAddress(0));
    }

    function test_ChangesEndpoint() public {
        vm.expectEmit(address(troth));
        emit ITrothRegistry.EndpointChanged(nodeAddress(0), "https://new.example", bytes32("key"));
        vm.prank(nodeAddress(0));
        troth.setEndpoint(nodeAddress(0), "https://new.example", bytes32("key"));
        vm.prank(owner);
        troth.setEndpoint(nodeAddress(0), "https://newer.example", bytes32("key"));
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NotOwnerOrOperator.selector, nodeAddress(0), stranger));
        troth.setEndpoint(nodeAddress(0), "https://evil.example", bytes32("key"));
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.EndpointNotHttps.selector, "ftp://new.example"));
        troth.setEndpoint(nodeAddress(0), "ftp://new.example", bytes32("key"));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, newcomer));
        troth.setEndpoint(newcomer, "https://new.example", bytes32("key"));
    }

    function test_ChangesPayout() public {
        vm.expectEmit(address(troth));
        emit ITrothRegistry.PayoutChanged(nodeAddress(0), payout, stranger);
        vm.prank(owner);
        troth.setPayout(nodeAddress(0), stranger);
        assertEq(troth.payoutOf(nodeAddress(0)), stranger);
        vm.prank(nodeAddress(0));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NotOwner.selector, nodeAddress(0), nodeAddress(0)));
        troth.setPayout(nodeAddress(0), nodeAddress(0));
        vm.prank(owner);
        vm.expectRevert(ITrothMoney.ZeroAddress.selector);
        troth.setPayout(nodeAddress(0), address(0));
    }

    function test_TopsUp() public {
        vm.deal(stranger, 1 ether);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.StakeAdded(nodeAddress(0), 0.5 ether, NODE_STAKE + 0.5 ether);
        vm.prank(stranger);
        troth.topUp{value: 0.5 ether}(nodeAddress(0));
        assertEq(stakeOf(nodeAddress(0)), NODE_STAKE + 0.5 ether);
        vm.expectRevert(ITrothMoney.ZeroAmount.selector);
        troth.topUp(nodeAddress(0));
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, newcomer));
        troth.topUp{value: 1}(newcomer);
    }

    function test_DeregistersFromAllGroupsAtOnce() public {
        uint40 exitBlock = uint40(vm.getBlockNumber() + UNBONDING_PERIOD);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.Deregistered(nodeAddress(2), exitBlock);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.SlotVacated(troth.groupId(tolerant, 2, 4), nodeAddress(2), 2, uint40(vm.getBlockNumber()));
        vm.prank(nodeAddress(2));
        troth.deregister(nodeAddress(2));
        assertEq(troth.accountOf(nodeAddress(2)).exitBlock, exitBlock);
        bytes32 group = troth.groupId(tolerant, 0, 4);
        assertEq(troth.memberAt(group, 2, vm.getBlockNumber() - 1), nodeAddress(2));
        assertEq(troth.memberAt(group, 2, vm.getBlockNumber()), address(0));
        assertEq(troth.memberAt(troth.groupId(tolerant, 0, 2), 2, vm.getBlockNumber()), address(0));
    }

    function test_ALeavingPartyCanDoNothingButWait() public {
        vm.startPrank(owner);
        troth.deregister(nodeAddress(2));
        bytes memory leaving = abi.encodeWithSelector(
            ITrothRegistry.AlreadyExiting.selector, nodeAddress(2), vm.getBlockNumber() + UNBONDING_PERIOD
        );
        vm.expectRevert(leaving);
        troth.deregister(nodeAddress(2));
        vm.expectRevert(leaving);
        troth.enroll(nodeAddress(2), 0, 4);
        vm.expectRevert(leaving);
        troth.topUp{value: 1}(nodeAddress(2));
        vm.expectRevert(leaving);
        troth.setEndpoint(nodeAddress(2), "https://new.example", bytes32("key"));
        vm.stopPrank();
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NotOwnerOrOperator.selector, nodeAddress(3), stranger));
        troth.deregister(nodeAddress(3));
    }

    function test_WithdrawsOnlyAfterTheExitBlock() public {
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, newcomer));
        troth.withdraw(newcomer);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NotExiting.selector, nodeAddress(2)));
        troth.withdraw(nodeAddress(2));
        vm.prank(owner);
        troth.deregister(nodeAddress(2));
        uint40 exitBlock = troth.accountOf(nodeAddress(2)).exitBlock;
        vm.roll(exitBlock);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.StillUnbonding.selector, exitBlock, exitBlock));
        troth.withdraw(nodeAddress(2));
        vm.roll(exitBlock + 1);
        vm.expectEmit(address(troth));
        emit ITrothRegistry.Withdrawn(nodeAddress(2), payout, NODE_STAKE, 0);
        vm.prank(stranger);
        troth.withdraw(nodeAddress(2));
        assertEq(payout.balance, NODE_STAKE);
        assertEq(stakeOf(nodeAddress(2)), 0);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.UnknownOperator.selector, nodeAddress(2)));
        troth.withdraw(nodeAddress(2));
    }

    function test_EvictsOnlyWhoFellUnderTheMinimum() public {
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.StakeSufficient.selector, NODE_STAKE, NODE_STAKE));
        troth.evict(nodeAddress(0));
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NothingToEvict.selector, scheduler));
        troth.evict(scheduler);
        vm.expectRevert(abi.encodeWithSelector(ITrothRegistry.NothingToClaim.selector, stranger));
        troth.claim(stranger);
    }

    function refusedNode(NodeRegistration memory registration, bytes memory consent, uint256 value, bytes memory error_)
        private
    {
        vm.prank(owner);
        vm.expectRevert(error_);
        troth.registerNode{value: value}(registration, consent);
    }
}
