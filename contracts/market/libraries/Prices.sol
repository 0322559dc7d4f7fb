// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask, Rules} from "../interfaces/MarketTypes.sol";
import {Order, Promise, Result} from "../interfaces/Signed.sol";

/// @title What work costs, in one place
/// @notice Prices are asset units per 10^9 positions; every sum is rounded up once, at its end, so that six decimals suffice.
/// @dev The same rules are `troth.protocol.market.prices`; a differential test holds the two together.
library Prices {
    uint256 internal constant PER = 1e9;
    uint256 private constant MILLION = 1e6;
    uint256 private constant BASIS_POINTS = 10_000;
    /// @notice VeriLLM, Appendix E: who is right earns six units, who is wrong pays two, a bond is eight, a fine ten.
    uint256 internal constant REWARD_UNITS = 6;
    uint256 internal constant PENALTY_UNITS = 2;
    uint256 internal constant BOND_UNITS = 8;

    /// @notice Positions of a result: all that were computed, read from a cache or written.
    function positions(uint256 prompt, uint256 cached, uint256 written) internal pure returns (uint256) {
        return prompt + cached + written;
    }

    /// @notice What an answer costs: its positions, and q checks by k seats for each of `segments`; a drawn leaf costs the same
    ///         as another.
    function price(Order memory order, Rules memory rules, uint256 segments, Result memory last)
        internal
        pure
        returns (uint256)
    {
        uint256 work = uint256(order.promptPrice) * last.prompt + uint256(order.cachedPrice) * last.cached
            + uint256(order.writtenPrice) * last.written;
        uint256 checked = positions(last.prompt, last.cached, last.written) * segments * order.checkRate;
        return _price(work, checked, rules);
    }

    /// @notice The most that an answer may cost: the order's bound, and the class's cap.
    function most(Order memory order, Rules memory rules) internal pure returns (uint256) {
        return order.maxFee < rules.feeCap ? order.maxFee : rules.feeCap;
    }

    /// @notice What a client owes for an answer: its price, as far as the order's bound and the class's cap go.
    function fee(Order memory order, Rules memory rules, uint256 segments, Result memory last)
        internal
        pure
        returns (uint256 amount)
    {
        amount = price(order, rules, segments, last);
        uint256 bounded = most(order, rules);
        if (amount > bounded) amount = bounded;
    }

    /// @notice The same for what is in the calldata, of which only what counts is read.
    function feeOf(Order calldata order, Rules memory rules, uint256 segments, Result calldata last)
        internal
        pure
        returns (uint256 amount)
    {
        (uint256 prompt, uint256 cached, uint256 written) = (last.prompt, last.cached, last.written);
        uint256 work = order.promptPrice * prompt + order.cachedPrice * cached + order.writtenPrice * written;
        uint256 checked = positions(prompt, cached, written) * segments * order.checkRate;
        amount = _price(work, checked, rules);
        if (amount > order.maxFee) amount = order.maxFee;
        if (amount > rules.feeCap) amount = rules.feeCap;
    }

    /// @param work what inference costs, times 10^9
    /// @param checked positions of all segments, times q
    function _price(uint256 work, uint256 checked, Rules memory rules) private pure returns (uint256) {
        unchecked {
            // Positions take 34 bits and prices 96, segments, seats and q 45: no product has more than 176.
            return _up(work * MILLION + checked * rules.checkPrice * rules.verifiers, PER * MILLION);
        }
    }

    /// @notice What a seat earns for checking or reviewing so many positions: six units.
    function checkReward(Rules memory rules, uint256 count) internal pure returns (uint256) {
        return unit(rules, count) * REWARD_UNITS;
    }

    /// @notice The paper's unit u for so many positions; at least one.
    function unit(Rules memory rules, uint256 count) internal pure returns (uint256 amount) {
        amount = _up(uint256(rules.checkPrice) * count, PER * REWARD_UNITS);
        if (amount == 0) amount = 1;
    }

    /// @notice What a promise of inference is worth with this result: at most its price.
    function promiseWorth(Promise memory promised, Result memory result) internal pure returns (uint256 amount) {
        amount = _up(
            uint256(promised.promptAsk) * result.prompt + uint256(promised.cachedAsk) * result.cached
                + uint256(promised.writtenAsk) * result.written,
            PER
        );
        if (amount > promised.price) amount = promised.price;
    }

    /// @notice What a node may ask at most for `width` of `layers` layers: seats that ask more are passed over.
    function bound(Order memory order, uint256 width, uint256 layers) internal pure returns (Ask memory) {
        // Nobody can be promised more than everything.
        uint256 share = (order.nodeShare < BASIS_POINTS ? order.nodeShare : BASIS_POINTS) * width;
        uint256 whole = BASIS_POINTS * layers;
        return Ask({
            prompt: uint64(uint256(order.promptPrice) * share / whole),
            cached: uint64(uint256(order.cachedPrice) * share / whole),
            written: uint64(uint256(order.writtenPrice) * share / whole)
        });
    }

    function _up(uint256 value, uint256 divisor) private pure returns (uint256) {
        return (value + divisor - 1) / divisor;
    }
}
