// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Math} from "@openzeppelin/contracts/utils/math/Math.sol";
import {EcVrf} from "../../libraries/EcVrf.sol";
import {Encoded} from "../../libraries/Encoded.sol";
import {WeightsTree} from "../../libraries/WeightsTree.sol";
import {IProofs, ShownRequest, ShownToken} from "../interfaces/IProofs.sol";
import {IRegistry} from "../interfaces/IRegistry.sol";
import {Order, Result, VrfProof} from "../interfaces/Signed.sol";
import {Messages} from "./Messages.sol";
import {Orders} from "./Orders.sol";
import {PlainText} from "./PlainText.sol";

/// @title What proofs show of an answer alike: whose last segment it is, one of its tokens, and how tokens were to be chosen
library ShownAnswers {
    /// @notice How a token is chosen.
    /// @param temperature in millionths
    /// @param cut whether top_p, top_k or min_p leaves tokens out
    struct Choice {
        uint256 temperature;
        bool cut;
    }

    /// @notice The one of temperatures and of top_p.
    uint256 internal constant MILLION = 1e6;

    bytes32 private constant REQUEST_TAG = keccak256("troth/request/2");
    bytes32 private constant OUTPUT_TAG = keccak256("troth/output/2");
    bytes32 private constant NOISE_TAG = keccak256("troth/noise/1");
    /// @dev Version, class, most tokens, temperature, top_p.
    uint256 private constant TERMS = 45;
    /// @dev A draw has one for each counter that was skipped, beside the fixed ones.
    uint256 private constant MOST_HINTS = EcVrf.FIXED_HINTS + 255;
    /// @dev Words of class, model and draw in which the offsets of what has no fixed length stand.
    uint256 private constant NAME = 1;
    uint256 private constant ARCHITECTURE = 0;
    uint256 private constant VRF_PROOF = 0;
    uint256 private constant VRF_HINTS = 1;
    bytes1 private constant PLAIN = 0x01;
    /// @dev top_k or min_p leaves tokens out.
    bytes1 private constant WITH_CUTS = 0x03;

    /// @notice Bytes of what a proof shows of class, model and draw, and no more than these have: a class that nobody
    ///         registered may have any text, a draw that no noise follows from any bytes. The signature of an order is
    ///         nothing that a proof needs: nobody looks at it.
    /// @param class where its words begin in the calldata; so of `model` and `draw`
    function lengthOf(uint256 class, uint256 model, uint256 draw) internal pure returns (uint256) {
        // Some lengths below 2^32.
        unchecked {
            return Encoded.padded(Math.min(Encoded.lengthOf(class, NAME), PlainText.MAXIMUM_TEXT))
                + Encoded.padded(Math.min(Encoded.lengthOf(model, ARCHITECTURE), PlainText.MAXIMUM_TEXT))
                + Encoded.padded(Math.min(Encoded.lengthOf(draw, VRF_PROOF), EcVrf.PROOF_BYTES))
                + 32 * Math.min(Encoded.lengthOf(draw, VRF_HINTS), MOST_HINTS);
        }
    }

    /// @notice Reverts unless the result is that of the order's last segment, which alone chooses tokens.
    /// @return segments of the order
    function requireLast(Result calldata result, bytes32 ends, bytes32 order)
        internal
        pure
        returns (uint256 segments)
    {
        segments = Orders.segmentCount(ends);
        uint256 segment = result.segment;
        Orders.requirePlace(result.order, segment, order, segment);
        if (segment + 1 != segments) revert IProofs.NotLastSegment(segment, segments);
    }

    /// @notice Reverts unless the token is in the output that the result names.
    function requireToken(Result calldata result, ShownToken calldata shown) internal pure {
        if (shown.index >= result.written) revert IProofs.NoSuchToken(shown.index, result.written);
        bytes32 leaf = keccak256(abi.encodePacked(bytes1(0x00), shown.blind, shown.token));
        bytes32 tree = WeightsTree.treeRoot(leaf, shown.index, result.written, shown.siblings);
        Orders.requireEqual(keccak256(abi.encodePacked(OUTPUT_TAG, result.written, tree)), result.outputHash);
    }

    /// @notice How the order's client asked for tokens to be chosen; reverts where logits are transformed.
    function choiceOf(ShownRequest calldata request, Order calldata order) internal pure returns (Choice memory choice) {
        bytes calldata head = request.head;
        Orders.requireEqual(keccak256(abi.encodePacked(REQUEST_TAG, head, request.blind)), order.requestHash);
        if (head.length != TERMS || bytes32(head[1:33]) != order.executionClass) {
            revert IProofs.WrongTerms(head.length, order.executionClass);
        }
        if (head[0] != PLAIN && head[0] != WITH_CUTS) revert IProofs.RequestNotPlain(uint8(head[0]));
        choice.temperature = uint32(bytes4(head[37:41]));
        choice.cut = choice.temperature != 0 && (head[0] == WITH_CUTS || uint32(bytes4(head[41:45])) < MILLION);
    }

    /// @notice The row from which the shown token was chosen.
    function positionOf(Result calldata result, ShownToken calldata shown) internal pure returns (uint256) {
        uint256 position = uint256(result.prompt) + result.cached + shown.index;
        // A prompt has a token: the first row that chooses is that of its last one.
        if (position == 0) revert IProofs.NoSuchToken(shown.index, 0);
        return position - 1;
    }

    /// @notice The seed of the noise: from the output of the scheduler's VRF over the order.
    function seedOf(IRegistry registry, address scheduler, bytes32 order, VrfProof calldata draw)
        internal
        view
        returns (bytes32)
    {
        (uint256 x, uint256 y) = registry.vrfKeyOf(scheduler);
        bytes32 beta = EcVrf.verify(x, y, Messages.inferAlpha(order), draw.proof, draw.hints);
        return keccak256(abi.encode(NOISE_TAG, order, beta));
    }
}
