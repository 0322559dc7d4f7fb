// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Create2} from "@openzeppelin/contracts/utils/Create2.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {Parameters} from "./interfaces/MarketTypes.sol";
import {BlockHeader} from "./libraries/BlockHeader.sol";
import {Windows} from "./libraries/Windows.sol";

/// @title The factory of deployments
/// @dev The parameters of the part under way are in transient storage, one word each.
contract Deployment is IDeployment {
    uint256 private constant PARTS = 12;
    uint256 private constant WORDS = 18;
    address private constant P256VERIFY = address(0x100);
    address private constant HISTORY = 0x0000F90827F1C53a10cb7A02335B175320002935;
    /// @dev A valid signature of EIP-7951's test vectors: hash, r, s, x, y.
    bytes private constant P256_VECTOR =
        hex"4cee90eb86eaa050036147a12d49004b6b9c72bd725d39d4785011fe190f0b4d"
        hex"a73bd4903f0ce3b639bbbf6e8e80d16931ff4bcf5993d58468e8fb19086e8cac"
        hex"36dbcd03009df8c59286b162af3bd7fcc0450c9aa81be5d10d312af6c66b1d60"
        hex"4aebd3099c618202fcfe16ae7770b0c49ab5eadf74b754204a3bb6060e44eff3"
        hex"7618b065f9832de4ca6ca971a7a1adc826d0f7c00181a5fb2ddf79ae00b4e10e";

    /// @dev Bit `index`: the part stands.
    uint256 private constant ALL = (1 << PARTS) - 1;
    uint256 private constant BEGUN = 1 << PARTS;

    bytes32[PARTS] private _codeHashes;
    mapping(bytes32 deployment => uint256 bits) private _progress;

    constructor(bytes32[] memory codeHashes) {
        if (codeHashes.length != PARTS) revert WrongPartCount(codeHashes.length, PARTS);
        for (uint256 i = 0; i < PARTS; ++i) {
            _codeHashes[i] = codeHashes[i];
        }
    }

    /// @inheritdoc IDeployment
    function begin(Parameters calldata chosen, bytes calldata firstHeader, bytes calldata secondHeader)
        external
        returns (bytes32 deployment)
    {
        deployment = _saltOf(chosen);
        if (_progress[deployment] != 0) revert AlreadyBegun(deployment);
        uint256 rule = Windows.brokenRule(chosen);
        if (rule != 0) revert InvalidParameters(rule, chosen);
        _requirePrecompiles();
        _requireBeacon(firstHeader, secondHeader);
        _progress[deployment] = BEGUN;
        emit Begun(deployment, chosen);
    }

    /// @inheritdoc IDeployment
    function create(Parameters calldata chosen, uint256 index, bytes calldata creationCode)
        external
        returns (address part)
    {
        if (index >= PARTS) revert UnknownPart(index, PARTS);
        bytes32 codeHash = keccak256(creationCode);
        if (codeHash != _codeHashes[index]) revert WrongCode(index, codeHash, _codeHashes[index]);
        bytes32 deployment = _saltOf(chosen);
        uint256 progress = _progress[deployment];
        if (progress == 0) revert NotBegun(deployment);
        uint256 bit = 1 << index;
        if (progress & bit != 0) revert AlreadyCreated(deployment, index, _addressOf(deployment, index));
        progress |= bit;
        _progress[deployment] = progress;
        _remember(abi.encode(chosen));
        bytes memory code = creationCode;
        assembly ("memory-safe") {
            part := create2(0, add(code, 32), mload(code), deployment)
        }
        if (part == address(0)) revert CreationFailed(deployment, index);
        _remember(new bytes(WORDS * 32));
        emit PartCreated(deployment, index, part);
        if (progress == BEGUN | ALL) emit Deployed(deployment, _contractsOf(deployment), chosen);
    }

    /// @inheritdoc IDeployment
    function codeHashOf(uint256 index) external view returns (bytes32) {
        if (index >= PARTS) revert UnknownPart(index, PARTS);
        return _codeHashes[index];
    }

    /// @inheritdoc IDeployment
    function addressesOf(Parameters calldata chosen) external view returns (Contracts memory) {
        return _contractsOf(_saltOf(chosen));
    }

    /// @inheritdoc IDeployment
    function progressOf(Parameters calldata chosen) external view returns (bool begun, uint256 created) {
        uint256 bits = _progress[_saltOf(chosen)];
        return (bits != 0, bits & ALL);
    }

    /// @inheritdoc IDeployment
    function parameters() public view returns (Parameters memory chosen) {
        bytes memory encoded = new bytes(WORDS * 32);
        assembly ("memory-safe") {
            for { let i := 0 } lt(i, WORDS) { i := add(i, 1) } {
                mstore(add(encoded, mul(add(i, 1), 32)), tload(i))
            }
        }
        chosen = abi.decode(encoded, (Parameters));
        if (chosen.lag == 0) revert NothingUnderWay();
    }

    /// @inheritdoc IDeployment
    function contracts() external view returns (Contracts memory) {
        return _contractsOf(keccak256(abi.encode(parameters())));
    }

    function _remember(bytes memory encoded) private {
        assembly ("memory-safe") {
            for { let i := 0 } lt(i, WORDS) { i := add(i, 1) } {
                tstore(i, mload(add(encoded, mul(add(i, 1), 32))))
            }
        }
    }

    function _saltOf(Parameters calldata chosen) private pure returns (bytes32) {
        return keccak256(abi.encode(chosen));
    }

    function _addressOf(bytes32 deployment, uint256 index) private view returns (address) {
        return Create2.computeAddress(deployment, _codeHashes[index]);
    }

    /// @dev Contracts has PARTS addresses in the order of the parts.
    function _contractsOf(bytes32 deployment) private view returns (Contracts memory parts) {
        address[PARTS] memory addresses;
        for (uint256 i = 0; i < PARTS; ++i) {
            addresses[i] = _addressOf(deployment, i);
        }
        parts = abi.decode(abi.encode(addresses), (Contracts));
    }

    function _requirePrecompiles() private view {
        (bool verified, bytes memory answer) = P256VERIFY.staticcall(P256_VECTOR);
        if (!verified || answer.length != 32 || uint256(bytes32(answer)) != 1) revert PrecompileMissing(P256VERIFY);
        bytes32 parent = blockhash(block.number - 1);
        (bool known, bytes memory kept) = HISTORY.staticcall(abi.encode(block.number - 1));
        if (!known || kept.length != 32 || parent == 0 || bytes32(kept) != parent) revert PrecompileMissing(HISTORY);
    }

    function _requireBeacon(bytes calldata firstHeader, bytes calldata secondHeader) private view {
        (uint256 first, bytes32 firstRandao) = _randaoOf(firstHeader);
        (uint256 second, bytes32 secondRandao) = _randaoOf(secondHeader);
        if (first == second || firstRandao == secondRandao) revert ConstantBeacon(first, second);
    }

    function _randaoOf(bytes calldata header) private view returns (uint256 number, bytes32 randao) {
        bytes32 headerHash;
        (number, randao, headerHash) = BlockHeader.parse(header);
        bytes32 blockHash = blockhash(number);
        if (blockHash == 0 || blockHash != headerHash) revert UnknownHeader(number, headerHash, blockHash);
    }
}
