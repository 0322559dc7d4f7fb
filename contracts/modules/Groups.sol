// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothRegistry} from "../interfaces/ITrothRegistry.sol";

/// @title Who could serve a segment at any block
/// @dev A group is a list of slots; a slot is a list of occupancies, the latest in a word of its own so that an
///      assignment reads one word per member. Whoever joins in block b is a member from b + 1 on, so that membership at
///      a past block never changes.
abstract contract Groups is ITrothRegistry {
    /// @param toBlock first block at which the operator is no member; 0 while it is one
    struct Occupancy {
        address operator;
        uint40 fromBlock;
        uint40 toBlock;
    }

    /// @param size slots since `sizeBlock`
    /// @param created per slot, the block it came into being; these rise, so they tell the size at any block
    struct Group {
        uint32 size;
        uint40 sizeBlock;
        mapping(uint256 slot => Occupancy) latest;
        mapping(uint256 slot => Occupancy[]) earlier;
        uint32[] vacant;
        uint40[] created;
    }

    mapping(bytes32 group => Group) private _groups;

    /// @inheritdoc ITrothRegistry
    function groupId(bytes32 executionClass, uint8 first, uint8 end) public pure returns (bytes32) {
        return keccak256(abi.encode(executionClass, first, end));
    }

    /// @inheritdoc ITrothRegistry
    function memberAt(bytes32 group, uint256 slot, uint256 blockNumber) public view returns (address) {
        Occupancy memory occupancy = _groups[group].latest[slot];
        if (blockNumber < occupancy.fromBlock) {
            occupancy = _earlierOccupancy(_groups[group].earlier[slot], blockNumber);
        }
        bool joined = occupancy.operator != address(0) && occupancy.fromBlock <= blockNumber;
        return joined && (occupancy.toBlock == 0 || blockNumber < occupancy.toBlock)
            ? occupancy.operator
            : address(0);
    }

    /// @inheritdoc ITrothRegistry
    function groupSizeAt(bytes32 group, uint256 blockNumber) public view returns (uint256) {
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

    /// @dev Takes the slot that was given up last, or a new one.
    function _join(bytes32 group, address operator) internal returns (uint32 slot, uint40 fromBlock) {
        Group storage record = _groups[group];
        fromBlock = uint40(block.number + 1);
        uint256 vacancies = record.vacant.length;
        if (vacancies > 0) {
            slot = record.vacant[vacancies - 1];
            record.vacant.pop();
            record.earlier[slot].push(record.latest[slot]);
        } else {
            slot = record.size;
            record.size = slot + 1;
            record.sizeBlock = fromBlock;
            record.created.push(fromBlock);
        }
        record.latest[slot] = Occupancy({operator: operator, fromBlock: fromBlock, toBlock: 0});
    }

    function _leave(bytes32 group, uint32 slot) internal returns (uint40 toBlock) {
        toBlock = uint40(block.number);
        _groups[group].latest[slot].toBlock = toBlock;
        _groups[group].vacant.push(slot);
    }

    /// @dev The last occupancy that began at or before the block; an empty one if there is none.
    function _earlierOccupancy(Occupancy[] storage occupancies, uint256 blockNumber)
        private
        view
        returns (Occupancy memory found)
    {
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
