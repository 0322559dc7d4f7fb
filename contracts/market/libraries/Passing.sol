// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {IBank} from "../interfaces/IBank.sol";

/// @title Money that a contract beside the Bank is paid there and passes on
/// @dev A token may keep a part of each transfer, or take more than it is told to: what others have in the calling contract
///      pays for neither.
library Passing {
    using SafeERC20 for IERC20;

    /// @notice What the calling contract holds of the asset.
    function held(address asset) internal view returns (uint256) {
        return asset == address(0) ? address(this).balance : IERC20(asset).balanceOf(address(this));
    }

    /// @notice Takes the calling contract's credit out of the Bank.
    /// @param named what the Bank says that it is
    /// @return what arrived of it
    function withdrawn(IBank bank, address asset, uint96 named) internal returns (uint96) {
        uint256 before = held(asset);
        bank.withdraw(address(this));
        return uint96(Math.min(named, Math.saturatingSub(held(asset), before)));
    }

    /// @notice To an account's credit in the Bank; reverts where a token takes more than that.
    function credit(IBank bank, address asset, address account, uint96 amount) internal {
        if (asset == address(0)) {
            bank.credit{value: amount}(account, amount);
            return;
        }
        uint256 before = held(asset);
        IERC20(asset).forceApprove(address(bank), amount);
        bank.credit(account, amount);
        uint256 taken = Math.saturatingSub(before, held(asset));
        if (taken > amount) revert IBank.TokenTookMore(taken, amount);
    }
}
