// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {TrothTest} from "./support/TrothTest.sol";

/// @title Membership at every block, compared with a plain list of who came and went when
contract GroupsTest is TrothTest {
    struct Stay {
        address operator;
        uint256 from;
        uint256 to;
    }

    Stay[] private _stays;
    bytes32 private _group;

    function setUp() public override {
        super.setUp();
        _group = troth.groupId(tolerant, 1, 2);
    }

    function join(uint256 index) private returns (bool) {
        if (troth.accountOf(nodeAddress(index)).exitBlock != 0) return false;
        for (uint256 i = 0; i < _stays.length; ++i) {
            if (_stays[i].operator == nodeAddress(index)) return false;
        }
        vm.prank(owner);
        troth.enroll(nodeAddress(index), 1, 2);
        _stays.push(Stay(nodeAddress(index), vm.getBlockNumber() + 1, type(uint256).max));
        return true;
    }

    function leave(uint256 index) private {
        if (troth.accountOf(nodeAddress(index)).exitBlock != 0) return;
        vm.prank(owner);
        troth.deregister(nodeAddress(index));
        for (uint256 i = 0; i < _stays.length; ++i) {
            if (_stays[i].operator == nodeAddress(index)) _stays[i].to = vm.getBlockNumber();
        }
    }

    function test_AVacatedSlotIsReusedAndRemembersItsFormerMembers() public {
        uint256 start = vm.getBlockNumber();
        join(0);
        join(1);
        pass(5);
        leave(0);
        pass(5);
        join(2);
        pass(5);
        assertEq(troth.groupSizeAt(_group, vm.getBlockNumber()), 2);
        assertEq(troth.memberAt(_group, 0, start), address(0));
        assertEq(troth.memberAt(_group, 0, start + 1), nodeAddress(0));
        assertEq(troth.memberAt(_group, 0, start + 4), nodeAddress(0));
        assertEq(troth.memberAt(_group, 0, start + 5), address(0));
        assertEq(troth.memberAt(_group, 0, start + 10), address(0));
        assertEq(troth.memberAt(_group, 0, start + 11), nodeAddress(2));
        assertEq(troth.memberAt(_group, 1, start + 11), nodeAddress(1));
        assertEq(troth.memberAt(_group, 7, start + 11), address(0));
    }

    function test_WhoComesAndGoesInOneBlockWasNeverThere() public {
        join(0);
        leave(0);
        join(1);
        uint256 now_ = vm.getBlockNumber();
        for (uint256 block_ = now_ - 1; block_ < now_ + 3; ++block_) {
            assertEq(troth.memberAt(_group, 0, block_), block_ > now_ ? nodeAddress(1) : address(0));
        }
    }

    function test_SizeIsKnownAtEachBlock() public {
        uint256 start = vm.getBlockNumber();
        for (uint256 i = 0; i < NODES; ++i) {
            join(i);
            pass(3);
        }
        for (uint256 block_ = start; block_ < start + 20; ++block_) {
            uint256 joined = block_ == start ? 0 : (block_ - start - 1) / 3 + 1;
            assertEq(troth.groupSizeAt(_group, block_), joined > NODES ? NODES : joined);
        }
    }

    /// @dev After any sequence of joins and leaves: at every block exactly those who stayed are found, once each.
    function testFuzz_MembershipIsWhoStayed(uint256 seed) public {
        uint256 start = vm.getBlockNumber();
        for (uint256 step = 0; step < 24; ++step) {
            uint256 draw = uint256(keccak256(abi.encode(seed, step)));
            if (draw % 3 == 0) leave((draw >> 8) % NODES);
            else join((draw >> 8) % NODES);
            pass((draw >> 16) % 3);
        }
        for (uint256 block_ = start; block_ <= vm.getBlockNumber() + 1; ++block_) {
            uint256 present = 0;
            uint256 size = troth.groupSizeAt(_group, block_);
            for (uint256 i = 0; i < _stays.length; ++i) {
                bool stays = _stays[i].from <= block_ && block_ < _stays[i].to;
                uint256 found = 0;
                for (uint256 slot = 0; slot < size; ++slot) {
                    if (troth.memberAt(_group, slot, block_) == _stays[i].operator) ++found;
                }
                assertEq(found, stays ? 1 : 0);
                present += found;
            }
            uint256 filled = 0;
            for (uint256 slot = 0; slot < size; ++slot) {
                if (troth.memberAt(_group, slot, block_) != address(0)) ++filled;
            }
            assertEq(filled, present);
        }
    }
}
