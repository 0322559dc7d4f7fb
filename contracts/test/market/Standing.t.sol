// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Profile, Member} from "../../market/interfaces/ILens.sol";
import {
    Ask,
    Entry,
    NodeRegistration,
    Parameters,
    PotKind,
    Role,
    SchedulerRegistration,
    Segment
} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {PlainText} from "../../market/libraries/PlainText.sol";
import {P256Prover} from "../support/P256Prover.sol";
import {MarketTest} from "./support/MarketTest.sol";

/// @title Registration, standing, suspension, conviction and exit
contract StandingTest is MarketTest {
    uint256 private constant NEW_KEY = 0x4e3000;
    bytes32 private constant CASE = keccak256("case");
    address private owner = makeAddr("owner");
    address private newcomer = vm.addr(NEW_KEY);

    function wholeNodes() internal pure override returns (uint256) {
        return 3;
    }

    function halfNodes() internal pure override returns (uint256) {
        return 3;
    }

    function halfNode(uint256 index) private pure returns (address) {
        return vm.addr(EXACT_KEY + HALVES_KEY + index);
    }

    function group() private view returns (bytes32) {
        return registry.groupId(exact, 0, LAYERS);
    }

    function registration(uint96 stake) private view returns (NodeRegistration memory) {
        return nodeRegistration(newcomer, exact, false, stake);
    }

    /// @dev Registers the newcomer with everything but `made` in order.
    function refused(NodeRegistration memory made, bytes memory failure) private {
        refused(made, consentOf(NEW_KEY, owner), failure);
    }

    function refused(NodeRegistration memory made, bytes memory consent, bytes memory failure) private {
        vm.deal(owner, 1000 ether);
        vm.prank(owner);
        vm.expectRevert(failure);
        registry.registerNode{value: made.stake}(made, consent);
    }

    function entryOf(address operator, bytes32 group_) private view returns (Entry memory entry) {
        uint256 now_ = vm.getBlockNumber();
        for (uint256 i = 0; i < registry.sizeAt(group_, now_); ++i) {
            entry = registry.entryAt(group_, i, now_);
            if (entry.operator == operator) return entry;
        }
        delete entry;
    }

    // ---- registration

    function test_RegistersANode() public {
        NodeRegistration memory made = registration(2 * SEAT + 1);
        made.payout = makeAddr("payout");
        vm.expectEmit(address(registry));
        emit IRegistry.NodeRegistered(
            newcomer, owner, exact, made.payout, 0, LAYERS, made.endpoint, made.tlsKeyHash
        );
        registerNode(NEW_KEY, owner, made);
        Profile memory profile = lens.profileOf(newcomer);
        assertEq(uint8(profile.role), uint8(Role.Node));
        assertEq(profile.owner, owner);
        assertEq(profile.payout, made.payout);
        assertEq(profile.stake, 2 * SEAT + 1);
        assertEq(profile.seats, 2);
        assertEq(profile.executionClass, exact);
        assertEq(abi.encode(profile.segments), abi.encode(made.segments));
        assertEq(profile.places[0], 3);
        Entry memory entry = entryOf(newcomer, group());
        assertEq(entry.seats, 2);
        assertEq(entry.settled, 0);
        assertEq(entry.since, vm.getBlockNumber());
        assertEq(registry.askAt(group(), newcomer, vm.getBlockNumber()).prompt, ASK);
        assertEq(registry.sizeAt(group(), vm.getBlockNumber() - 1), 3);
    }

    function test_RegistersAScheduler() public view {
        Profile memory profile = lens.profileOf(scheduler);
        assertEq(uint8(profile.role), uint8(Role.Scheduler));
        assertEq(profile.payout, ownerOf(scheduler));
        assertEq(profile.stake, SCHEDULER_STAKE);
        (uint256 x, uint256 y) = registry.vrfKeyOf(scheduler);
        (uint256 expectedX, uint256 expectedY) = P256Prover.publicKey(VRF_SECRET);
        assertEq(x, expectedX);
        assertEq(y, expectedY);
        assertEq(registry.payoutOf(client), client);
    }

    function test_RefusesForeignConsents() public {
        bytes memory consent = consentOf(NEW_KEY, stranger);
        vm.deal(owner, 10 ether);
        vm.prank(owner);
        vm.expectPartialRevert(IRegistry.InvalidConsent.selector);
        registry.registerNode{value: SEAT}(registration(SEAT), consent);
        vm.chainId(999);
        consent = consentOf(NEW_KEY, owner);
        vm.chainId(31_337);
        vm.prank(owner);
        vm.expectPartialRevert(IRegistry.InvalidConsent.selector);
        registry.registerNode{value: SEAT}(registration(SEAT), consent);
    }

    /// @dev The other root of a signature is no second signature, and 64 bytes are none.
    function test_RefusesMalleatedConsents() public {
        bytes memory consent = consentOf(NEW_KEY, owner);
        (bytes32 r, bytes32 s) = (bytes32(0), bytes32(0));
        assembly ("memory-safe") {
            r := mload(add(consent, 32))
            s := mload(add(consent, 64))
        }
        uint256 order = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;
        bytes32 high = bytes32(order - uint256(s));
        bytes memory other = abi.encodePacked(r, high, consent[64] == bytes1(uint8(27)) ? uint8(28) : uint8(27));
        NodeRegistration memory made = registration(SEAT);
        bytes memory nobodys = abi.encodeWithSelector(IRegistry.InvalidConsent.selector, made.operator, address(0));
        refused(made, other, nobodys);
        refused(made, abi.encodePacked(r, s), nobodys);
    }

    function test_RefusesEndpointsThatAreNotHttpsOrPlain() public {
        string[4] memory endpoints = ["", "https://", "http://node.example", "HTTPS://node.example"];
        for (uint256 i = 0; i < 4; ++i) {
            NodeRegistration memory made = registration(SEAT);
            made.endpoint = endpoints[i];
            refused(made, abi.encodeWithSelector(PlainText.EndpointNotHttps.selector, endpoints[i]));
        }
        NodeRegistration memory plain = registration(SEAT);
        plain.endpoint = string(abi.encodePacked("https://", hex"7f"));
        refused(plain, abi.encodeWithSelector(PlainText.TextNotPlain.selector, 9));
        plain.endpoint = string(abi.encodePacked("https://", new bytes(248)));
        refused(plain, abi.encodeWithSelector(PlainText.TextNotPlain.selector, 256));
        vm.prank(exactNode(0));
        vm.expectRevert(abi.encodeWithSelector(PlainText.TextNotPlain.selector, 256));
        registry.setEndpoint(exactNode(0), plain.endpoint, 0);
    }

    function test_RefusesTooLittleStake() public {
        refused(registration(SEAT - 1), abi.encodeWithSelector(IRegistry.StakeTooLow.selector, SEAT - 1, SEAT));
        SchedulerRegistration memory made = schedulerRegistration(newcomer, 9);
        made.stake = SCHEDULER_STAKE - 1;
        bytes memory consent = consentOf(NEW_KEY, owner);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeTooLow.selector, made.stake, SCHEDULER_STAKE));
        registry.registerScheduler{value: made.stake}(made, consent);
        NodeRegistration memory rich = registration(type(uint96).max);
        vm.prank(owner);
        vm.expectPartialRevert(IBank.WrongValue.selector);
        registry.registerNode{value: 1 ether}(rich, consent);
    }

    function test_RefusesSlicesThatAreNone() public {
        uint8[2][4] memory slices = [[1, 1], [2, 1], [0, LAYERS + 1], [255, 255]];
        for (uint256 i = 0; i < 4; ++i) {
            NodeRegistration memory made = registration(SEAT);
            (made.first, made.end) = (slices[i][0], slices[i][1]);
            refused(
                made, abi.encodeWithSelector(IRegistry.InvalidSlice.selector, made.first, made.end, uint16(LAYERS))
            );
        }
    }

    function test_RefusesSegmentsThatAreNone() public {
        NodeRegistration memory made = registration(SEAT);
        (made.first, made.end) = (1, 3);
        uint8[2][4] memory segments = [[0, 3], [1, 4], [2, 2], [3, 1]];
        for (uint256 i = 0; i < 4; ++i) {
            made.segments[0] = Segment(segments[i][0], segments[i][1]);
            refused(
                made,
                abi.encodeWithSelector(
                    IRegistry.SegmentOutsideSlice.selector, segments[i][0], segments[i][1], uint8(1), uint8(3)
                )
            );
        }
        made = registration(SEAT);
        made.segments = new Segment[](0);
        refused(made, abi.encodeWithSelector(IRegistry.InvalidSegmentCount.selector, 0, 1));
        made.segments = new Segment[](3);
        made.asks = new Ask[](3);
        refused(made, abi.encodeWithSelector(IRegistry.InvalidSegmentCount.selector, 3, 3));
        made.segments = new Segment[](2);
        refused(made, abi.encodeWithSelector(IRegistry.InvalidSegmentCount.selector, 2, 3));
        made.asks = new Ask[](2);
        (made.segments[0], made.segments[1]) = (Segment(0, 2), Segment(0, 2));
        refused(made, abi.encodeWithSelector(IRegistry.SegmentTwice.selector, uint8(0), uint8(2)));
    }

    function test_AnOperatorIsRegisteredOnce() public {
        NodeRegistration memory made = nodeRegistration(exactNode(0), exact, false, SEAT);
        refused(made, abi.encodeWithSelector(IRegistry.OperatorKnown.selector, exactNode(0)));
        made = nodeRegistration(address(0), exact, false, SEAT);
        refused(made, abi.encodeWithSelector(IBank.InvalidPot.selector, PotKind.Stake, bytes32(0)));
        made = registration(SEAT);
        made.executionClass = "unknown";
        refused(made, abi.encodeWithSelector(IRegistry.UnknownClass.selector, bytes32("unknown")));
    }

    function test_RefusesAVrfKeyThatIsNoPoint() public {
        SchedulerRegistration memory made = schedulerRegistration(newcomer, 9);
        ++made.vrfY;
        bytes memory consent = consentOf(NEW_KEY, owner);
        vm.deal(owner, 10 ether);
        vm.prank(owner);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.InvalidVrfKey.selector, made.vrfX, made.vrfY));
        registry.registerScheduler{value: made.stake}(made, consent);
    }

    function test_GasOfARegistration() public {
        bytes memory data = abi.encodeCall(registry.registerNode, (registration(SEAT), consentOf(NEW_KEY, owner)));
        vm.deal(owner, 10 ether);
        uint256 gas = costOf(owner, SEAT, data);
        emit log_named_uint("registering a node, all in", gas);
        assertLe(gas, 220_000);
    }

    /// @dev What a transaction with this call costs: its execution with cold storage, its calldata and the base.
    function costOf(address from, uint256 value, bytes memory data) private returns (uint256 gas) {
        for (uint256 i = 0; i < data.length; ++i) {
            gas += data[i] == 0 ? 4 : 16;
        }
        Coolness(address(vm)).cool(address(registry));
        Coolness(address(vm)).cool(address(bank));
        vm.prank(from);
        uint256 start = gasleft();
        (bool success,) = address(registry).call{value: value}(data);
        // Less what a call costs and a transaction does not: 2,600 for a cold address, and 6,700 net for value.
        gas += start - gasleft() + 21_000 - 2600 - (value == 0 ? 0 : 6700);
        assertTrue(success);
    }

    // ---- who may do what

    function test_OnlyTheOwnerNamesThePayout() public {
        address node = exactNode(0);
        vm.prank(node);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotOwner.selector, node, node));
        registry.setPayout(node, stranger);
        vm.prank(ownerOf(node));
        vm.expectEmit(address(registry));
        emit IRegistry.PayoutChanged(node, ownerOf(node), stranger);
        registry.setPayout(node, stranger);
        assertEq(registry.payoutOf(node), stranger);
        vm.prank(ownerOf(node));
        vm.expectRevert(IRegistry.ZeroAddress.selector);
        registry.setPayout(node, address(0));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownOperator.selector, stranger));
        registry.setPayout(stranger, stranger);
    }

    function test_StrangersChangeNothing() public {
        address node = exactNode(0);
        bytes[4] memory calls = [
            abi.encodeCall(registry.setAsk, (node, 0, LAYERS, Ask(1, 1, 1))),
            abi.encodeCall(registry.changeSlice, (node, 0, LAYERS, new Segment[](1), new Ask[](1))),
            abi.encodeCall(registry.setEndpoint, (node, "https://node.example", 0)),
            abi.encodeCall(registry.deregister, (node))
        ];
        for (uint256 i = 0; i < 4; ++i) {
            vm.prank(stranger);
            (bool success, bytes memory failure) = address(registry).call(calls[i]);
            assertFalse(success);
            assertEq(failure, abi.encodeWithSelector(IRegistry.NotOwnerOrOperator.selector, node, stranger));
        }
        vm.startPrank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, stranger));
        registry.suspend(node, CASE);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, stranger));
        registry.restore(node, CASE);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotAuthorised.selector, stranger));
        registry.convict(node, Fault.FalseResult, CASE, 1);
        vm.stopPrank();
    }

    function test_AnAskIsInForceFromItsBlock() public {
        uint256 before = last();
        vm.prank(ownerOf(exactNode(0)));
        registry.setAsk(exactNode(0), 0, LAYERS, Ask(1, 2, 3));
        pass(1);
        assertEq(registry.askAt(group(), exactNode(0), before).prompt, ASK);
        assertEq(abi.encode(registry.askAt(group(), exactNode(0), last())), abi.encode(Ask(1, 2, 3)));
        vm.prank(exactNode(0));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotInSegment.selector, exactNode(0), uint8(0), uint8(0)));
        registry.setAsk(exactNode(0), 0, 0, Ask(1, 2, 3));
    }

    // ---- seats

    function test_GiftsBringNoSeats() public {
        NodeRegistration memory made = registration(2 * SEAT - 1);
        registerNode(NEW_KEY, owner, made);
        pass(parameters().seasoning - 1);
        vm.prank(stranger);
        registry.topUp{value: 1}(newcomer, 1);
        Entry memory entry = entryOf(newcomer, group());
        assertEq(entry.seats, 1);
        assertEq(entry.since, last() + 2 - parameters().seasoning);
        vm.deal(owner, 1);
        vm.prank(owner);
        registry.topUp{value: 1}(newcomer, 1);
        assertEq(entryOf(newcomer, group()).seats, 2);
    }

    function test_AddedSeatsSeasonAndTheOldOnesStaySeasoned() public {
        address node = exactNode(0);
        slash(node, 2 * SEAT);
        registry.evict(node);
        pass(1);
        vm.deal(node, SEAT);
        vm.prank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        Member[] memory page;
        pass(parameters().seasoning);
        (, page) = lens.members(exact, 0, LAYERS, last(), 0, 1);
        assertEq(page[0].entry.seats, 3);
        assertEq(page[0].seasoned, 2);
        (, page) = lens.members(exact, 0, LAYERS, vm.getBlockNumber(), 0, 1);
        assertEq(page[0].seasoned, 3);
    }

    function test_LocksDoNotChangeSeats() public {
        address node = exactNode(0);
        move(PotKind.Stake, idOf(node), PotKind.Locked, idOf(node), 3 * SEAT);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NothingToEvict.selector, node));
        registry.evict(node);
        move(PotKind.Locked, idOf(node), PotKind.Burnt, 0, SEAT);
        registry.evict(node);
        assertEq(entryOf(node, group()).seats, 3);
    }

    function test_SlicesChangeOncePerReferenceAge() public {
        address node = exactNode(0);
        NodeRegistration memory halves = nodeRegistration(node, exact, true, SEAT);
        vm.prank(node);
        registry.changeSlice(node, 0, LAYERS, halves.segments, halves.asks);
        assertEq(registry.sizeAt(group(), vm.getBlockNumber()), 2);
        assertEq(registry.sizeAt(group(), last()), 3);
        uint256 kept = vm.getBlockNumber() + parameters().referenceAge;
        pass(parameters().referenceAge - 1);
        vm.prank(node);
        vm.expectRevert(
            abi.encodeWithSelector(IRegistry.SliceChangedLately.selector, kept, vm.getBlockNumber())
        );
        registry.changeSlice(node, 0, LAYERS, halves.segments, halves.asks);
        pass(1);
        // A group that stays keeps its seasoning; a new one begins.
        NodeRegistration memory mixed = nodeRegistration(node, exact, true, SEAT);
        mixed.segments[1] = Segment(1, 3);
        uint256 joined = entryOf(node, registry.groupId(exact, 0, HALF)).since;
        vm.prank(node);
        registry.changeSlice(node, 0, LAYERS, mixed.segments, mixed.asks);
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).since, joined);
        assertEq(entryOf(node, registry.groupId(exact, 1, 3)).since, vm.getBlockNumber());
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).operator, address(0));
        vm.prank(scheduler);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.WrongRole.selector, scheduler, Role.Scheduler));
        registry.changeSlice(scheduler, 0, LAYERS, mixed.segments, mixed.asks);
    }

    // ---- suspension

    function test_ASuspensionTakesAllSeatsAndGivesThemBackSeasoned() public {
        address node = halfNode(0);
        Entry memory before = entryOf(node, registry.groupId(exact, 0, HALF));
        vm.startPrank(address(court));
        assertTrue(registry.suspend(node, CASE));
        assertFalse(registry.suspend(node, keccak256("another")));
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).seats, 0);
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).seats, 0);
        pass(10);
        registry.restore(node, keccak256("another"));
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).seats, 0);
        registry.restore(node, CASE);
        vm.stopPrank();
        Entry memory restored = entryOf(node, registry.groupId(exact, 0, HALF));
        assertEq(restored.seats, before.seats);
        assertEq(restored.since, before.since);
        (bytes32 by, uint40 blockNumber) = registry.suspensionOf(node);
        assertEq(by, 0);
        assertEq(blockNumber, vm.getBlockNumber() - 10);
    }

    function test_OneCaseADaySuspends() public {
        vm.startPrank(address(court));
        assertTrue(registry.suspend(exactNode(0), CASE));
        registry.restore(exactNode(0), CASE);
        pass(parameters().suspensionPause - 1);
        assertFalse(registry.suspend(exactNode(0), CASE));
        pass(1);
        assertTrue(registry.suspend(exactNode(0), CASE));
        vm.stopPrank();
    }

    /// @dev What it served is worth nothing, and stays so: it comes back under another key.
    function test_WhoHasNoPenaltyLeftTakesNoStake() public {
        address node = exactNode(0);
        slash(node, NODE_STAKE - PENALTY);
        registry.topUp{value: 1}(node, 1);
        slash(node, 2);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeTooLow.selector, PENALTY - 1, PENALTY));
        registry.topUp{value: SEAT}(node, SEAT);
        assertEq(stakeOf(node), PENALTY - 1, "what was sent came back");
        slash(scheduler, SCHEDULER_STAKE);
        registry.topUp{value: 1}(scheduler, 1);
        assertEq(stakeOf(scheduler), 1, "a scheduler has no class");
    }

    /// @dev Neither stake that is added nor another slice makes young seats old during a suspension, or ends it.
    function test_ASuspensionIsNoWayRoundTheSeasoning() public {
        NodeRegistration memory made = registration(SEAT);
        registerNode(NEW_KEY, owner, made);
        pass(parameters().seasoning);
        vm.prank(address(court));
        registry.suspend(newcomer, CASE);
        vm.deal(owner, 3 * SEAT);
        vm.startPrank(owner);
        registry.topUp{value: 3 * SEAT}(newcomer, 3 * SEAT);
        registry.changeSlice(newcomer, 0, LAYERS, made.segments, made.asks);
        vm.stopPrank();
        assertEq(entryOf(newcomer, group()).seats, 0);
        pass(10);
        vm.prank(address(court));
        registry.restore(newcomer, CASE);
        (, Member[] memory page) = lens.members(exact, 0, LAYERS, vm.getBlockNumber(), 3, 1);
        assertEq(page[0].entry.seats, 4);
        assertEq(page[0].seasoned, 1);
    }

    function test_WhoLostItsStakeWhileSuspendedDoesNotComeBack() public {
        address node = exactNode(0);
        vm.prank(address(court));
        registry.suspend(node, CASE);
        slash(node, NODE_STAKE - PENALTY);
        vm.startPrank(address(court));
        registry.convict(node, Fault.FalseResult, CASE, last());
        registry.restore(node, CASE);
        vm.stopPrank();
        assertEq(entryOf(node, group()).operator, address(0));
        // It comes back by its owner's stake, under the rules of a newcomer.
        vm.deal(node, SEAT);
        vm.startPrank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        assertEq(entryOf(node, group()).seats, 1);
        assertEq(entryOf(node, group()).since, vm.getBlockNumber());
    }

    function test_WhoRejoinedWithoutStakeIsStillEvicted() public {
        address node = exactNode(0);
        vm.prank(address(court));
        registry.suspend(node, CASE);
        slash(node, NODE_STAKE - PENALTY);
        registry.evict(node);
        vm.deal(node, SEAT);
        vm.startPrank(node);
        registry.topUp{value: SEAT}(node, SEAT);
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        vm.stopPrank();
        assertEq(entryOf(node, group()).seats, 0);
        slash(node, SEAT);
        registry.evict(node);
        assertEq(entryOf(node, group()).operator, address(0));
    }

    // ---- convictions

    function test_AConvictionEvictsInTheSameCall() public {
        address node = halfNode(0);
        slash(node, NODE_STAKE - SEAT + 1);
        vm.expectEmit(address(registry));
        emit IRegistry.Convicted(
            node, Fault.TwoResults, CASE, uint64(last() - parameters().lag), last() + 1, 0
        );
        vm.prank(address(evidence));
        registry.convict(node, Fault.TwoResults, CASE, last());
        assertEq(entryOf(node, registry.groupId(exact, 0, HALF)).operator, address(0));
        assertEq(entryOf(node, registry.groupId(exact, HALF, LAYERS)).operator, address(0));
        assertEq(registry.sizeAt(registry.groupId(exact, 0, HALF), vm.getBlockNumber()), 2);
        assertEq(registry.sizeAt(registry.groupId(exact, 0, HALF), last()), 3);
        assertEq(lens.profileOf(node).segments.length, 0);
    }

    function test_GasOfAConvictionFromTwoGroups() public {
        slash(halfNode(0), NODE_STAKE);
        Coolness(address(vm)).cool(address(registry));
        Coolness(address(vm)).cool(address(bank));
        vm.prank(address(evidence));
        uint256 start = gasleft();
        registry.convict(halfNode(0), Fault.TwoResults, CASE, last());
        uint256 gas = start - gasleft();
        emit log_named_uint("conviction with eviction from two groups", gas);
        assertLe(gas, 150_000);
    }

    function test_APartialSlashTakesTheNewestSeats() public {
        slash(exactNode(1), SEAT + 1);
        vm.prank(address(summons));
        registry.convict(exactNode(1), Fault.Unanswered, CASE, last());
        assertEq(entryOf(exactNode(1), group()).seats, 2);
    }

    function test_ConvictionsVoidWhatWasNotAcknowledged() public {
        pass(200);
        uint64 offence = last();
        pass(5);
        assertFalse(registry.isVoidByAny(scheduler, offence));
        vm.prank(address(summons));
        registry.convict(scheduler, Fault.Unanswered, CASE, offence);
        assertFalse(registry.isVoidByAny(scheduler, offence - parameters().lag - 1));
        assertTrue(registry.isVoidByAny(scheduler, offence - parameters().lag));
        assertTrue(registry.isVoidByAny(scheduler, uint64(vm.getBlockNumber())));
        assertFalse(registry.isVoidByAny(scheduler, uint64(vm.getBlockNumber() + 1)));
        // One may convict oneself as often as one likes: nothing becomes payable again.
        for (uint256 i = 0; i < 10; ++i) {
            pass(100);
            vm.prank(address(evidence));
            registry.convict(scheduler, Fault.TwoDraws, bytes32(i), last());
        }
        assertTrue(registry.isVoidByAny(scheduler, offence));
        assertEq(registry.convictionCount(scheduler), 11);
        vm.prank(address(evidence));
        registry.convict(scheduler, Fault.TwoDraws, CASE, 3);
        assertTrue(registry.isVoidByAny(scheduler, 0));
        address node = exactNode(0);
        vm.prank(address(evidence));
        registry.convict(node, Fault.TwoRows, CASE, type(uint64).max);
        assertTrue(registry.isVoidByAny(node, uint64(vm.getBlockNumber()) - parameters().lag));
        vm.prank(address(evidence));
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownOperator.selector, stranger));
        registry.convict(stranger, Fault.TwoDraws, CASE, 3);
    }

    // ---- exit

    function test_StakeLeavesAfterUnbondingWithNothingLocked() public {
        address node = exactNode(0);
        vm.prank(ownerOf(node));
        registry.deregister(node);
        uint40 exitBlock = uint40(vm.getBlockNumber() + parameters().unbonding);
        assertEq(lens.profileOf(node).exitBlock, exitBlock);
        assertEq(entryOf(node, group()).operator, address(0));
        move(PotKind.Stake, idOf(node), PotKind.Locked, idOf(node), 1);
        pass(parameters().unbonding);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StillUnbonding.selector, exitBlock, exitBlock));
        registry.withdrawStake(node);
        pass(1);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.StakeLocked.selector, node, 1));
        registry.withdrawStake(node);
        move(PotKind.Locked, idOf(node), PotKind.Stake, idOf(node), 1);
        registry.withdrawStake(node);
        assertEq(creditOf(node), NODE_STAKE);
        bank.withdraw(node);
        assertEq(ownerOf(node).balance, NODE_STAKE);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.NotExiting.selector, exactNode(1)));
        registry.withdrawStake(exactNode(1));
    }

    function test_WhoLeavesIsSlashableAndDoesNotComeBack() public {
        address node = exactNode(0);
        vm.startPrank(node);
        registry.deregister(node);
        uint40 exitBlock = lens.profileOf(node).exitBlock;
        NodeRegistration memory made = nodeRegistration(node, exact, false, SEAT);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.changeSlice(node, 0, LAYERS, made.segments, made.asks);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.deregister(node);
        vm.stopPrank();
        vm.prank(stranger);
        vm.expectRevert(abi.encodeWithSelector(IRegistry.AlreadyExiting.selector, node, exitBlock));
        registry.topUp{value: 1}(node, 1);
        pass(parameters().unbonding);
        slash(node, SEAT);
        vm.prank(address(court));
        registry.convict(node, Fault.FalseResult, CASE, last());
        assertEq(registry.convictionCount(node), 1);
    }

    function test_JoiningAndLeavingInOneBlockLeavesNothing() public {
        uint256 size = registry.sizeAt(group(), vm.getBlockNumber());
        registerNode(NEW_KEY, owner, registration(SEAT));
        vm.prank(owner);
        registry.deregister(newcomer);
        registerNode(NEW_KEY + 1, owner, nodeRegistration(vm.addr(NEW_KEY + 1), exact, false, SEAT));
        pass(1);
        assertEq(registry.sizeAt(group(), last()), size + 1);
        assertEq(registry.entryAt(group(), size, last()).operator, vm.addr(NEW_KEY + 1));
        assertEq(registry.sizeAt(group(), last() - 1), size);
    }
}

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface Coolness {
    function cool(address target) external;
}
