// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {CallingBack} from "./CallingBack.sol";

/// @title A token that tells its holders before and after each transfer, as those of ERC-777 do
contract HookToken is ERC20 {
    mapping(address holder => bool) private _told;

    constructor() ERC20("Hook", "HOOK") {}

    function mint(address to, uint256 amount) external {
        _mint(to, amount);
    }

    function tell(address holder) external {
        _told[holder] = true;
    }

    function _update(address from, address to, uint256 amount) internal override {
        if (_told[from]) CallingBack(payable(from)).moved();
        super._update(from, to, amount);
        if (_told[to]) CallingBack(payable(to)).moved();
    }
}
