// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CasePhase, CaseState} from "../interfaces/MarketTypes.sol";

/// @title A case's state as abi.encode writes it, taken from the calldata and changed in place
/// @dev Nothing is decoded and encoded again. Only for states whose hash the Court knows: those have the one encoding.
library States {
    /// @param start of abi.encode(state) in memory, and how many bytes it has; there is room behind it
    struct Copy {
        uint256 start;
        uint256 size;
    }

    /// @dev Places of fields in CaseState, in words.
    uint256 internal constant KIND = 0;
    uint256 private constant PHASE = 1;
    uint256 internal constant SEGMENT = 2;
    uint256 internal constant ROUND = 3;
    uint256 internal constant SUSPENDS = 4;
    uint256 private constant PHASE_BLOCK = 5;
    uint256 internal constant ANSWERED_AT = 7;
    uint256 internal constant ORDER = 9;
    uint256 internal constant NODE = 16;
    uint256 internal constant BOND = 20;
    uint256 private constant SEATS = 26;
    uint256 private constant COMMITMENTS = 27;
    uint256 internal constant SEED = 28;
    uint256 internal constant DRAWER = 29;
    uint256 internal constant COMMITTER = 30;
    uint256 internal constant SEEDER = 31;

    /// @notice The state as it was given, with room for so many bytes more: from the struct's beginning to the end of its last
    ///         array. Any other encoding of the same values has another hash, and these bytes have no other meaning.
    function copyOf(CaseState calldata given, uint256 room) internal pure returns (Copy memory copy) {
        bytes32[] calldata last = given.commitments;
        uint256 start;
        uint256 size;
        assembly ("memory-safe") {
            start := mload(0x40)
            size := add(sub(add(last.offset, shl(5, last.length)), given), 0x20)
            mstore(start, 0x20)
            calldatacopy(add(start, 0x20), given, sub(size, 0x20))
            mstore(0x40, add(add(start, size), and(add(room, 0x1f), not(0x1f))))
        }
        copy = Copy({start: start, size: size});
    }

    /// @notice The state at the beginning of abi.encode(state, other), and the other; as our own reader returns them.
    function taken(bytes memory answer) internal pure returns (Copy memory copy, bytes memory other) {
        uint256 start;
        uint256 size;
        assembly ("memory-safe") {
            let data := add(answer, 0x20)
            start := add(data, 0x20)
            // Two offsets, the state, then the other: the second offset's word becomes that of abi.encode(state).
            size := sub(mload(start), 0x20)
            other := add(data, mload(start))
            mstore(start, 0x20)
        }
        copy = Copy({start: start, size: size});
    }

    /// @notice Emits an event with three topics whose data is the state.
    function announce(Copy memory copy, bytes32 selector, bytes32 id, bytes32 order, address account) internal {
        (uint256 start, uint256 size) = (copy.start, copy.size);
        assembly ("memory-safe") {
            log4(start, size, selector, id, order, account)
        }
    }

    /// @notice keccak256(abi.encode(state)).
    function hash(Copy memory copy) internal pure returns (bytes32 value) {
        (uint256 start, uint256 size) = (copy.start, copy.size);
        assembly ("memory-safe") {
            value := keccak256(start, size)
        }
    }

    /// @notice The next phase begins in this block.
    function enter(Copy memory copy, CasePhase phase) internal view {
        set(copy, PHASE, uint256(phase));
        set(copy, PHASE_BLOCK, uint40(block.number));
    }

    function get(Copy memory copy, uint256 field) internal pure returns (uint256 value) {
        uint256 start = copy.start;
        assembly ("memory-safe") {
            value := mload(add(add(start, 0x20), shl(5, field)))
        }
    }

    function set(Copy memory copy, uint256 field, uint256 value) internal pure {
        uint256 start = copy.start;
        assembly ("memory-safe") {
            mstore(add(add(start, 0x20), shl(5, field)), value)
        }
    }

    /// @notice Puts reviewers and seats into a state that has neither, nor commitments; there is room for them.
    function setReviewers(Copy memory copy, address[] memory reviewers, uint8[] memory seats) internal pure {
        (uint256 start, uint256 size) = (copy.start, copy.size);
        // The three arrays are the last: their lengths, all zero, are the last three words.
        uint256 bytes_ = 32 * (reviewers.length + 1);
        uint256 at = size - 0x80;
        set(copy, SEATS, at + bytes_);
        set(copy, COMMITMENTS, at + 2 * bytes_);
        assembly ("memory-safe") {
            let to := add(add(start, 0x20), at)
            mcopy(to, reviewers, bytes_)
            mcopy(add(to, bytes_), seats, bytes_)
            mstore(add(to, add(bytes_, bytes_)), 0)
        }
        copy.size = size - 0x40 + 2 * bytes_;
    }

    /// @notice Puts commitments into a state that has none; there is room for them.
    function setCommitments(Copy memory copy, bytes32[] memory commitments) internal pure {
        (uint256 start, uint256 size) = (copy.start, copy.size);
        uint256 bytes_ = 32 * commitments.length;
        assembly ("memory-safe") {
            mcopy(add(add(start, size), not(0x1f)), commitments, add(bytes_, 0x20))
        }
        copy.size = size + bytes_;
    }
}
