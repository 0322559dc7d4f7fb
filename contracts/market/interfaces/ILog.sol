// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice What one log entry counts.
/// @param firstBlock first block of its draws, in buckets
struct LogCounts {
    uint32 orders;
    uint64 positions;
    uint32 drawn;
    uint32 checked;
    uint32 rejected;
    uint32 unrevealed;
    uint96 fees;
}

/// @title Roots of what schedulers served, for auditors
/// @notice Transparency, not settlement: no money depends on it. One hash per scheduler is stored.
interface ILog {
    /// @param chain keccak256(abi.encode(chain before, number, root, counts, dataHash))
    event EntryLogged(
        address indexed scheduler,
        uint64 indexed number,
        bytes32 root,
        LogCounts counts,
        bytes32 dataHash,
        bytes32 chain
    );

    error NotScheduler(address caller);
    error WrongNumber(uint64 number, uint64 expected);

    /// @notice Scheduler: posts entry `number`, one more than the last.
    function post(uint64 number, bytes32 root, LogCounts calldata counts, bytes32 dataHash) external;

    /// @notice Number of the last entry (64 bits) and the upper 192 bits of the chain hash after it.
    function headOf(address scheduler) external view returns (uint64 number, bytes24 chain);
}
