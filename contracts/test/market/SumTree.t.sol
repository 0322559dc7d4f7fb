// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";
import {SumTree} from "../../market/libraries/SumTree.sol";
import {SumTrees} from "./support/SumTrees.sol";

contract SumTreeTest is Test {
    uint64 private constant FIRST = 7;

    function climb(uint64 sequence, uint96 amount, uint64 last, bytes32[] calldata siblings, uint96[] calldata sums)
        external
        pure
        returns (bytes32, uint96)
    {
        bytes32 leaf = SumTree.leafHash(sequence, amount);
        return SumTree.climb(leaf, amount, sequence - FIRST, SumTree.depthOf(FIRST, last), siblings, sums);
    }

    function amountsOf(uint256 seed, uint256 count) private pure returns (uint96[] memory amounts) {
        amounts = new uint96[](count);
        for (uint256 i = 0; i < count; ++i) {
            // Some places are empty.
            uint256 word = uint256(keccak256(abi.encode(seed, i)));
            amounts[i] = word % 4 == 0 ? 0 : uint96(word >> 168);
        }
    }

    /// @dev Computed by another implementation (Python), so that the format cannot change by itself.
    function test_TheFormatIsFixed() public pure {
        bytes32 leaf = SumTree.leafHash(7, 1000);
        assertEq(leaf, 0x54ecd3f797f5140cc175b666bf8055c8384d7972fb39f15e59af3da734167145);
        bytes32 node = SumTree.nodeHash(leaf, 1000, bytes32(0), 0);
        assertEq(node, 0x77768429f650c80b54962e4bacc99247bb6ac0699acae7e27dd58127b4171419);
        assertEq(SumTree.claimRoot(node, 1000, 7, 8), 0xa755af2c2500b024897c22f77fc50c9e662acaaf3c57cb45e47369c0827e7d68);
        assertEq(SumTree.leafHash(7, 0), bytes32(0));
    }

    function test_DepthIsTheLeastThatHoldsAllNumbers() public pure {
        assertEq(SumTree.depthOf(5, 5), 0);
        assertEq(SumTree.depthOf(5, 6), 1);
        assertEq(SumTree.depthOf(5, 7), 2);
        assertEq(SumTree.depthOf(5, 8), 2);
        assertEq(SumTree.depthOf(5, 9), 3);
        assertEq(SumTree.depthOf(1, 1 << 32), 32);
    }

    function testFuzz_EveryLeafOfATreeClimbsToItsRoot(uint256 seed, uint256 count, uint256 index) public view {
        count = bound(count, 1, 40);
        index = bound(index, 0, count - 1);
        uint96[] memory amounts = amountsOf(seed, count);
        (bytes32 root, uint96 total) = SumTrees.root(FIRST, amounts);
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(FIRST, amounts, index);
        (bytes32 found, uint96 sum) =
            this.climb(FIRST + uint64(index), amounts[index], FIRST + uint64(count) - 1, siblings, sums);
        assertEq(found, root);
        assertEq(sum, total);
    }

    /// @dev Whatever one changes of amount, place, sibling or sum: the root or the sum is another.
    function testFuzz_NothingElseClimbsThere(uint256 seed, uint256 count, uint256 index, uint256 change) public view {
        count = bound(count, 2, 40);
        index = bound(index, 0, count - 1);
        uint96[] memory amounts = amountsOf(seed, count);
        (bytes32 root,) = SumTrees.root(FIRST, amounts);
        (bytes32[] memory siblings, uint96[] memory sums) = SumTrees.path(FIRST, amounts, index);
        uint64 sequence = FIRST + uint64(index);
        uint96 amount = amounts[index];
        uint256 level = (change >> 8) % siblings.length;
        if (change % 4 == 0) amount += 1;
        else if (change % 4 == 1) siblings[level] ^= bytes32(uint256(1));
        else if (change % 4 == 2) sums[level] += 1;
        else sequence = FIRST + uint64(index ^ 1);
        // An empty place beside an empty one looks the same from both.
        vm.assume(change % 4 != 3 || (amount != 0 || siblings[0] != 0) && sequence < FIRST + count);
        (bytes32 found,) = this.climb(sequence, amount, FIRST + uint64(count) - 1, siblings, sums);
        assertNotEq(found, root);
    }

    function test_RefusesPathsOfAWrongLength() public {
        (bytes32[] memory two, uint96[] memory sums) = (new bytes32[](2), new uint96[](2));
        (bytes32[] memory three, uint96[] memory more) = (new bytes32[](3), new uint96[](3));
        this.climb(FIRST, 1, FIRST + 3, two, sums);
        vm.expectRevert(abi.encodeWithSelector(SumTree.WrongDepth.selector, 3, 3, 2));
        this.climb(FIRST, 1, FIRST + 3, three, more);
        vm.expectRevert(abi.encodeWithSelector(SumTree.WrongDepth.selector, 2, 3, 2));
        this.climb(FIRST, 1, FIRST + 3, two, more);
        vm.expectRevert(abi.encodeWithSelector(SumTree.WrongDepth.selector, 2, 2, 0));
        this.climb(FIRST, 1, FIRST, two, sums);
    }

    function test_OverflowOfSumsIsRefused() public {
        (bytes32[] memory siblings, uint96[] memory sums) = (new bytes32[](2), new uint96[](2));
        sums[1] = type(uint96).max;
        this.climb(FIRST, 0, FIRST + 3, siblings, sums);
        vm.expectRevert(abi.encodeWithSelector(SumTree.SumTooLarge.selector, 1, uint256(1) << 96));
        this.climb(FIRST, 1, FIRST + 3, siblings, sums);
    }
}
