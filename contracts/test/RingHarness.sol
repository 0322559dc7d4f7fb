// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {RingSignature} from "../libraries/RingSignature.sol";

/// @notice Makes the library callable, for the tests that compare it with `troth.protocol.rings`.
contract RingHarness {
    function verify(
        bytes calldata ring,
        bytes32 scope,
        bytes32 message,
        bytes calldata signature,
        uint256[] calldata hints
    ) external view returns (uint256 spent) {
        spent = gasleft();
        RingSignature.verify(ring, scope, message, signature, hints);
        spent -= gasleft();
    }

    function hashToCurve(bytes32 scope) external view returns (uint256) {
        return RingSignature.hashToCurve(scope);
    }

    /// @notice How many changed signatures still verify, or fail otherwise than with InvalidSignature: change i flips bit i
    /// of signature ‖ hints.
    function survivors(
        bytes calldata ring,
        bytes32 scope,
        bytes32 message,
        bytes calldata signature,
        uint256[] calldata hints,
        uint256[] calldata changes
    ) external view returns (uint256 left) {
        for (uint256 i = 0; i < changes.length; ++i) {
            bytes memory changed = signature;
            uint256[] memory changedHints = hints;
            uint256 place = changes[i];
            if (place < 8 * changed.length) {
                changed[place / 8] ^= bytes1(uint8(1 << place % 8));
            } else {
                place -= 8 * changed.length;
                changedHints[place / 256] ^= 1 << place % 256;
            }
            try this.verify(ring, scope, message, changed, changedHints) {
                ++left;
            } catch (bytes memory reason) {
                if (bytes4(reason) != RingSignature.InvalidSignature.selector) ++left;
            }
        }
    }
}
