// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEquivocation} from "./ITrothEquivocation.sol";
import {ITrothEscrow} from "./ITrothEscrow.sol";
import {ITrothModels} from "./ITrothModels.sol";
import {ITrothRegistry} from "./ITrothRegistry.sol";
import {ITrothSettlement} from "./ITrothSettlement.sol";
import {ITrothTasks} from "./ITrothTasks.sol";
import {Parameters} from "./TrothTypes.sol";

/// @title Everything the contract offers
interface ITroth is
    ITrothModels,
    ITrothRegistry,
    ITrothEscrow,
    ITrothTasks,
    ITrothSettlement,
    ITrothEquivocation
{
    /// @notice Parameters that no contract could work with.
    error InvalidParameters(Parameters parameters);

    /// @notice The parameters fixed at deployment.
    function parametersOf() external view returns (Parameters memory);

    /// @notice The EIP-712 domain separator.
    function domainSeparator() external view returns (bytes32);
}
