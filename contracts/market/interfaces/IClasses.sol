// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {ExecutionClass, ModelDescriptor} from "./MarketTypes.sol";

/// @title Models and execution classes under the hash of their content
/// @notice Anybody may register either; what is refused can cheat somebody whatever its users agree to.
interface IClasses {
    event ModelRegistered(bytes32 indexed model, ModelDescriptor descriptor);
    event ClassRegistered(bytes32 indexed executionClass, bytes32 indexed model, ExecutionClass class);

    error AlreadyRegistered(bytes32 id);
    error UnknownModel(bytes32 model);
    error InvalidModel(uint16 layers, uint32 hiddenSize, uint32 vocabulary, uint8 dtype, bytes32 weightsRoot);
    error InvalidMantissaBits(uint8 mantissaBits, uint8 maximum);
    error InvalidTheta(uint16 theta);
    /// @notice An exact class opens no tiles; a tolerant one at least one, and not more than a one-row trace has.
    error InvalidTiles(uint8 tiles, uint256 maximum);
    /// @notice All reveals of a case would be more bytes than one call may carry.
    error CallTooLarge(uint256 length, uint256 maximum);
    error InvalidCommittee(uint8 candidates, uint8 verifiers, uint8 reviewers);
    error InvalidShares(uint32 leastCheckRate, uint16 honestShare);
    error InvalidPrices(uint96 checkPrice, uint96 feeCap);
    error InvalidSeatCap(uint16 seatCap, uint256 maximum);
    error InvalidCuts(uint32 secondCut, uint16 poolLimit, uint32 poolWindow);
    /// @notice A cheat would gain more than it loses; `detection` is p, 18 decimals.
    error PenaltyTooLow(uint96 penalty, uint96 feeCap, uint256 detection);
    /// @notice A conviction must cover the client's refund, and a scheduler's stake a conviction.
    error PenaltyOutOfRange(uint96 penalty, uint256 least, uint256 most);
    /// @notice A tenth of the penalty, with the chance of a conviction (18 decimals), does not pay for the gas that is lost
    ///         without one: nobody would bring a rejection.
    error RewardTooLow(uint96 penalty, uint256 convicting, uint256 gasPrice);
    error SeatTooLow(uint96 seat, uint256 least);

    function registerModel(ModelDescriptor calldata descriptor) external returns (bytes32 model);

    /// @notice Refuses a class whose penalty is below 1.5 g (1 - p) / p (library Economy), below twice the fee's cap or
    ///         above a scheduler's least stake, whose reward brings no rejection to the court, whose seat does not cover two
    ///         penalties, a case's gas and reward, or whose largest call would not fit a transaction.
    function registerClass(ExecutionClass calldata class) external returns (bytes32 executionClass);
}
