// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ITrothReads} from "./interfaces/ITrothReads.sol";
import {Parameters} from "./interfaces/TrothTypes.sol";
import {Commitments} from "./modules/Commitments.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Reads} from "./modules/Reads.sol";
import {ColdForward} from "./modules/ColdForward.sol";
import {Settlement} from "./modules/Settlement.sol";

/// @title Troth: inference that its users need not trust
/// @notice One contract without an administrator: registry, escrow, tasks and settlement. Nothing in it can be changed
///         or halted after its deployment. The interfaces document every function, event and error.
contract Troth is Commitments, Settlement, ColdForward, Reads {
    /// @param disputes a ReviewPath with the same parameters
    constructor(Parameters memory parameters, address disputes)
        Deployment(parameters)
        ColdForward(parameters, disputes)
    {}

    /// @inheritdoc ITrothReads
    function coldPath() external view returns (address) {
        return COLD_PATH;
    }

    /// @inheritdoc ITrothReads
    function reviewPath() external view returns (address) {
        return REVIEW_PATH;
    }
}
