// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../interfaces/IBank.sol";
import {CaseState, Movement, Opinion, PotKind} from "../interfaces/MarketTypes.sol";

/// @title Movements as they are drawn up: what is owed is paid in the order in which it is owed, as far as the pot reaches
library Ledger {
    /// @param pot the bond from which payments are made
    /// @param left what is left of it
    /// @param movements as many as were pushed; there is room for `start`'s number
    struct Draft {
        bytes32 pot;
        uint256 left;
        Movement[] movements;
    }

    /// @notice A draft over a bond that holds `left`.
    /// @param room most movements that will be pushed
    function start(bytes32 pot, uint256 left, uint256 room) internal pure returns (Draft memory draft) {
        Movement[] memory movements;
        // An array of length zero with room behind it: `new` would build every movement before it is known.
        assembly ("memory-safe") {
            movements := mload(0x40)
            mstore(movements, 0)
            mstore(0x40, add(movements, shl(5, add(room, 1))))
        }
        draft = Draft({pot: pot, left: left, movements: movements});
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
        Movement memory movement =
            Movement({fromKind: fromKind, fromId: fromId, toKind: toKind, toId: toId, amount: uint96(amount)});
        Movement[] memory movements = draft.movements;
        assembly ("memory-safe") {
            let count := add(mload(movements), 1)
            mstore(movements, count)
            mstore(add(movements, shl(5, count)), movement)
        }
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
        for (uint256 i = since; i < draft.movements.length; ++i) {
            Movement memory earlier = draft.movements[i];
            if (earlier.toId == id(account) && earlier.toKind == PotKind.Credit) {
                earlier.amount += uint96(amount);
                return;
            }
        }
        shift(draft, PotKind.Bond, draft.pot, PotKind.Credit, id(account), amount);
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
    function toCall(Draft memory draft) internal pure returns (bytes memory) {
        if (draft.movements.length == 0) return "";
        return abi.encodeCall(IBank.move, (draft.pot, draft.movements));
    }
}
