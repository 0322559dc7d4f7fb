// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Claim} from "../../../market/interfaces/MarketTypes.sol";

/// @title Builds Merkle-sum trees, by the words of the specification and not by the library that verifies them
library SumTrees {
    function claim(uint64 first, uint96[] memory amounts) internal pure returns (Claim memory) {
        uint64 last = first + uint64(amounts.length) - 1;
        (bytes32 top, uint96 total) = root(first, amounts);
        return Claim({
            first: first,
            last: last,
            exceptions: 0,
            total: total,
            root: keccak256(abi.encodePacked(hex"02", top, total, first, last))
        });
    }

    /// @dev A claim whose tree has more leaves than the claim has numbers.
    function claim(uint64 first, uint64 last, uint96[] memory amounts) internal pure returns (Claim memory) {
        (bytes32 top, uint96 total) = root(first, amounts);
        return Claim({
            first: first,
            last: last,
            exceptions: 0,
            total: total,
            root: keccak256(abi.encodePacked(hex"02", top, total, first, last))
        });
    }

    function root(uint64 first, uint96[] memory amounts) internal pure returns (bytes32 top, uint96 total) {
        (bytes32[] memory hashes, uint96[] memory sums) = _leaves(first, amounts);
        while (hashes.length > 1) {
            (hashes, sums) = _above(hashes, sums);
        }
        return (hashes[0], sums[0]);
    }

    function path(uint64 first, uint96[] memory amounts, uint256 index)
        internal
        pure
        returns (bytes32[] memory siblings, uint96[] memory besides)
    {
        (bytes32[] memory hashes, uint96[] memory sums) = _leaves(first, amounts);
        uint256 depth = _depth(hashes.length);
        siblings = new bytes32[](depth);
        besides = new uint96[](depth);
        for (uint256 level = 0; level < depth; ++level) {
            (siblings[level], besides[level]) = (hashes[index ^ 1], sums[index ^ 1]);
            (hashes, sums) = _above(hashes, sums);
            index >>= 1;
        }
    }

    function _leaves(uint64 first, uint96[] memory amounts)
        private
        pure
        returns (bytes32[] memory hashes, uint96[] memory sums)
    {
        uint256 width = 1;
        while (width < amounts.length) width *= 2;
        hashes = new bytes32[](width);
        sums = new uint96[](width);
        for (uint256 i = 0; i < amounts.length; ++i) {
            sums[i] = amounts[i];
            if (amounts[i] != 0) hashes[i] = keccak256(abi.encodePacked(hex"00", first + uint64(i), amounts[i]));
        }
    }

    function _above(bytes32[] memory hashes, uint96[] memory sums)
        private
        pure
        returns (bytes32[] memory upper, uint96[] memory upperSums)
    {
        uint256 width = hashes.length / 2;
        upper = new bytes32[](width);
        upperSums = new uint96[](width);
        for (uint256 i = 0; i < width; ++i) {
            (bytes32 left, bytes32 right) = (hashes[2 * i], hashes[2 * i + 1]);
            upper[i] = keccak256(abi.encodePacked(hex"01", left, sums[2 * i], right, sums[2 * i + 1]));
            upperSums[i] = sums[2 * i] + sums[2 * i + 1];
        }
    }

    function _depth(uint256 width) private pure returns (uint256 depth) {
        while (1 << depth < width) ++depth;
    }
}
