// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Groups} from "./Groups.sol";

/// @title Joining and leaving groups
abstract contract Memberships is Groups {
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
}
