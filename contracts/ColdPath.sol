// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./interfaces/TrothTypes.sol";
import {Deployment} from "./modules/Deployment.sol";
import {Endings} from "./modules/Endings.sol";
import {Equivocation} from "./modules/Equivocation.sol";
import {Escrow} from "./modules/Escrow.sol";
import {Models} from "./modules/Models.sol";
import {OwnPosts} from "./modules/OwnPosts.sol";
import {Registry} from "./modules/Registry.sol";
import {Reveals} from "./modules/Reveals.sol";

/// @title The code of Troth's rarer calls
/// @notice Not to be called itself: it runs on the storage of Troth, which deploys it, because EIP-170 limits the code
///         of one contract. It holds no wei and no state of its own.
contract ColdPath is Models, Registry, Escrow, OwnPosts, Endings, Reveals, Equivocation {
    constructor(Parameters memory parameters) Deployment(parameters) {}
}
