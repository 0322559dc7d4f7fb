// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Row, Segment} from "../../interfaces/TrothTypes.sol";
import {InvariantLedger} from "./InvariantLedger.sol";

/// @title Random calls of clients, owners and bystanders
abstract contract InvariantActors is InvariantLedger {
    uint256 private constant MOST_OPERATORS = 32;
    uint256 private constant FRESH_KEY = 0xf4e5;
    uint256 private constant SPARE_NODES = 1;

    uint256 private _calls;

    uint256 public slicesChanged;
    /// @notice Changes of a slice after which a node is in other groups than its new ones, or was in others before.
    uint256 public wrongMemberships;

    /// @dev Most calls come in a block of their own, some share one with the call before.
    modifier step() {
        if (++_calls % 2 == 0) vm.roll(vm.getBlockNumber() + 1);
        _;
    }

    function setUp() public virtual override {
        super.setUp();
        vm.deal(client, 0);
        clients.push(client);
        keys[client] = CLIENT_KEY;
        paidIn = address(troth).balance;
        deposited[client] = DEPOSIT;
        deposited[outsider] = paidIn - _bookFirstOperators() - DEPOSIT;
        clients.push(outsider);
        keys[outsider] = uint256(keccak256(abi.encodePacked("outsider")));
        for (uint256 i = 0; i < SPARE_NODES; ++i) {
            _register(tolerant, NODE_STAKE);
            _register(exact, NODE_STAKE);
        }
        for (uint256 i = 1; i < 3; ++i) {
            address other = vm.addr(CLIENT_KEY + i);
            keys[other] = CLIENT_KEY + i;
            clients.push(other);
            _deposit(other, DEPOSIT);
        }
        vm.roll(1030);
    }

    function deposit(uint256 seed, uint256 amount) external step {
        _deposit(clients[seed % clients.length], amount % 1 ether);
    }

    function withdrawEscrow(uint256 seed, uint256 amount) external step {
        address from = clients[seed % clients.length];
        // Sometimes more than there is.
        uint96 asked = uint96(amount % (uint256(troth.escrowOf(from)) / 4 * 5 + 2));
        send(from, 0, abi.encodeCall(troth.withdrawEscrow, (asked)));
    }

    function registerNode(uint256 seed, uint256 stake) external step {
        if (operators.length < MOST_OPERATORS) _register(seed % 2 == 0 ? tolerant : exact, stake % (2 * NODE_STAKE));
    }

    /// @dev The new scheduler serves from now on; tasks of the one before stay its own.
    function registerScheduler(uint256 stake) external step {
        if (operators.length == MOST_OPERATORS) return;
        if (troth.accountOf(scheduler).exitBlock == 0 && stake % 4 != 0) return;
        uint256 key = FRESH_KEY + operators.length;
        address operator = vm.addr(key);
        uint256 value = SCHEDULER_STAKE + stake % 1 ether;
        bytes memory data = abi.encodeCall(
            troth.registerScheduler, (schedulerRegistration(operator, VRF_SECRET), consentOf(key, owner))
        );
        if (!send(owner, value, data)) return;
        _book(operator, key, value);
        scheduler = operator;
    }

    function topUp(uint256 seed, uint256 amount) external step {
        address operator = seed % 2 == 0 ? scheduler : _operator(seed / 2);
        uint256 value = amount % 0.1 ether;
        if (send(funder, value, abi.encodeCall(troth.topUp, (operator)))) stakes[operator] += value;
    }

    function enroll(uint256 seed) external step {
        send(owner, 0, abi.encodeCall(troth.enroll, (_operator(seed), 0, layers())));
    }

    /// @dev By owner or operator, now and then before it may; all past memberships must stay, all present ones be new.
    function changeSlice(uint256 seed) external step {
        address operator = _operator(seed);
        uint256 choice = seed / 64 % 4;
        Segment[] memory segments = new Segment[](choice == 0 ? 2 : 1);
        segments[0] = choice == 1 ? Segment(0, layers() / 2) : Segment(choice == 2 ? layers() / 2 : 0, layers());
        if (choice == 0) segments[1] = Segment(0, layers() / 2);
        bytes memory data = abi.encodeCall(
            troth.changeSlice, (operator, segments[0].first, segments[0].end, segments)
        );
        uint256 past = vm.getBlockNumber() - 1;
        (bytes32 class,,,) = troth.sliceOf(operator);
        bytes32 before = keccak256(abi.encode(_seats(class, operator, past)));
        if (!send(seed % 2 == 0 ? owner : operator, 0, data)) return;
        ++slicesChanged;
        if (keccak256(abi.encode(_seats(class, operator, past))) != before) ++wrongMemberships;
        uint256[3] memory none = _seats(class, operator, past + 1);
        uint256[3] memory present = _seats(class, operator, past + 2);
        uint256[3] memory expected =
            [choice == 0 || choice == 3 ? 1 : 0, uint256(choice < 2 ? 1 : 0), uint256(choice == 2 ? 1 : 0)];
        for (uint256 i = 0; i < 3; ++i) {
            if (none[i] != 0 || present[i] != expected[i]) ++wrongMemberships;
        }
    }

    function claim(uint256 seed) external step {
        address account = seed % 8 == 0 ? reserve : seed % 8 == 1 ? reporter : _operator(seed / 8);
        send(funder, 0, abi.encodeCall(troth.claim, (account)));
    }

    function evict(uint256 seed) external step {
        send(funder, 0, abi.encodeCall(troth.evict, (_operator(seed))));
    }

    function deregister(uint256 seed) external step {
        if (seed % 3 != 0) return;
        address operator = _operator(seed / 3);
        if (!send(owner, 0, abi.encodeCall(troth.deregister, (operator)))) return;
        exitBlocks[operator] = vm.getBlockNumber() + UNBONDING_PERIOD;
    }

    /// @dev Tries whoever it hits first, bonded or not, then whoever is on the way out.
    function withdraw(uint256 seed) external step {
        for (uint256 i = 0; i < operators.length; ++i) {
            address operator = operators[(seed % operators.length + i) % operators.length];
            if (i > 0 && exitBlocks[operator] == 0) continue;
            uint256 exitBlock = exitBlocks[operator];
            if (!send(funder, 0, abi.encodeCall(troth.withdraw, (operator)))) continue;
            if (exitBlock == 0 || vm.getBlockNumber() <= exitBlock) ++earlyWithdrawals;
            stakes[operator] = 0;
        }
    }

    function equivocate(uint256 seed, uint256 position) external step {
        if (seed % 3 != 0) return;
        uint256 key = keys[_operator(seed / 3)];
        Row memory a = Row({
            taskId: keccak256("task"),
            segment: 0,
            attempt: 0,
            position: uint32(position),
            rowHash: keccak256("one row"),
            previous: 0
        });
        Row memory b = abi.decode(abi.encode(a), (Row));
        b.rowHash = keccak256("another row");
        bytes memory data = abi.encodeCall(
            troth.proveEquivocation, (a, signed(key, _rowHash(a)), b, signed(key, _rowHash(b)))
        );
        send(reporter, 0, data);
    }

    /// @dev Mostly a little; sometimes past a window, seldom past the unbonding period.
    function advance(uint256 seed) external {
        uint256 blocks = 1 + seed % 3;
        if (seed % 16 == 7) blocks = UNBONDING_PERIOD + 1;
        else if (seed % 4 == 1) blocks = COMMIT_WINDOW + 1;
        else if (seed % 4 == 2) blocks = REVEAL_WINDOW + 1;
        vm.roll(vm.getBlockNumber() + blocks);
    }

    function _deposit(address to, uint256 amount) private {
        if (send(funder, amount, abi.encodeCall(troth.deposit, (to)))) deposited[to] += amount;
    }

    function _register(bytes32 class, uint256 value) private {
        uint256 key = FRESH_KEY + operators.length;
        address operator = vm.addr(key);
        bytes memory data =
            abi.encodeCall(troth.registerNode, (nodeRegistration(operator, class), consentOf(key, owner)));
        if (send(owner, value, data)) _book(operator, key, value);
    }

    function _book(address operator, uint256 key, uint256 stake) private {
        operators.push(operator);
        keys[operator] = key;
        stakes[operator] = stake;
    }

    function _bookFirstOperators() private returns (uint256 sum) {
        _book(scheduler, SCHEDULER_KEY, SCHEDULER_STAKE);
        for (uint256 i = 0; i < NODES + MORE_NODES; ++i) {
            _book(vm.addr(NODE_KEY + i), NODE_KEY + i, NODE_STAKE);
            _book(vm.addr(NODE_KEY + 100 + i), NODE_KEY + 100 + i, NODE_STAKE);
        }
        return SCHEDULER_STAKE + 2 * (NODES + MORE_NODES) * uint256(NODE_STAKE);
    }

    /// @dev How often an operator is a member of the whole model's group and of the two halves' at a block.
    function _seats(bytes32 class, address operator, uint256 block_) private view returns (uint256[3] memory seats) {
        uint8 half = layers() / 2;
        bytes32[3] memory groups =
            [troth.groupId(class, 0, layers()), troth.groupId(class, 0, half), troth.groupId(class, half, layers())];
        for (uint256 i = 0; i < 3; ++i) {
            uint256 size = troth.groupSizeAt(groups[i], block_);
            for (uint256 slot = 0; slot < size; ++slot) {
                if (troth.memberAt(groups[i], slot, block_) == operator) ++seats[i];
            }
        }
    }

    function _operator(uint256 seed) private view returns (address) {
        return operators[seed % operators.length];
    }

    function _rowHash(Row memory row) private pure returns (bytes32) {
        bytes32 typeHash = keccak256(
            "Row(bytes32 taskId,uint8 segment,uint8 attempt,uint32 position,bytes32 rowHash,bytes32 previous)"
        );
        return keccak256(abi.encode(typeHash, row));
    }
}
