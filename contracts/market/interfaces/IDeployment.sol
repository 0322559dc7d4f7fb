// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Parameters} from "./MarketTypes.sol";

/// @notice The contracts of a deployment.
struct Contracts {
    address bank;
    address registry;
    address court;
    address summons;
    address evidence;
    address log;
    address lens;
    address docket;
    address judgement;
}

/// @title The factory: it deploys all contracts of a deployment by CREATE2 and each reads its wiring from it
/// @notice Addresses follow from the factory, the parameters and the shipped bytecode alone, so that anybody can
///         recompute them; a constructor takes no arguments, reads `parameters()` and `contracts()` from its creator, and keeps
///         both as immutables.
interface IDeployment {
    /// @notice All parts stand. `parameters` is the hash that the addresses were salted with.
    event Deployed(bytes32 indexed deployment, Contracts contracts, Parameters parameters);

    /// @notice A window, amount or address that breaks a rule; `rule` is its number in the source.
    error InvalidParameters(uint256 rule, Parameters parameters);
    /// @notice The two headers are not those of past blocks, or show the same RANDAO: this chain has no beacon.
    error ConstantBeacon(uint256 first, uint256 second);
    /// @notice P256VERIFY (EIP-7951) or the history of block hashes (EIP-2935) is not there.
    error PrecompileMissing(address precompile);
    /// @notice This code is not the shipped code of part `index`.
    error WrongCode(uint256 index, bytes32 codeHash, bytes32 expected);

    /// @notice While parts are being created: the parameters of the deployment under way.
    function parameters() external view returns (Parameters memory);

    /// @notice While parts are being created: the addresses of the deployment under way.
    function contracts() external view returns (Contracts memory);
}
