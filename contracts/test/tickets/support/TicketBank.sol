// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {TabState} from "../../../market/interfaces/MarketTypes.sol";

/// @title What Tickets and its payers ask a market's Bank: tabs that open, grow and close
contract TicketBank {
    address public immutable ASSET;
    mapping(bytes32 tab => TabState) private _tabs;
    mapping(bytes32 tab => address) private _payers;
    mapping(bytes32 tab => address) private _payees;
    bool public refuses;
    /// @notice Gas that filling a tab takes on top: a token may take as much as it likes.
    uint256 public heavy;

    error Refused();

    constructor(address asset) {
        ASSET = asset;
    }

    function refuse(bool all) external {
        refuses = all;
    }

    function weigh(uint256 gas_) external {
        heavy = gas_;
    }

    function openTab(address payee, address key, uint96 amount, bytes calldata) external payable returns (bytes32 tab) {
        tab = keccak256(abi.encode(msg.sender, payee, key));
        _take(tab, amount);
        (_tabs[tab].known, _payers[tab], _payees[tab]) = (true, msg.sender, payee);
    }

    function topUp(bytes32 tab, uint96 amount) external payable {
        _take(tab, amount);
    }

    /// @notice In place of vouchers and delays: so much was spent, the rest goes back at once.
    function end(bytes32 tab, uint96 spent) external {
        uint96 rest = _tabs[tab].balance - spent;
        delete _tabs[tab];
        (bool paid,) = _payees[tab].call{value: spent}("");
        (bool returned,) = _payers[tab].call{value: rest}("");
        if (!paid || !returned) revert Refused();
    }

    function tabOf(bytes32 tab) external view returns (TabState memory) {
        return _tabs[tab];
    }

    function _take(bytes32 tab, uint96 amount) private {
        for (uint256 left = gasleft(); left - gasleft() < heavy;) {}
        if (refuses || (ASSET == address(0) && msg.value != amount)) revert Refused();
        if (ASSET != address(0)) IERC20(ASSET).transferFrom(msg.sender, address(this), amount);
        _tabs[tab].balance += amount;
    }
}
