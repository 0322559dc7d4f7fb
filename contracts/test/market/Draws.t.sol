// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask, DrawRequest, Parameters} from "../../market/interfaces/MarketTypes.sol";
import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {History} from "../../market/libraries/History.sol";
import {MarketTest} from "./support/MarketTest.sol";
import {WeightsMock} from "./support/WeightsMock.sol";

/// @dev A cheat code that the pinned forge-std does not declare yet.
interface Coolness {
    function cool(address target) external;
}

/// @title Who is drawn, how often, and at what cost
contract DrawsTest is MarketTest {
    uint256 private constant NEW_KEY = 0x4e3000;
    WeightsMock private weights = new WeightsMock();

    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        chosen.weights = address(weights);
    }

    function wholeNodes() internal pure override returns (uint256) {
        return 10;
    }

    function request(uint256 seed, uint16 count) private view returns (DrawRequest memory made) {
        (made.executionClass, made.first, made.end) = (exact, 0, LAYERS);
        (made.blockNumber, made.seed, made.count) = (last(), bytes32(seed), count);
    }

    function group() private view returns (bytes32) {
        return registry.groupId(exact, 0, LAYERS);
    }

    /// @dev How often an operator is drawn in `draws` draws of 15 seats.
    function share(address operator, uint256 draws) private view returns (uint256 times) {
        for (uint256 i = 0; i < draws; ++i) {
            address[] memory drawn = registry.draw(request(i, 15));
            for (uint256 j = 0; j < drawn.length; ++j) {
                if (drawn[j] == operator) ++times;
            }
        }
    }

    function addNode(uint256 number, address owner, uint96 stake) private returns (address operator) {
        operator = vm.addr(NEW_KEY + number);
        registerNode(NEW_KEY + number, owner, nodeRegistration(operator, exact, false, stake));
    }

    // ---- chances

    function test_SeatsAreDrawnInProportion() public {
        address small = addNode(0, makeAddr("owner"), SEAT);
        pass(1);
        // 41 seats, of which 4 and 1: 1,500 draws have means 146 and 37 with deviations 12 and 6.
        assertApproxEqAbs(share(exactNode(3), 100), 146, 50);
        assertApproxEqAbs(share(small, 100), 37, 25);
    }

    /// @dev Four honest owners with 80 % of the stake, one with 20 % behind twenty addresses, or behind five.
    function test_TwentyAddressesOfOneOwnerGainNothing() public {
        address one = makeAddr("one");
        uint256 before = vm.snapshotState();
        uint256[2] memory times;
        for (uint256 way = 0; way < 2; ++way) {
            uint256 count = way == 0 ? 5 : 20;
            for (uint256 i = 0; i < count; ++i) {
                addNode(i, one, way == 0 ? 4 * SEAT : SEAT);
            }
            pass(1);
            for (uint256 i = 0; i < 60; ++i) {
                address[] memory drawn = registry.draw(request(i, 15));
                for (uint256 j = 0; j < drawn.length; ++j) {
                    if (registry.ownerOf(drawn[j]) == one) ++times[way];
                }
            }
            if (way == 0) {
                uint256 five = times[0];
                vm.revertToState(before);
                times[0] = five;
            }
        }
        // A third of 900 seats, with a deviation of 14.
        assertApproxEqAbs(times[0], 300, 60);
        assertApproxEqAbs(times[1], 300, 60);
    }

    function test_WeightsLowerWhatSeatsAreWorth() public {
        weights.set(exactNode(0), 2500);
        weights.set(exactNode(1), 0);
        // More than everything counts as everything.
        weights.set(exactNode(2), 1e9);
        assertApproxEqAbs(share(exactNode(0), 60), 27, 22);
        assertEq(share(exactNode(1), 60), 0);
        assertApproxEqAbs(share(exactNode(2), 60), 109, 45);
    }

    // ---- who is not drawn

    function test_ExcludedOwnersAreNotDrawn() public {
        DrawRequest memory asked = request(1, 15);
        asked.excluded = new address[](9);
        for (uint256 i = 0; i < 9; ++i) {
            asked.excluded[i] = ownerOf(exactNode(i));
        }
        address[] memory drawn = registry.draw(asked);
        for (uint256 i = 0; i < 15; ++i) {
            assertEq(drawn[i], exactNode(9));
        }
    }

    function test_CandidatesAreDifferent() public view {
        DrawRequest memory asked = request(1, 10);
        (asked.distinct, asked.bound) = (true, Ask(ASK, ASK, ASK));
        assertEq(distinct(registry.draw(asked)).length, 10);
        assertLt(distinct(registry.draw(request(1, 15))).length, 11);
    }

    function test_WhoAsksMoreIsPassedOver() public {
        for (uint256 i = 0; i < 9; ++i) {
            Ask memory dear = Ask(ASK, ASK, ASK);
            if (i % 3 == 0) dear.prompt = ASK + 1;
            if (i % 3 == 1) dear.cached = ASK + 1;
            if (i % 3 == 2) dear.written = ASK + 1;
            vm.prank(exactNode(i));
            registry.setAsk(exactNode(i), 0, LAYERS, dear);
        }
        DrawRequest memory asked = request(1, 1);
        (asked.distinct, asked.bound) = (true, Ask(ASK, ASK, ASK));
        // The asks of the block before still count there, and need hints.
        (address[] memory before, bytes memory hints) = lens.draw(asked);
        assertEq(hints.length, before[0] == exactNode(9) ? 0 : 4);
        pass(1);
        for (uint256 seed = 0; seed < 5; ++seed) {
            asked.seed = bytes32(seed);
            asked.blockNumber = last();
            assertEq(registry.draw(asked)[0], exactNode(9));
        }
        asked.count = 2;
        vm.expectRevert(abi.encodeWithSelector(IRegistry.DrawExhausted.selector, group(), 1, 2));
        registry.draw(asked);
    }

    /// @dev A price that rounds to nothing does not make everybody work for nothing.
    function test_ABoundOfZeroIsABound() public {
        DrawRequest memory asked = request(1, 1);
        asked.distinct = true;
        vm.expectRevert(abi.encodeWithSelector(IRegistry.DrawExhausted.selector, group(), 0, 1));
        registry.draw(asked);
        vm.prank(exactNode(4));
        registry.setAsk(exactNode(4), 0, LAYERS, Ask(0, 0, 0));
        pass(1);
        asked.blockNumber = last();
        assertEq(registry.draw(asked)[0], exactNode(4));
    }

    function test_YoungSeatsInferButDoNotCheck() public {
        addNode(0, makeAddr("owner"), NODE_STAKE);
        pass(parameters().seasoning - 1);
        address young = vm.addr(NEW_KEY);
        assertGt(share(young, 20), 0);
        DrawRequest memory asked = request(0, 300);
        asked.seasoned = true;
        address[] memory drawn = registry.draw(asked);
        for (uint256 i = 0; i < drawn.length; ++i) {
            assertTrue(drawn[i] != young);
        }
        pass(2);
        asked.blockNumber = last();
        drawn = registry.draw(asked);
        uint256 times;
        for (uint256 i = 0; i < drawn.length; ++i) {
            if (drawn[i] == young) ++times;
        }
        assertGt(times, 0);
    }

    /// @dev Whoever joins after the results cannot judge them, nor can it displace anybody by joining or leaving.
    function test_JoiningAfterwardsChangesNothing() public {
        DrawRequest memory asked = request(7, 15);
        address[] memory before = registry.draw(asked);
        for (uint256 i = 0; i < 30; ++i) {
            addNode(i, makeAddr("late"), NODE_STAKE);
        }
        pass(3);
        for (uint256 i = 0; i < 8; ++i) {
            vm.prank(exactNode(i));
            registry.deregister(exactNode(i));
        }
        slash(exactNode(9), NODE_STAKE);
        registry.evict(exactNode(9));
        pass(1);
        (address[] memory drawn, bytes memory hints) = lens.draw(asked);
        assertEq(abi.encode(drawn), abi.encode(before));
        asked.hints = hints;
        assertEq(abi.encode(registry.draw(asked)), abi.encode(before));
    }

    // ---- hints

    function test_RefusesFalseHints() public {
        DrawRequest memory asked = request(7, 3);
        addNode(0, makeAddr("late"), NODE_STAKE);
        pass(5);
        for (uint256 i = 0; i < 10; ++i) {
            slash(exactNode(i), SEAT);
            registry.evict(exactNode(i));
        }
        uint256 changed = vm.getBlockNumber();
        pass(5);
        (, bytes memory hints) = lens.draw(asked);
        assertEq(hints.length, 12);
        assertEq(uint32(bytes4(hints)), changed);
        asked.hints = hints;
        registry.draw(asked);
        refusedHints(asked, "", 0, 0);
        refusedHints(asked, bytes.concat(bytes8(bytes(hints))), 8, 0);
        refusedHints(asked, bytes.concat(bytes4(uint32(changed + 1)), hints), 4, changed + 1);
        refusedHints(asked, bytes.concat(bytes4(uint32(asked.blockNumber)), hints), 4, asked.blockNumber);
    }

    /// @dev A hint at an older word than the one in force is refused, too.
    function test_RefusesTheHintOfAnOlderWord() public {
        uint256 first = vm.getBlockNumber();
        for (uint256 change = 0; change < 3; ++change) {
            vm.deal(stranger, 100 ether);
            for (uint256 i = 0; i < 10; ++i) {
                slash(exactNode(i), SEAT);
                registry.evict(exactNode(i));
            }
            pass(10);
        }
        DrawRequest memory asked = request(3, 1);
        asked.blockNumber = uint64(first + 15);
        (, bytes memory hints) = lens.draw(asked);
        assertEq(uint32(bytes4(hints)), first + 20);
        refusedHints(asked, bytes.concat(bytes4(uint32(first)), hints), 4, first);
        refusedHints(asked, bytes.concat(bytes4(uint32(first + 10)), hints), 4, first + 10);
    }

    function refusedHints(DrawRequest memory asked, bytes memory hints, uint256 used, uint256 hint) private {
        asked.hints = hints;
        vm.expectRevert(abi.encodeWithSelector(History.WrongHint.selector, used, hint, asked.blockNumber));
        registry.draw(asked);
    }

    // ---- limits

    function test_RefusesBlocksThatAreNotPast() public {
        DrawRequest memory asked = request(0, 1);
        for (uint64 i = 1; i < 3; ++i) {
            asked.blockNumber = last() + i;
            vm.expectRevert(
                abi.encodeWithSelector(IRegistry.BlockNotPast.selector, asked.blockNumber, vm.getBlockNumber())
            );
            registry.draw(asked);
        }
        asked.blockNumber = type(uint64).max;
        vm.expectPartialRevert(IRegistry.BlockNotPast.selector);
        registry.draw(asked);
    }

    function test_RefusesEmptyGroupsAndUnknownClasses() public {
        DrawRequest memory asked = request(0, 1);
        asked.end = HALF;
        vm.expectRevert(
            abi.encodeWithSelector(IRegistry.GroupEmpty.selector, registry.groupId(exact, 0, HALF), asked.blockNumber)
        );
        registry.draw(asked);
        asked.executionClass = "unknown";
        vm.expectRevert(abi.encodeWithSelector(IRegistry.UnknownClass.selector, bytes32("unknown")));
        registry.draw(asked);
        asked = request(0, 1);
        asked.blockNumber = uint64(START - 1);
        (bool drawn, bytes memory failure) =
            address(registry).staticcall(abi.encodeCall(registry.search, (asked)));
        assertFalse(drawn);
        assertEq(bytes4(failure), IRegistry.GroupEmpty.selector);
    }

    /// @dev Many small or young members can make a draw dear, but not impossible.
    function test_ManySmallMembersDoNotStopACourt() public {
        for (uint256 place = 10; place < 200; ++place) {
            storeEntry(place, address(uint160(place)), 0);
        }
        storeSize(200);
        DrawRequest memory asked = request(1, 15);
        assertEq(registry.draw(asked).length, 15);
    }

    // ---- cost

    function test_CostDoesNotGrowWithMembersOrHistory() public {
        uint256 few = cost();
        uint256 state = vm.snapshotState();
        for (uint256 place = 10; place < 10_000; ++place) {
            storeEntry(place, address(uint160(1e9 + place)), SEAT_CAP);
        }
        storeSize(10_000);
        uint256 many = cost();
        // They go again: what they leave behind is beyond the end, and the first ones have moved and come back.
        storeSize(10);
        for (uint256 i = 0; i < 100; ++i) {
            addNode(i, makeAddr("passing"), NODE_STAKE);
            if (i % 4 == 0) pass(1);
            vm.prank(vm.addr(NEW_KEY + i));
            registry.deregister(vm.addr(NEW_KEY + i));
        }
        pass(1);
        uint256 later = cost();
        emit log_named_uint("draw of 3 verifiers, 10 members", few);
        emit log_named_uint("10,000 members", many);
        emit log_named_uint("10,000 gone", later);
        assertApproxEqRel(many, few, 0.2e18);
        assertApproxEqRel(later, few, 0.2e18);
        vm.revertToState(state);
    }

    /// @dev The mean of some draws of verifiers, each with cold storage.
    function cost() private returns (uint256 gas) {
        for (uint256 i = 0; i < 10; ++i) {
            DrawRequest memory asked = request(i, 3);
            asked.seasoned = true;
            Coolness(address(vm)).cool(address(registry));
            Coolness(address(vm)).cool(address(weights));
            uint256 start = gasleft();
            registry.draw(asked);
            gas += (start - gasleft()) / 10;
        }
    }

    /// @dev The word of a place is the last that `entryAt` reads; who has just joined stands there for the word's form.
    function storeEntry(uint256 place, address operator, uint256 seats) private {
        vm.store(
            address(registry),
            keccak256(abi.encode(place, keccak256(abi.encode(group(), entriesSlot())))),
            bytes32(uint256(uint160(operator)) << 96 | seats << 80 | START << 32 | START)
        );
    }

    function storeSize(uint256 size) private {
        vm.record();
        registry.sizeAt(group(), type(uint32).max);
        (bytes32[] memory reads,) = vm.accesses(address(registry));
        vm.store(address(registry), reads[reads.length - 1], bytes32(size << 32 | START));
    }

    /// @dev Where the mapping of entries is: found by what a look-up at place 0 reads.
    function entriesSlot() private returns (uint256 slot) {
        if (foundSlot != 0) return foundSlot;
        vm.record();
        registry.entryAt(group(), 0, type(uint32).max);
        (bytes32[] memory reads,) = vm.accesses(address(registry));
        bytes32 wanted = reads[reads.length - 1];
        while (keccak256(abi.encode(uint256(0), keccak256(abi.encode(group(), slot)))) != wanted) ++slot;
        foundSlot = slot;
    }

    uint256 private foundSlot;
}
