// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./interfaces/TrothTypes.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Equivocation} from "./modules/Equivocation.sol";
import {Settlement} from "./modules/Settlement.sol";

/// @title Troth: inference that its users need not trust
/// @notice One contract without an administrator: registry, escrow, tasks and settlement. Nothing in it can be changed
///         or halted after its deployment. The interfaces document every function, event and error.
contract Troth is Settlement, Equivocation {
    constructor(Parameters memory parameters) Deployment(parameters) {}
}
