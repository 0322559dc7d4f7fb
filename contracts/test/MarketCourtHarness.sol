// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IBank} from "../market/interfaces/IBank.sol";
import {Contracts} from "../market/interfaces/IDeployment.sol";
import {Movement, Parameters, PotKind, Role, Rules} from "../market/interfaces/MarketTypes.sol";
import {Fines} from "../market/libraries/Fines.sol";

/// @notice Creates the market's stateless parts and answers them as its other parts would, with what a test says: for the
///         tests that compare what they decide with the Python rules.
contract MarketCourtHarness {
    /// @notice The stateless parts, in the order of their bytecode.
    address[] public parts;
    /// @notice What the last call to `move` was.
    bytes public moved;

    Parameters private _parameters;
    Rules private _rules;
    mapping(PotKind kind => mapping(bytes32 id => uint96)) private _pots;
    mapping(address operator => bytes32) private _classes;
    uint16 private _poolCount;
    uint40 private _poolSince;
    bool private _void;

    function begin(Parameters calldata chosen, bytes[] calldata codes) external {
        _parameters = chosen;
        delete parts;
        for (uint256 i = 0; i < codes.length; ++i) {
            bytes memory code = codes[i];
            address part;
            assembly ("memory-safe") {
                part := create(0, add(code, 0x20), mload(code))
            }
            require(part != address(0), "creation failed");
            parts.push(part);
        }
    }

    function set(Rules calldata rules, PotKind[] calldata kinds, bytes32[] calldata ids, uint96[] calldata amounts)
        external
    {
        _rules = rules;
        for (uint256 i = 0; i < ids.length; ++i) {
            _pots[kinds[i]][ids[i]] = amounts[i];
        }
    }

    function setPool(uint16 count, uint40 since) external {
        (_poolCount, _poolSince) = (count, since);
    }

    function setClasses(address[] calldata operators, bytes32 executionClass) external {
        for (uint256 i = 0; i < operators.length; ++i) {
            _classes[operators[i]] = executionClass;
        }
    }

    function setVoid(bool void) external {
        _void = void;
    }

    /// @notice The call to the Bank by which a conviction takes a penalty.
    function fine(address operator, uint256 penalty, Fines.Payee[] calldata payees) external returns (bytes memory) {
        delete moved;
        (uint256 free, uint256 taken) = Fines.available(IBank(address(this)), operator, penalty);
        Fines.take(IBank(address(this)), 0, operator, free, taken, payees);
        return moved;
    }

    function blockNumber() external view returns (uint256) {
        return block.number;
    }

    // ------------------------------------------------------------------------------------- as the other parts answer

    function parameters() external view returns (Parameters memory) {
        return _parameters;
    }

    function contracts() external view returns (Contracts memory all) {
        address own = address(this);
        all = Contracts(own, own, own, own, own, own, own, own, own, own, own, own);
    }

    function move(bytes32, Movement[] calldata) external {
        moved = msg.data;
    }

    function balanceOf(PotKind kind, bytes32 id) external view returns (uint96) {
        return _pots[kind][id];
    }

    function stakeOf(address operator) external view returns (uint96 stake, uint96 locked) {
        bytes32 id = Fines.toId(operator);
        return (_pots[PotKind.Stake][id], _pots[PotKind.Locked][id]);
    }

    function rulesOf(bytes32) external view returns (Rules memory) {
        return _rules;
    }

    function committeeOf(bytes32) external view returns (bool exact, uint8 verifiers, uint8 reviewers) {
        return (_rules.exact, _rules.verifiers, _rules.reviewers);
    }

    function classOf(address operator) external view returns (bytes32) {
        return _classes[operator];
    }

    function roleOf(address operator) external view returns (Role role, address owner, uint40 exitBlock) {
        return (_classes[operator] == 0 ? Role.None : Role.Node, operator, 0);
    }

    function ownerOf(address operator) external pure returns (address) {
        return operator;
    }

    function pooledOf(address, bytes32) external view returns (uint16 count, uint40 since) {
        return (_poolCount, _poolSince);
    }

    function isVoidByAny(address, uint64) external view returns (bool) {
        return _void;
    }

    /// @notice Nobody was asked for results.
    function summonsIdOf(bytes32 order, uint8 kind, uint8 segment) external pure returns (bytes32) {
        return keccak256(abi.encode(order, kind, segment));
    }

    function summonsOf(bytes32) external pure returns (bytes32) {
        return 0;
    }

    function isVoided(bytes32, uint8) external pure returns (bool) {
        return false;
    }
}
