// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IDeployment} from "./interfaces/IDeployment.sol";
import {ILog, LogCounts} from "./interfaces/ILog.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {Role} from "./interfaces/MarketTypes.sol";

/// @title Roots of what schedulers served, for auditors
contract Log is ILog {
    uint256 private constant NUMBER_BITS = 64;

    IRegistry private immutable REGISTRY;

    /// @dev The upper 192 bits of the chain hash, and the number of the last entry.
    mapping(address scheduler => uint256) private _heads;

    constructor() {
        REGISTRY = IRegistry(IDeployment(msg.sender).contracts().registry);
    }

    /// @inheritdoc ILog
    function post(uint64 number, bytes32 root, LogCounts calldata counts, bytes32 dataHash) external {
        (Role role,,) = REGISTRY.roleOf(msg.sender);
        if (role != Role.Scheduler) revert NotScheduler(msg.sender);
        uint256 head = _heads[msg.sender];
        uint64 last = uint64(head);
        // The next of number 2^64 - 1 does not exist; nobody gets there.
        if (number != uint256(last) + 1) revert WrongNumber(number, last + 1);
        bytes32 chain = _chainOf(bytes24(bytes32(head >> NUMBER_BITS << NUMBER_BITS)));
        _heads[msg.sender] = uint256(bytes32(bytes24(chain))) | number;
        emit EntryLogged(msg.sender, number, root, counts, dataHash, chain);
    }

    /// @dev keccak256(abi.encode(before, number, root, counts, dataHash)): the arguments of `post` lie in the calldata as
    ///      they are encoded. One with dirty bits fails where the event encodes it.
    function _chainOf(bytes24 before) private pure returns (bytes32 chain) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            mstore(free, before)
            calldatacopy(add(free, 0x20), 4, 0x140)
            chain := keccak256(free, 0x160)
        }
    }

    /// @inheritdoc ILog
    function headOf(address scheduler) external view returns (uint64 number, bytes24 chain) {
        uint256 head = _heads[scheduler];
        return (uint64(head), bytes24(bytes32(head >> NUMBER_BITS << NUMBER_BITS)));
    }
}
