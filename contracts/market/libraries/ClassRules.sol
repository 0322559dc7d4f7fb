// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IRegistry} from "../interfaces/IRegistry.sol";
import {Rules} from "../interfaces/MarketTypes.sol";

/// @title The rules of a class, as the Registry has them
library ClassRules {
    uint256 private constant BYTES = 20 * 32;

    /// @notice Reads them into a struct that is there; the Registry's error for a class that it does not know.
    /// @dev abi.decode without its copy and checks: the Registry is one of our own, and a struct of plain values lies in
    ///      memory as it is encoded.
    function read(Rules memory rules, IRegistry registry, bytes32 executionClass) internal view {
        bytes4 selector = IRegistry.rulesOf.selector;
        assembly ("memory-safe") {
            mstore(0, selector)
            mstore(4, executionClass)
            if iszero(staticcall(gas(), registry, 0, 0x24, rules, BYTES)) {
                let data := mload(0x40)
                returndatacopy(data, 0, returndatasize())
                revert(data, returndatasize())
            }
        }
    }
}
