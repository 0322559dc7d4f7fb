// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothEquivocation} from "./ITrothEquivocation.sol";
import {ITrothEscrow} from "./ITrothEscrow.sol";
import {ITrothModels} from "./ITrothModels.sol";
import {ITrothReads} from "./ITrothReads.sol";
import {ITrothRegistry} from "./ITrothRegistry.sol";
import {ITrothSettlement} from "./ITrothSettlement.sol";
import {ITrothTasks} from "./ITrothTasks.sol";

/// @title Everything the contract offers
interface ITroth is
    ITrothModels,
    ITrothRegistry,
    ITrothEscrow,
    ITrothTasks,
    ITrothSettlement,
    ITrothEquivocation,
    ITrothReads
{}
