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
    address classes;
    address leaves;
    address proofs;
}

/// @title The factory: it deploys all contracts of a deployment by CREATE2 and each reads its wiring from it
/// @notice Addresses follow from the factory, the parameters and the shipped bytecode alone, so that anybody can
///         recompute them; a constructor takes no arguments, reads `parameters()` and `contracts()` from its creator,
///         and keeps both as immutables. All parts together cost more gas than a transaction may have (EIP-7825), so
///         that a deployment is begun once and its parts are created one by one, in any order and by anybody: nobody
///         has a choice to make.
interface IDeployment {
    /// @notice The parameters hold, and the chain has what the contracts need.
    event Begun(bytes32 indexed deployment, Parameters parameters);
    /// @notice Part `index` (in the order of Contracts) stands.
    event PartCreated(bytes32 indexed deployment, uint256 index, address part);
    /// @notice All parts stand. `deployment` is the hash of the parameters that the addresses were salted with.
    event Deployed(bytes32 indexed deployment, Contracts contracts, Parameters parameters);

    /// @notice A window, amount or address that breaks a rule; `rule` is its number in the source.
    error InvalidParameters(uint256 rule, Parameters parameters);
    /// @notice The two headers are those of one block, or show the same RANDAO: this chain has no beacon.
    error ConstantBeacon(uint256 first, uint256 second);
    /// @notice A header whose hash is not that of a block among the last 256.
    error UnknownHeader(uint256 blockNumber, bytes32 headerHash, bytes32 blockHash);
    /// @notice P256VERIFY (EIP-7951) or the history of block hashes (EIP-2935) is not there.
    error PrecompileMissing(address precompile);
    /// @notice This code is not the shipped code of part `index`.
    error WrongCode(uint256 index, bytes32 codeHash, bytes32 expected);
    error WrongPartCount(uint256 parts, uint256 expected);
    error UnknownPart(uint256 index, uint256 parts);
    error NotBegun(bytes32 deployment);
    error AlreadyBegun(bytes32 deployment);
    error AlreadyCreated(bytes32 deployment, uint256 index, address part);
    /// @notice A constructor failed; usually there was too little gas.
    error CreationFailed(bytes32 deployment, uint256 index);
    /// @notice No part is being created in this moment.
    error NothingUnderWay();

    /// @notice Anyone: checks parameters and chain, once.
    /// @param firstHeader RLP of a block among the last 256
    /// @param secondHeader of another one, with another RANDAO
    function begin(Parameters calldata chosen, bytes calldata firstHeader, bytes calldata secondHeader)
        external
        returns (bytes32 deployment);

    /// @notice Anyone, in any order: creates a part of a deployment that was begun.
    /// @param index place of the part in Contracts
    /// @param creationCode the shipped one
    function create(Parameters calldata chosen, uint256 index, bytes calldata creationCode)
        external
        returns (address part);

    /// @notice keccak256 of the creation code of a part.
    function codeHashOf(uint256 index) external view returns (bytes32);

    /// @notice Where the parts of a deployment with these parameters are or would be.
    function addressesOf(Parameters calldata chosen) external view returns (Contracts memory);

    /// @notice Which parts stand: bit `index`; and whether it was begun.
    function progressOf(Parameters calldata chosen) external view returns (bool begun, uint256 created);

    /// @notice While parts are being created: the parameters of the deployment under way.
    function parameters() external view returns (Parameters memory);

    /// @notice While parts are being created: the addresses of the deployment under way.
    function contracts() external view returns (Contracts memory);
}
