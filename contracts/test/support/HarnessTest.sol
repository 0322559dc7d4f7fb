// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.28;

import {Test} from "@uniswap/v4-core/lib/forge-std/src/Test.sol";

/// @title A test of a library in its harness
/// @notice The harness comes from its artifact: it is compiled as what is deployed, and the test without the optimizer,
///         which would cost it seven seconds.
abstract contract HarnessTest is Test {
    /// @param name as "LibraryHarness.sol:LibraryHarness".
    function deployed(string memory name) internal returns (address at) {
        bytes memory creation = vm.getCode(name);
        assembly ("memory-safe") {
            at := create(0, add(creation, 0x20), mload(creation))
        }
        assertNotEq(at, address(0), name);
    }
}
