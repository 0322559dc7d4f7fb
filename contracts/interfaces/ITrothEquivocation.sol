// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Row} from "./TrothTypes.sol";

/// @title Two signatures for one position cost the whole stake
interface ITrothEquivocation {
    event EquivocationProven(
        bytes32 indexed taskId,
        address indexed signer,
        address reporter,
        uint8 segment,
        uint8 attempt,
        uint32 position
    );

    /// @notice The rows are for different positions, so both may be true.
    error DifferentPositions(bytes32 taskA, bytes32 taskB, uint256 placeA, uint256 placeB);
    error SameRow(bytes32 digest);
    error DifferentSigners(address signerA, address signerB);
    /// @notice The signer has no stake to lose.
    error NothingAtStake(address signer);

    /// @notice Anyone: shows two different rows that one party signed for the same task, segment, attempt and position.
    ///         A quarter of the stake goes to the caller's credit, the rest to the reserve.
    function proveEquivocation(Row calldata a, bytes calldata signatureA, Row calldata b, bytes calldata signatureB)
        external;
}
