// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {State} from "./State.sol";

/// @title Who could serve a segment at any block
/// @dev A group is a list of slots; a slot is a list of occupancies, the latest in a word of its own so that an
///      assignment reads one word per member. Whoever joins in block b is a member from b + 1 on, so that membership at
///      a past block never changes.
///      Arithmetic is unchecked: slots are counted in 32 bits, blocks in 40.
abstract contract Groups is State {
    function _groupId(bytes32 executionClass, uint256 first, uint256 end) internal pure returns (bytes32) {
        return keccak256(abi.encode(executionClass, first, end));
    }

    function _memberAt(bytes32 group, uint256 slot, uint256 blockNumber) internal view returns (address) {
        Occupancy memory occupancy = _groups[group].latest[slot];
        if (blockNumber < occupancy.fromBlock) {
            occupancy = _earlierOccupancy(_groups[group].earlier[slot], blockNumber);
        }
        bool joined = occupancy.operator != address(0) && occupancy.fromBlock <= blockNumber;
        return joined && (occupancy.toBlock == 0 || blockNumber < occupancy.toBlock)
            ? occupancy.operator
            : address(0);
    }

    function _groupSizeAt(bytes32 group, uint256 blockNumber) internal view returns (uint256) {
        unchecked {
            Group storage record = _groups[group];
            if (blockNumber >= record.sizeBlock) return record.size;
            uint40[] storage created = record.created;
            uint256 low = 0;
            uint256 high = record.size;
            while (low < high) {
                uint256 middle = (low + high) / 2;
                if (created[middle] <= blockNumber) low = middle + 1;
                else high = middle;
            }
            return low;
        }
    }

    /// @dev The last occupancy that began at or before the block; an empty one if there is none.
    function _earlierOccupancy(Occupancy[] storage occupancies, uint256 blockNumber)
        private
        view
        returns (Occupancy memory found)
    {
        unchecked {
            uint256 low = 0;
            uint256 high = occupancies.length;
            while (low < high) {
                uint256 middle = (low + high) / 2;
                if (occupancies[middle].fromBlock <= blockNumber) low = middle + 1;
                else high = middle;
            }
            if (low > 0) found = occupancies[low - 1];
        }
    }
}
