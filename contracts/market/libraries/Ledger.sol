// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../interfaces/IBank.sol";
import {PotKind} from "../interfaces/MarketTypes.sol";
import {CaseState} from "../interfaces/Proceedings.sol";
import {Opinion} from "../interfaces/Signed.sol";

/// @title Movements as they are drawn up: what is owed is paid in the order in which it is owed, as far as the pot
///        reaches
/// @dev They are written as the call to the Bank that makes them, 33 bytes each, so that nothing is encoded twice.
library Ledger {
    /// @param pot the case, from whose bond payments are made
    /// @param left what is left of it
    /// @param count movements so far
    /// @param room most movements that fit
    /// @param written IBank.moveMany(pot, movements)
    struct Draft {
        bytes32 pot;
        uint256 left;
        uint256 count;
        uint256 room;
        bytes written;
    }

    /// @notice More movements than there is room for: a mistake of the caller's.
    error TooManyMovements(uint256 room);

    /// @dev Bytes of a movement, and of the call before the first one: selector, subject, offset, length.
    uint256 private constant MOVEMENT = 33;
    uint256 private constant HEAD = 0x64;
    /// @dev From the case's bond (PotKind.Bond) to an account's credit (PotKind.Credit).
    uint256 private constant PAYMENT = 0x40;

    /// @notice A draft over a bond that holds `left`.
    /// @param room most movements that will be made
    function start(bytes32 pot, uint256 left, uint256 room) internal pure returns (Draft memory draft) {
        // A movement is written as two words, of which the second ends beyond it.
        bytes memory written = new bytes(HEAD + MOVEMENT * room + 0x40);
        bytes4 selector = IBank.moveMany.selector;
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

    /// @notice Moves an amount between two pots, each the case's, the account's or nobody's by its kind; nothing if it
    ///         is zero.
    function shift(Draft memory draft, PotKind from, PotKind to, address account, uint256 amount) internal pure {
        if (amount != 0) _write(draft, uint256(from) << 4 | uint256(to), account, amount);
    }

    /// @notice From an operator's pot into the bond.
    function take(Draft memory draft, PotKind kind, address operator, uint256 amount) internal pure {
        shift(draft, kind, PotKind.Bond, operator, amount);
        draft.left += amount;
    }

    /// @notice From the bond to an account's credit.
    function pay(Draft memory draft, address account, uint256 amount) internal pure {
        if (amount > draft.left) amount = draft.left;
        if (amount == 0) return;
        unchecked {
            draft.left -= amount;
        }
        _write(draft, PAYMENT, account, amount);
    }

    /// @notice `pay` to each member of a set, in order: `reward` for each of its seats.
    /// @param accounts where in the calldata their words begin
    /// @param seats a byte for each, of at most 31
    /// @param members bit i: the account at place i
    function payMany(Draft memory draft, uint256 accounts, bytes calldata seats, uint256 members, uint256 reward)
        internal
        pure
    {
        (uint256 left, uint256 count, uint256 room) = (draft.left, draft.count, draft.room);
        uint256 place = _placeOf(draft, count);
        assembly ("memory-safe") {
            let word := calldataload(seats.offset)
            for { } and(iszero(iszero(members)), lt(count, room)) { members := and(members, sub(members, 1)) } {
                let i := sub(255, clz(and(members, sub(0, members))))
                let amount := mul(reward, byte(i, word))
                if gt(amount, left) { amount := left }
                if iszero(amount) { continue }
                left := sub(left, amount)
                mstore8(place, PAYMENT)
                mstore(add(place, 1), or(shl(96, calldataload(add(accounts, shl(5, i)))), amount))
                place := add(place, MOVEMENT)
                count := add(count, 1)
            }
        }
        if (members != 0) revert TooManyMovements(room);
        (draft.left, draft.count) = (left, count);
    }

    /// @notice The same in one movement with what the account was given since number `since`.
    function pay(Draft memory draft, address account, uint256 amount, uint256 since) internal pure {
        uint256 count = draft.count;
        uint256 target = PAYMENT << 160 | uint160(account);
        for (uint256 i = since; i < count; ++i) {
            uint256 place = _placeOf(draft, i);
            bool same;
            assembly ("memory-safe") {
                same := eq(shr(88, mload(place)), target)
            }
            if (!same) continue;
            if (amount > draft.left) amount = draft.left;
            draft.left -= amount;
            // The sum never exceeds what a pot holds, which fits 96 bits.
            assembly ("memory-safe") {
                let end := add(place, 1)
                mstore(end, add(mload(end), amount))
            }
            return;
        }
        pay(draft, account, amount);
    }

    /// @notice What is left of the bond belongs to nobody.
    function burnRest(Draft memory draft) internal pure {
        shift(draft, PotKind.Bond, PotKind.Burnt, address(0), draft.left);
        draft.left = 0;
    }

    /// @notice Locks L of each rejecting verifier.
    function lockRejecters(Draft memory draft, CaseState memory state, uint256 penalty) internal pure {
        for (uint256 v = 0; v < state.opinions.length; ++v) {
            if (uint8(state.opinions[v]) != uint8(Opinion.Reject) || seatsFrom(state.verifiers, v) == 0) continue;
            shift(draft, PotKind.Stake, PotKind.Locked, state.verifiers[v], penalty);
        }
    }

    /// @notice Seats of the verifier at `place`; 0 if it had an earlier one.
    function seatsFrom(address[] memory verifiers, uint256 place) internal pure returns (uint256 seats) {
        address verifier = verifiers[place];
        for (uint256 v = 0; v < verifiers.length; ++v) {
            if (verifiers[v] != verifier) continue;
            if (v < place) return 0;
            ++seats;
        }
    }

    /// @notice The call to the Bank that makes these movements; empty if there are none.
    function toCall(Draft memory draft) internal pure returns (bytes memory written) {
        uint256 size = MOVEMENT * draft.count;
        if (size == 0) return "";
        written = draft.written;
        assembly ("memory-safe") {
            mstore(add(written, 0x64), size)
            // abi.encode fills the last word up.
            mstore(add(add(written, 0x84), size), 0)
            mstore(written, add(HEAD, and(add(size, 0x1f), not(0x1f))))
        }
    }

    function _write(Draft memory draft, uint256 kinds, address account, uint256 amount) private pure {
        uint256 count = draft.count;
        if (count == draft.room) revert TooManyMovements(draft.room);
        uint256 place = _placeOf(draft, count);
        assembly ("memory-safe") {
            mstore8(place, kinds)
            mstore(add(place, 1), or(shl(96, account), amount))
        }
        unchecked {
            draft.count = count + 1;
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
