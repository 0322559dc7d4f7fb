// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothReads} from "./interfaces/ITrothReads.sol";
import {Parameters} from "./interfaces/TrothTypes.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Reads} from "./modules/Reads.sol";
import {ColdForward} from "./modules/ColdForward.sol";
import {Settlement} from "./modules/Settlement.sol";

/// @title Troth: inference that its users need not trust
/// @notice One contract without an administrator: registry, escrow, tasks and settlement. Nothing in it can be changed
///         or halted after its deployment. The interfaces document every function, event and error.
contract Troth is Settlement, ColdForward, Reads {
    constructor(Parameters memory parameters) Deployment(parameters) ColdForward(parameters) {}

    /// @inheritdoc ITrothReads
    function coldPath() external view returns (address) {
        return COLD_PATH;
    }
}
