// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Deployment} from "./Deployment.sol";
import {Order, Row} from "../interfaces/TrothTypes.sol";

/// @title The EIP-712 messages that the contract checks
abstract contract TypedData is Deployment {
    bytes32 private constant ORDER_TYPE = keccak256(
        "Order(bytes32 executionClass,bytes32 requestHash,address scheduler,uint96 maxFee,uint64 deadline,uint64 referenceBlock,uint64 nonce,bytes32 ends)"
    );
    bytes32 private constant TRACE_ROOT_TYPE = keccak256(
        "TraceRoot(bytes32 taskId,uint8 segment,uint8 attempt,uint32 positions,bytes32 root,bytes32 outputHash)"
    );
    bytes32 private constant VERDICT_COMMITMENT_TYPE = keccak256(
        "VerdictCommitment(bytes32 taskId,uint8 segment,uint8 attempt,bytes32 commitment,bytes32 judged)"
    );
    bytes32 private constant ROW_TYPE = keccak256(
        "Row(bytes32 taskId,uint8 segment,uint8 attempt,uint32 position,bytes32 rowHash,bytes32 previous)"
    );
    bytes32 private constant CONSENT_TYPE = keccak256("Consent(address owner,address operator)");

    function _orderDigest(Order calldata order) internal view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(
                abi.encode(
                    ORDER_TYPE,
                    order.executionClass,
                    order.requestHash,
                    order.scheduler,
                    order.maxFee,
                    order.deadline,
                    order.referenceBlock,
                    order.nonce,
                    order.ends
                )
            )
        );
    }

    /// @dev Struct hash of what an inferencer signs, and what a verifier says that it judged.
    function _traceRootHash(
        bytes32 taskId,
        uint256 segment,
        uint8 attempt,
        uint32 positions,
        bytes32 root,
        bytes32 outputHash
    ) internal pure returns (bytes32) {
        return keccak256(abi.encode(TRACE_ROOT_TYPE, taskId, segment, attempt, positions, root, outputHash));
    }

    /// @param judged struct hash of the inferencer's TraceRoot: a verdict cannot be posted beside another root or text
    function _verdictHash(bytes32 taskId, uint256 segment, uint8 attempt, bytes32 commitment, bytes32 judged)
        internal
        pure
        returns (bytes32)
    {
        return keccak256(abi.encode(VERDICT_COMMITMENT_TYPE, taskId, segment, attempt, commitment, judged));
    }

    function _rowDigest(Row calldata row) internal view returns (bytes32) {
        return _hashTypedDataV4(
            keccak256(
                abi.encode(
                    ROW_TYPE, row.taskId, row.segment, row.attempt, row.position, row.rowHash, row.previous
                )
            )
        );
    }

    function _consentDigest(address owner, address operator) internal view returns (bytes32) {
        return _hashTypedDataV4(keccak256(abi.encode(CONSENT_TYPE, owner, operator)));
    }
}
