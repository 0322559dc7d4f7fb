// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRegistry} from "../../market/interfaces/IRegistry.sol";
import {Ask, DrawRequest, Entry, NodeRegistration, Parameters, Segment} from "../../market/interfaces/MarketTypes.sol";
import {Fault} from "../../market/interfaces/Proceedings.sol";
import {MarketStage} from "./support/MarketStage.sol";

/// @title Groups at any past block, against a model that keeps a copy of every block
/// @notice The model is the rule of MarketTypes.Entry and DrawRequest, said naively: arrays that are copied whole.
contract GroupsTest is MarketStage {
    uint256 private constant OPERATORS = 14;
    uint256 private constant STEPS = 60;
    bytes32 private constant CASE = keccak256("case");

    struct Node {
        bool registered;
        bool left;
        bool suspended;
        uint96 stake;
        uint16 before;
        bool[3] groups;
    }

    Segment[3] private segments;
    mapping(uint256 operator => Node) private nodes;
    mapping(address operator => uint256) private numbers;
    Entry[][3] private groups;
    mapping(uint256 copy => Entry[][3]) private copies;
    uint256[] private copiedAt;
    uint256 private dice;

    function setUp() public override {
        super.setUp();
        segments[0] = Segment(0, LAYERS);
        segments[1] = Segment(0, HALF);
        segments[2] = Segment(HALF, LAYERS);
        for (uint256 i = 0; i < OPERATORS; ++i) {
            numbers[operatorAt(i)] = i;
            keys[operatorAt(i)] = EXACT_KEY + i;
        }
    }

    function parameters() internal view override returns (Parameters memory chosen) {
        chosen = super.parameters();
        (chosen.seasoning, chosen.referenceAge, chosen.suspensionPause) = (7, 3, 5);
    }

    function addParties() internal override {}

    /// @dev Random joins, leaves, top-ups, slashes, convictions, suspensions and changes of slices.
    function testFuzz_EveryPastBlockStaysWhatItWas(uint256 seed) public {
        dice = seed;
        for (uint256 i = 0; i < STEPS; ++i) {
            step(roll(9), roll(OPERATORS));
            copy();
            if (roll(3) > 0) pass(1 + roll(4));
        }
        pass(1);
        for (uint256 i = 0; i < 12; ++i) {
            uint256 blockNumber = START + roll(vm.getBlockNumber() - START);
            checkBlock(blockNumber);
            checkDraw(blockNumber, roll(3));
        }
    }

    // ---- what happens

    function step(uint256 action, uint256 number) private {
        Node storage node = nodes[number];
        if (!node.registered) return join(number);
        if (node.left) return;
        if (action <= 1) topUp(number);
        else if (action == 2) convict(number);
        else if (action == 3) evict(number);
        else if (action == 4) suspend(number);
        else if (action == 5) restore(number);
        else if (action == 6) changeSlice(number);
        else if (action == 7) leave(number);
    }

    function join(uint256 number) private {
        Node storage node = nodes[number];
        node.registered = true;
        node.stake = uint96(SEAT + roll(6 * SEAT));
        bool[3] memory chosen = choose();
        NodeRegistration memory registration = nodeRegistration(operatorAt(number), exact, false, node.stake);
        (registration.segments, registration.asks) = segmentsIn(chosen);
        registerNode(EXACT_KEY + number, vm.addr(ownerKey(EXACT_KEY + number)), registration);
        for (uint256 g = 0; g < 3; ++g) {
            if (chosen[g]) enter(number, g, covered(node.stake));
        }
    }

    function topUp(uint256 number) private {
        uint96 amount = uint96(1 + roll(2 * SEAT));
        vm.deal(operatorAt(number), amount);
        vm.prank(operatorAt(number));
        bool taken = nodes[number].stake >= PENALTY;
        if (!taken) vm.expectPartialRevert(IRegistry.StakeTooLow.selector);
        registry.topUp{value: amount}(operatorAt(number), amount);
        if (!taken) return;
        nodes[number].stake += amount;
        if (!nodes[number].suspended) reseat(number, covered(nodes[number].stake));
    }

    function convict(uint256 number) private {
        uint96 amount = uint96(roll(nodes[number].stake + 1));
        slash(operatorAt(number), amount);
        nodes[number].stake -= amount;
        vm.prank(address(evidence));
        registry.convict(operatorAt(number), Fault.TwoResults, "subject", uint64(vm.getBlockNumber()));
        shrink(number);
    }

    function evict(uint256 number) private {
        uint96 amount = uint96(roll(nodes[number].stake + 1));
        slash(operatorAt(number), amount);
        nodes[number].stake -= amount;
        try registry.evict(operatorAt(number)) {} catch {}
        shrink(number);
    }

    function suspend(uint256 number) private {
        vm.prank(address(court));
        if (!registry.suspend(operatorAt(number), CASE)) return;
        nodes[number].suspended = true;
        nodes[number].before = seatsOf(number);
        reseat(number, 0);
    }

    function restore(uint256 number) private {
        Node storage node = nodes[number];
        vm.prank(address(court));
        registry.restore(operatorAt(number), CASE);
        if (!node.suspended) return;
        node.suspended = false;
        uint16 seats = covered(node.stake);
        if (seats == 0) return quit(number);
        for (uint256 g = 0; g < 3; ++g) {
            if (!node.groups[g]) continue;
            Entry storage entry = groups[g][placeOf(number, g)];
            entry.seats = node.before < seats ? node.before : seats;
        }
        reseat(number, seats);
        node.before = 0;
    }

    function changeSlice(uint256 number) private {
        Node storage node = nodes[number];
        bool[3] memory chosen = choose();
        (Segment[] memory joined, Ask[] memory asks) = segmentsIn(chosen);
        vm.prank(operatorAt(number));
        try registry.changeSlice(operatorAt(number), 0, LAYERS, joined, asks) {}
        catch {
            return;
        }
        (,, uint48 one, uint48 two) = registry.sliceOf(operatorAt(number));
        assertEq((one == 0 ? 0 : 1) + (two == 0 ? 0 : 1), joined.length);
        uint16 seats = node.suspended ? 0 : covered(node.stake);
        for (uint256 g = 0; g < 3; ++g) {
            if (node.groups[g] && !chosen[g]) exit(number, g);
        }
        if (!node.suspended) reseat(number, seats);
        for (uint256 g = 0; g < 3; ++g) {
            if (!node.groups[g] && chosen[g]) enter(number, g, seats);
        }
    }

    function leave(uint256 number) private {
        vm.prank(operatorAt(number));
        registry.deregister(operatorAt(number));
        nodes[number].left = true;
        quit(number);
    }

    // ---- the model

    function covered(uint96 stake) private pure returns (uint16) {
        uint256 seats = stake / SEAT;
        return uint16(seats < SEAT_CAP ? seats : SEAT_CAP);
    }

    function seasoned(Entry memory entry, uint256 blockNumber) private view returns (uint16) {
        if (blockNumber >= entry.since + parameters().seasoning) return entry.seats;
        return entry.settled < entry.seats ? entry.settled : entry.seats;
    }

    function enter(uint256 number, uint256 group, uint16 seats) private {
        nodes[number].groups[group] = true;
        groups[group].push(Entry(operatorAt(number), 0, uint32(vm.getBlockNumber()), seats, 0));
    }

    function exit(uint256 number, uint256 group) private {
        uint256 place = placeOf(number, group);
        groups[group][place] = groups[group][groups[group].length - 1];
        groups[group].pop();
        nodes[number].groups[group] = false;
    }

    function quit(uint256 number) private {
        // In the order of the contract: the first membership first; the groups are different, so that no order matters.
        for (uint256 g = 0; g < 3; ++g) {
            if (nodes[number].groups[g]) exit(number, g);
        }
    }

    function reseat(uint256 number, uint16 seats) private {
        for (uint256 g = 0; g < 3; ++g) {
            if (!nodes[number].groups[g]) continue;
            Entry storage entry = groups[g][placeOf(number, g)];
            if (seats > entry.seats) {
                entry.settled = seasoned(entry, vm.getBlockNumber());
                entry.since = uint32(vm.getBlockNumber());
            }
            entry.seats = seats;
        }
    }

    function shrink(uint256 number) private {
        Node storage node = nodes[number];
        uint16 seats = covered(node.stake);
        if (seats == 0) {
            quit(number);
            if (node.suspended) node.before = 0;
        } else if (node.suspended) {
            if (seats < node.before) node.before = seats;
        } else if (seats < seatsOf(number)) {
            reseat(number, seats);
        }
    }

    function seatsOf(uint256 number) private view returns (uint16) {
        for (uint256 g = 0; g < 3; ++g) {
            if (nodes[number].groups[g]) return groups[g][placeOf(number, g)].seats;
        }
        return 0;
    }

    function placeOf(uint256 number, uint256 group) private view returns (uint256 place) {
        while (groups[group][place].operator != operatorAt(number)) ++place;
    }

    function copy() private {
        uint256 count = copiedAt.length;
        if (count == 0 || copiedAt[count - 1] != vm.getBlockNumber()) {
            copiedAt.push(vm.getBlockNumber());
            ++count;
        }
        copies[count - 1] = groups;
    }

    // ---- comparison

    function copyAt(uint256 blockNumber) private view returns (uint256 index, bool exists) {
        for (uint256 i = copiedAt.length; i > 0; --i) {
            if (copiedAt[i - 1] <= blockNumber) return (i - 1, true);
        }
    }

    function checkBlock(uint256 blockNumber) private view {
        (uint256 index, bool exists) = copyAt(blockNumber);
        for (uint256 g = 0; g < 3; ++g) {
            bytes32 group = registry.groupId(exact, segments[g].first, segments[g].end);
            uint256 size = exists ? copies[index][g].length : 0;
            assertEq(registry.sizeAt(group, blockNumber), size, "size");
            for (uint256 place = 0; place < size; ++place) {
                Entry memory entry = registry.entryAt(group, place, blockNumber);
                Entry memory expected = copies[index][g][place];
                assertLe(entry.fromBlock, blockNumber);
                expected.fromBlock = entry.fromBlock;
                assertEq(abi.encode(entry), abi.encode(expected), "entry");
            }
            assertEq(registry.entryAt(group, size, blockNumber).operator, address(0), "end");
        }
    }

    function checkDraw(uint256 blockNumber, uint256 group) private {
        DrawRequest memory request;
        (request.executionClass, request.first, request.end) = (exact, segments[group].first, segments[group].end);
        (request.blockNumber, request.seed, request.count) = (uint64(blockNumber), bytes32(roll(1e18)), 3);
        request.seasoned = roll(2) == 0;
        request.excluded = new address[](1);
        request.excluded[0] = vm.addr(ownerKey(EXACT_KEY + roll(OPERATORS)));
        (address[] memory expected, bool found) = naiveDraw(request, group);
        if (!found) {
            vm.expectRevert();
            registry.search(request);
            return;
        }
        (address[] memory drawn, bytes memory hints) = lens.draw(request);
        assertEq(abi.encode(drawn), abi.encode(expected), "search");
        request.hints = hints;
        assertEq(abi.encode(registry.draw(request)), abi.encode(expected), "draw");
    }

    function naiveDraw(DrawRequest memory request, uint256 group)
        private
        view
        returns (address[] memory drawn, bool enough)
    {
        (uint256 index, bool exists) = copyAt(request.blockNumber);
        uint256 size = exists ? copies[index][group].length : 0;
        if (size == 0) return (drawn, false);
        drawn = new address[](request.count);
        uint256 found;
        for (uint256 i = 0; i < 256 + 128 * uint256(request.count) && found < request.count; ++i) {
            uint256 h = uint256(keccak256(abi.encode(request.seed, i)));
            Entry memory entry = copies[index][group][(h >> 128) % size];
            uint256 seats = request.seasoned ? seasoned(entry, request.blockNumber) : entry.seats;
            if (h % (1 << 128) % (uint256(SEAT_CAP) * 10_000) >= seats * 10_000) continue;
            if (ownerOf(entry.operator) == request.excluded[0]) continue;
            drawn[found++] = entry.operator;
        }
        return (drawn, found == request.count);
    }

    // ---- chance

    function roll(uint256 sides) private returns (uint256) {
        dice = uint256(keccak256(abi.encode(dice)));
        return dice % sides;
    }

    function operatorAt(uint256 number) private pure returns (address) {
        return vm.addr(EXACT_KEY + number);
    }

    /// @dev One or two of the three groups.
    function choose() private returns (bool[3] memory chosen) {
        chosen[roll(3)] = true;
        if (roll(2) == 0) chosen[roll(3)] = true;
    }

    function segmentsIn(bool[3] memory chosen) private view returns (Segment[] memory joined, Ask[] memory asks) {
        uint256 count;
        for (uint256 g = 0; g < 3; ++g) {
            if (chosen[g]) ++count;
        }
        joined = new Segment[](count);
        asks = asksFor(count);
        for (uint256 g = 3; g > 0; --g) {
            if (chosen[g - 1]) joined[--count] = segments[g - 1];
        }
    }
}
