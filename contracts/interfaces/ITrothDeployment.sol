// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./TrothTypes.sol";

/// @title What was fixed at deployment
interface ITrothDeployment {
    /// @notice Parameters that no contract could work with.
    error InvalidParameters(Parameters parameters);
    /// @notice The registry's code works on the main contract's storage only; its own holds nothing.
    error NotDelegated();

    /// @notice The parameters fixed at deployment.
    function parametersOf() external view returns (Parameters memory);

    /// @notice The EIP-712 domain separator.
    function domainSeparator() external view returns (bytes32);

    /// @notice Where the code of the registry lives; it works on this contract's storage and never changes.
    function registryCode() external view returns (address);
}
