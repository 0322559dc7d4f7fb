// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

import {Permutation} from "../libraries/Permutation.sol";

contract PermutationTest is Test {
    using Permutation for Permutation.Walk;

    function draw(uint256 size, uint256 steps) external pure {
        Permutation.Walk memory walk = Permutation.start(0, size);
        for (uint256 i = 0; i < steps; ++i) walk.next();
    }

    /// @notice The shuffle written out in full, over a plain array.
    function testEqualsThePlainShuffle(bytes32 beta, uint8 size) public pure {
        uint256[] memory items = new uint256[](size);
        for (uint256 i = 0; i < size; ++i) items[i] = i;
        Permutation.Walk memory walk = Permutation.start(beta, size);
        for (uint256 i = 0; i < size; ++i) {
            uint256 j = i + uint256(keccak256(abi.encode(beta, i))) % (size - i);
            (items[i], items[j]) = (items[j], items[i]);
            assertTrue(walk.hasNext());
            assertEq(walk.next(), items[i]);
        }
        assertFalse(walk.hasNext());
    }

    function testLeavesOtherMemoryAlone(bytes32 beta) public pure {
        bytes32 before = keccak256("before");
        bytes memory first = abi.encode(before);
        Permutation.Walk memory walk = Permutation.start(beta, 9);
        bytes memory second = abi.encode(before);
        while (walk.hasNext()) walk.next();
        assertEq(keccak256(first), keccak256(second));
        assertEq(walk.displaced.length, 36);
    }

    function testRefusesToDrawMoreThanThereIs() public {
        this.draw(3, 3);
        vm.expectRevert(abi.encodeWithSelector(Permutation.PermutationExhausted.selector, 3));
        this.draw(3, 4);
        vm.expectRevert(abi.encodeWithSelector(Permutation.PermutationExhausted.selector, 0));
        this.draw(0, 1);
    }

    function testRefusesASizeBeyondItsEntries() public {
        vm.expectRevert(abi.encodeWithSelector(Permutation.PermutationTooLarge.selector, type(uint32).max));
        this.draw(type(uint32).max, 0);
    }
}
