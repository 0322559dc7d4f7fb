// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./interfaces/TrothTypes.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Equivocation} from "./modules/Equivocation.sol";
import {Models} from "./modules/Models.sol";
import {Registry} from "./modules/Registry.sol";

/// @title The second part of Troth's code: models, registry, equivocation
/// @notice Not to be called itself: it runs on the storage of Troth, which deploys it (EIP-170 limits a contract's code).
contract RegistryCode is Models, Registry, Equivocation {
    constructor(Parameters memory parameters) Deployment(parameters) {}
}
