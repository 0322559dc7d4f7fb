// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothAssignment} from "./ITrothAssignment.sol";
import {ITrothDisputes} from "./ITrothDisputes.sol";
import {ITrothEndings} from "./ITrothEndings.sol";
import {ITrothEquivocation} from "./ITrothEquivocation.sol";
import {ITrothEscrow} from "./ITrothEscrow.sol";
import {ITrothModels} from "./ITrothModels.sol";
import {ITrothMoney} from "./ITrothMoney.sol";
import {ITrothOpenings} from "./ITrothOpenings.sol";
import {ITrothProgress} from "./ITrothProgress.sol";
import {ITrothOwnPosts} from "./ITrothOwnPosts.sol";
import {ITrothReads} from "./ITrothReads.sol";
import {ITrothRegistry} from "./ITrothRegistry.sol";
import {ITrothReveals} from "./ITrothReveals.sol";
import {ITrothSettlement} from "./ITrothSettlement.sol";
import {ITrothSignedPosts} from "./ITrothSignedPosts.sol";
import {ITrothTasks} from "./ITrothTasks.sol";

/// @title Everything the contract offers
// solhint-disable-next-line no-empty-blocks
interface ITroth is
    ITrothMoney,
    ITrothProgress,
    ITrothOpenings,
    ITrothModels,
    ITrothRegistry,
    ITrothEscrow,
    ITrothAssignment,
    ITrothSignedPosts,
    ITrothTasks,
    ITrothOwnPosts,
    ITrothEndings,
    ITrothReveals,
    ITrothSettlement,
    ITrothEquivocation,
    ITrothDisputes,
    ITrothReads
{}
