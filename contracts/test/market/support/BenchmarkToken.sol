// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {GoodToken} from "./BankMocks.sol";

/// @title The token of the benchmark of gas
/// @notice Compiled as what is deployed, with the optimizer (hardhat.config.js): a real token is.
contract BenchmarkToken is GoodToken {}
