// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {DisputeTest} from "./DisputeTest.sol";

/// @title What everybody gains and loses, to the wei; who is not mentioned neither gains nor loses
abstract contract Balances is DisputeTest {
    address[] internal people;
    mapping(address person => uint256) private _before;
    mapping(address person => int256) private _change;

    function setUp() public virtual override {
        super.setUp();
        people = [client, scheduler, reserve, outsider, address(this)];
        for (uint256 i = 0; i < NODES + MORE_NODES; ++i) {
            people.push(nodeAddress(i));
            people.push(exactNodeAddress(i));
        }
    }

    /// @dev Stake, credit and escrow.
    function wealth(address person) internal view returns (uint256) {
        return owned(person) + troth.escrowOf(person);
    }

    /// @dev Begins to compare from here.
    function snap() internal virtual {
        for (uint256 i = 0; i < people.length; ++i) {
            _before[people[i]] = wealth(people[i]);
            _change[people[i]] = 0;
        }
    }

    function change(address person, int256 amount) internal {
        _change[person] += amount;
    }

    /// @dev The same in units of reward.
    function units(address person, int256 count) internal {
        _change[person] += count * int256(uint256(UNIT));
    }

    /// @dev Everybody's change is what was said, and the contract holds what is owned and locked.
    function assertChanges(uint256 locked) internal view {
        uint256 sum = locked;
        for (uint256 i = 0; i < people.length; ++i) {
            uint256 found = wealth(people[i]);
            sum += found;
            assertEq(int256(found) - int256(_before[people[i]]), _change[people[i]], vm.toString(people[i]));
        }
        assertEq(address(troth).balance, sum, "solvency");
    }

    /// @dev Takes the same from each of `count`, rounded up; returns what each pays and what is left for the reserve.
    function shared(uint256 owed, uint256 count) internal pure returns (uint256 share, uint256 left) {
        share = (owed + count - 1) / count;
        if (share < 8 * UNIT) share = 8 * UNIT;
        left = share * count - owed;
    }

    /// @dev Sets a node's stake; the missing wei leaves the contract too.
    function setStake(address node, uint96 stake) internal {
        uint96 before = stakeOf(node);
        uint96 credit = creditOf(node);
        bytes32 slot = keccak256(abi.encode(node, uint256(4)));
        vm.store(address(troth), slot, bytes32(uint256(1) << 232 | uint256(credit) << 96 | stake));
        assertEq(stakeOf(node), stake);
        assertEq(creditOf(node), credit);
        vm.deal(address(troth), address(troth).balance + stake - before);
    }
}
