// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./interfaces/TrothTypes.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Reviews} from "./modules/Reviews.sol";

/// @title The code of Troth's disputes
/// @notice Not to be called itself: it runs on the storage of Troth, which is deployed after it and checks that it has the
///         same parameters. It holds no wei and no state of its own.
contract ReviewPath is Reviews {
    bytes32 private immutable PARAMETERS;

    constructor(Parameters memory parameters) Deployment(parameters) {
        PARAMETERS = keccak256(abi.encode(parameters));
    }

    /// @notice Hash of the parameters that this code was deployed with.
    function parametersHash() external view returns (bytes32) {
        return PARAMETERS;
    }
}
