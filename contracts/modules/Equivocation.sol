// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ITrothEquivocation} from "../interfaces/ITrothEquivocation.sol";
import {Account, Row, SlashReason} from "../interfaces/TrothTypes.sol";
import {Money} from "./Money.sol";
import {TypedData} from "./TypedData.sol";

/// @title Two signed rows for one position
abstract contract Equivocation is ITrothEquivocation, Money, TypedData {
    /// @dev The reporter's share is one in this many, so that reporting oneself never pays.
    uint256 private constant REPORTER_SHARE = 4;

    /// @inheritdoc ITrothEquivocation
    function proveEquivocation(Row calldata a, bytes calldata signatureA, Row calldata b, bytes calldata signatureB)
        external
    {
        if (a.taskId != b.taskId || _place(a) != _place(b)) {
            revert DifferentPositions(a.taskId, b.taskId, _place(a), _place(b));
        }
        bytes32 digestA = _rowDigest(a);
        bytes32 digestB = _rowDigest(b);
        if (digestA == digestB) revert SameRow(digestA);
        address signer = ECDSA.recoverCalldata(digestA, signatureA);
        address other = ECDSA.recoverCalldata(digestB, signatureB);
        if (signer != other) revert DifferentSigners(signer, other);
        Account memory account = _accounts[signer];
        bool free = account.exitBlock != 0 && block.number > account.exitBlock;
        if (free || account.stake == 0) revert NothingAtStake(signer);
        emit EquivocationProven(a.taskId, signer, msg.sender, a.segment, a.attempt, a.position);
        bytes32 evidence = keccak256(abi.encode(digestA, digestB));
        uint256 taken = _slash(a.taskId, signer, account.stake, SlashReason.Equivocated, evidence);
        uint256 reward = taken / REPORTER_SHARE;
        _credit(a.taskId, msg.sender, reward);
        _credit(a.taskId, RESERVE, taken - reward);
    }

    /// @dev Segment, attempt and position in one number.
    function _place(Row calldata row) private pure returns (uint256) {
        return uint256(row.segment) << 40 | uint256(row.attempt) << 32 | row.position;
    }
}
