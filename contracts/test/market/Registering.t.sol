// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../../market/interfaces/IBank.sol";
import {Profile} from "../../market/interfaces/ILens.sol";
import {
    Ask,
    Entry,
    NodeRegistration,
    PotKind,
    Role,
    SchedulerRegistration,
    Segment
} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {PlainText} from "../../market/libraries/PlainText.sol";
import {P256Prover} from "../support/P256Prover.sol";
import {Coolness, StandingStage} from "./support/StandingStage.sol";

/// @title Who is registered, and who may change what was registered
contract RegisteringTest is StandingStage {
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
}
