// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {CasePhase, CaseState} from "../interfaces/Proceedings.sol";

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
    uint256 private constant VERIFIERS = 22;
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

    /// @notice abi.encode(state, other) of a state as it is opened with: without reviewers, seats and commitments. Its plain
    ///         fields lie in memory as they are encoded.
    function encoded(CaseState memory state, bytes memory other) internal pure returns (Copy memory copy) {
        uint256 start;
        uint256 at = 0x400;
        assembly ("memory-safe") {
            start := mload(0x40)
            mstore(start, 0x40)
            mcopy(add(start, 0x40), state, 0x400)
        }
        (address[] memory verifiers, bytes memory opinions, address[] memory excluded) =
            (state.verifiers, state.opinions, state.excluded);
        assembly ("memory-safe") {
            let head := add(start, 0x40)
            let fields := add(head, shl(5, VERIFIERS))
            mstore(fields, at)
            let size := shl(5, add(mload(verifiers), 1))
            mcopy(add(head, at), verifiers, size)
            at := add(at, size)
            mstore(add(fields, 0x20), at)
            // What is behind the opinions in their last word is zero.
            size := and(add(mload(opinions), 0x3f), not(0x1f))
            mcopy(add(head, at), opinions, size)
            at := add(at, size)
            mstore(add(fields, 0x40), at)
            size := shl(5, add(mload(excluded), 1))
            mcopy(add(head, at), excluded, size)
            at := add(at, size)
            // Three that are empty.
            mstore(add(fields, 0x60), at)
            mstore(add(fields, 0x80), add(at, 0x20))
            mstore(add(fields, 0xa0), add(at, 0x40))
            calldatacopy(add(head, at), calldatasize(), 0x60)
            at := add(at, 0x60)
            mstore(add(start, 0x20), add(at, 0x40))
            size := and(add(mload(other), 0x3f), not(0x1f))
            mcopy(add(head, at), other, size)
            at := add(at, add(size, 0x40))
            mstore(0x40, add(start, at))
        }
        copy = Copy({start: start, size: at});
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
    function setReviewers(Copy memory copy, address[] memory reviewers, bytes memory seats) internal pure {
        (uint256 start, uint256 size) = (copy.start, copy.size);
        // The three arrays are the last: their lengths, all zero, are the last three words.
        uint256 bytes_ = 32 * (reviewers.length + 1);
        uint256 packed = 32 + (seats.length + 31 & ~uint256(31));
        uint256 at = size - 0x80;
        set(copy, SEATS, at + bytes_);
        set(copy, COMMITMENTS, at + bytes_ + packed);
        assembly ("memory-safe") {
            let to := add(add(start, 0x20), at)
            mcopy(to, reviewers, bytes_)
            // What is behind the seats in their last word is zero.
            mcopy(add(to, bytes_), seats, packed)
            mstore(add(to, add(bytes_, packed)), 0)
        }
        copy.size = size - 0x40 + bytes_ + packed;
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
