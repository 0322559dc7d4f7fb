// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Dispute, Packed, Turn} from "./IDisputes.sol";

/// @title The state of a dispute as calls carry it
/// @notice Each turn brings the whole state along, and each byte of it is paid for, zeros too. So what is not a hash shares three
///         words. Both forms say the same; the contract keeps the hash of this one.
/// @dev The same form is `troth.protocol.disputes.game.PackedDispute`.
library PackedDispute {
    uint256 private constant BYTES = 256;

    /// @notice Hash of what a call brought, as it lies there.
    function hashOf(Packed calldata given) internal pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, given, BYTES)
            hash := keccak256(free, BYTES)
        }
    }

    /// @notice Hash of a state.
    function hashOf(Dispute memory state) internal pure returns (bytes32 hash) {
        Packed memory packed = _pack(state);
        assembly ("memory-safe") {
            hash := keccak256(packed, BYTES)
        }
    }

    /// @notice Whose turn it is.
    function turnOf(Packed calldata given) internal pure returns (Turn) {
        return Turn(uint8(given.place >> 168));
    }

    /// @notice The state that a call brought.
    function unpack(Packed calldata given) internal pure returns (Dispute memory state) {
        (state.matter, state.result, state.root) = (given.matter, given.result, given.root);
        (state.node, state.parts) = (given.node, given.parts);
        (state.accused, state.bond) = (address(uint160(given.accused >> 96)), uint96(given.accused));
        (state.accuser, state.offenceBlock) = (address(uint160(given.accuser >> 96)), uint64(given.accuser >> 32));
        state.moved = uint32(given.accuser);
        uint256 place = given.place;
        (state.deadline, state.turn) = (uint40(place >> 176), turnOf(given));
        (state.inTensor, state.tensor) = (uint8(place >> 160) != 0, uint32(place >> 128));
        (state.place, state.left, state.shown) = (uint64(place >> 64), uint8(place >> 56), uint8(place >> 48));
        (state.asked, state.nudge, state.number) = (uint32(place >> 16), uint8(place >> 8), uint8(place));
    }

    function _pack(Dispute memory state) private pure returns (Packed memory packed) {
        (packed.matter, packed.result, packed.root) = (state.matter, state.result, state.root);
        (packed.node, packed.parts) = (state.node, state.parts);
        packed.accused = uint256(uint160(state.accused)) << 96 | state.bond;
        packed.accuser = uint256(uint160(state.accuser)) << 96 | uint256(state.offenceBlock) << 32 | state.moved;
        packed.place = uint256(state.deadline) << 176 | uint256(uint8(state.turn)) << 168
            | uint256(state.inTensor ? 1 : 0) << 160 | uint256(state.tensor) << 128 | uint256(state.place) << 64
            | uint256(state.left) << 56 | uint256(state.shown) << 48 | uint256(state.asked) << 16
            | uint256(state.nudge) << 8 | state.number;
    }
}
