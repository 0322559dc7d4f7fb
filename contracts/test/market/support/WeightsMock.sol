// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IWeights} from "../../../market/interfaces/IWeights.sol";

/// @title Weights that a test sets; whoever it does not name weighs fully
contract WeightsMock is IWeights {
    mapping(address operator => uint256) private _lost;

    function set(address operator, uint256 weight) external {
        _lost[operator] = type(uint256).max - weight;
    }

    function weightAt(address operator, uint256) external view returns (uint256) {
        return type(uint256).max - _lost[operator];
    }
}
