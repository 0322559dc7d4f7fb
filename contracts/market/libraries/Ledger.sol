// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../interfaces/IBank.sol";
import {CaseState, Opinion, PotKind} from "../interfaces/MarketTypes.sol";

/// @title Movements as they are drawn up: what is owed is paid in the order in which it is owed, as far as the pot
///        reaches
/// @dev They are written as the call to the Bank that makes them, five words each, so that nothing is encoded twice.
library Ledger {
    /// @param pot the bond from which payments are made
    /// @param left what is left of it
    /// @param count movements so far
    /// @param room most movements that fit
    /// @param written IBank.move(pot, movements)
    struct Draft {
        bytes32 pot;
        uint256 left;
        uint256 count;
        uint256 room;
        bytes written;
    }

    /// @notice More movements than there is room for: a mistake of the caller's.
    error TooManyMovements(uint256 room);

    /// @dev Bytes of a movement, and of the call before the first one: selector, subject, offset, count.
    uint256 private constant MOVEMENT = 0xa0;
    uint256 private constant HEAD = 0x64;

    /// @notice A draft over a bond that holds `left`.
    /// @param room most movements that will be made
    function start(bytes32 pot, uint256 left, uint256 room) internal pure returns (Draft memory draft) {
        bytes memory written = new bytes(HEAD + MOVEMENT * room);
        bytes4 selector = IBank.move.selector;
        assembly ("memory-safe") {
            mstore(add(written, 0x20), selector)
            mstore(add(written, 0x24), pot)
            mstore(add(written, 0x44), 0x40)
        }
        draft = Draft({pot: pot, left: left, count: 0, room: room, written: written});
    }

    function id(address account) internal pure returns (bytes32) {
        return bytes32(uint256(uint160(account)));
    }

    /// @notice Moves an amount between two pots; nothing if it is zero.
    function shift(
        Draft memory draft,
        PotKind fromKind,
        bytes32 fromId,
        PotKind toKind,
        bytes32 toId,
        uint256 amount
    ) internal pure {
        if (amount == 0) return;
        if (draft.count == draft.room) revert TooManyMovements(draft.room);
        uint256 place = _placeOf(draft, draft.count);
        assembly ("memory-safe") {
            mstore(place, fromKind)
            mstore(add(place, 0x20), fromId)
            mstore(add(place, 0x40), toKind)
            mstore(add(place, 0x60), toId)
            mstore(add(place, 0x80), amount)
        }
        ++draft.count;
    }

    /// @notice From an operator's pot into the bond.
    function take(Draft memory draft, PotKind kind, address operator, uint256 amount) internal pure {
        shift(draft, kind, id(operator), PotKind.Bond, draft.pot, amount);
        draft.left += amount;
    }

    /// @notice From the bond to an account's credit, in one movement with what it was given since number `since`.
    function pay(Draft memory draft, address account, uint256 amount, uint256 since) internal pure {
        if (amount > draft.left) amount = draft.left;
        draft.left -= amount;
        bytes32 to = id(account);
        bytes32 pot = draft.pot;
        for (uint256 i = since; i < draft.count; ++i) {
            uint256 place = _placeOf(draft, i);
            bool same;
            // The amount never exceeds what a pot holds, which fits 96 bits.
            assembly ("memory-safe") {
                same := and(eq(mload(add(place, 0x20)), pot), eq(mload(add(place, 0x60)), to))
                if same { mstore(add(place, 0x80), add(mload(add(place, 0x80)), amount)) }
            }
            if (same) return;
        }
        shift(draft, PotKind.Bond, pot, PotKind.Credit, to, amount);
    }

    /// @notice What is left of the bond belongs to nobody.
    function burnRest(Draft memory draft) internal pure {
        shift(draft, PotKind.Bond, draft.pot, PotKind.Burnt, 0, draft.left);
        draft.left = 0;
    }

    /// @notice Locks L of each rejecting verifier.
    function lockRejecters(Draft memory draft, CaseState memory state, uint256 penalty) internal pure {
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (state.opinions[v] != uint8(Opinion.Reject) || seatsFrom(state, v) == 0) continue;
            bytes32 verifier = id(state.verifiers[v]);
            shift(draft, PotKind.Stake, verifier, PotKind.Locked, verifier, penalty);
        }
    }

    /// @notice Seats of the verifier at `place`; 0 if it had an earlier one.
    function seatsFrom(CaseState memory state, uint256 place) internal pure returns (uint256 seats) {
        address verifier = state.verifiers[place];
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            if (state.verifiers[v] != verifier) continue;
            if (v < place) return 0;
            ++seats;
        }
    }

    /// @notice The call to the Bank that makes these movements; empty if there are none.
    function toCall(Draft memory draft) internal pure returns (bytes memory written) {
        if (draft.count == 0) return "";
        written = draft.written;
        uint256 count = draft.count;
        assembly ("memory-safe") {
            mstore(add(written, 0x64), count)
            mstore(written, add(HEAD, mul(count, MOVEMENT)))
        }
    }

    /// @dev Where a movement is written.
    function _placeOf(Draft memory draft, uint256 index) private pure returns (uint256 place) {
        bytes memory written = draft.written;
        assembly ("memory-safe") {
            place := add(add(written, add(0x20, HEAD)), mul(index, MOVEMENT))
        }
    }
}
