// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {Clones} from "@openzeppelin/contracts/proxy/Clones.sol";
import {Address} from "@openzeppelin/contracts/utils/Address.sol";
import {EIP712} from "@openzeppelin/contracts/utils/cryptography/EIP712.sol";
import {IBank} from "../market/interfaces/IBank.sol";
import {Tab} from "../market/interfaces/MarketTypes.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Signatures} from "../market/libraries/Signatures.sol";
import {ITicketPayer, PayerCall} from "./ITicketPayer.sol";

/// @title The payer of a tab that tickets filled
/// @notice See ITicketPayer. Tickets makes one clone for each tab key, which is its only immutable argument.
contract TicketPayer is ITicketPayer, EIP712 {
    using SafeERC20 for IERC20;

    bytes32 private constant COMMAND_TYPE =
        keccak256("PayerCommand(bytes32 calls,uint96 fee,uint64 nonce,uint64 lastBlock)");

    address private immutable TICKETS;
    IBank private immutable BANK;
    address private immutable ASSET;

    /// @inheritdoc ITicketPayer
    uint64 public nonce;

    constructor(IBank bank) EIP712("Troth", "1") {
        (TICKETS, BANK, ASSET) = (msg.sender, bank, bank.ASSET());
    }

    /// @notice What comes back from tabs, cases and credits.
    receive() external payable {}

    /// @inheritdoc ITicketPayer
    function fill(address payee, uint96 amount, bytes calldata consent) external {
        if (msg.sender != TICKETS) revert NotTickets(msg.sender);
        address key = tabKey();
        bytes32 tab = Messages.tabId(Tab({payer: address(this), payee: payee, key: key}));
        uint256 value = amount;
        if (ASSET != address(0)) {
            value = 0;
            IERC20(ASSET).forceApprove(address(BANK), amount);
        }
        if (BANK.tabOf(tab).known) BANK.topUp{value: value}(tab, amount);
        else BANK.openTab{value: value}(payee, key, amount, consent);
    }

    /// @inheritdoc ITicketPayer
    function command(PayerCall[] calldata calls, uint96 fee, uint64 lastBlock, bytes calldata signature) external {
        if (block.number > lastBlock) revert CommandTooLate(lastBlock, block.number);
        uint64 number = nonce++;
        bytes32 structHash = keccak256(abi.encode(COMMAND_TYPE, keccak256(abi.encode(calls)), fee, number, lastBlock));
        address signer = Signatures.signerOf(_hashTypedDataV4(structHash), signature);
        if (signer != tabKey()) revert NotTabKey(signer, tabKey());
        emit Commanded(number, msg.sender, fee, calls.length);
        for (uint256 i = 0; i < calls.length; ++i) {
            Address.functionCallWithValue(calls[i].target, calls[i].data, calls[i].value);
        }
        if (fee == 0) return;
        if (ASSET == address(0)) Address.sendValue(payable(msg.sender), fee);
        else IERC20(ASSET).safeTransfer(msg.sender, fee);
    }

    /// @inheritdoc ITicketPayer
    function tabKey() public view returns (address) {
        return abi.decode(Clones.fetchCloneArgs(address(this)), (address));
    }
}
