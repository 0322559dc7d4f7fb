// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {
    Admission,
    Ask,
    Draw,
    Inclusion,
    Order,
    Promise,
    Result,
    ReviewCommitment,
    Row,
    Rules,
    Tab,
    TraceCommitment,
    Verdict,
    Voucher
} from "../market/interfaces/MarketTypes.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Prices} from "../market/libraries/Prices.sol";

/// @notice Makes the market's internal libraries callable, for the tests that compare them with the Python rules.
contract MarketLibraryHarness {
    function digests(
        bytes32 domain,
        Order calldata order,
        Voucher calldata voucher,
        Promise calldata promised,
        Result calldata result,
        Verdict calldata verdict
    ) external pure returns (bytes32[5] memory found) {
        found[0] = Messages.digest(domain, Messages.hash(order));
        found[1] = Messages.digest(domain, Messages.hash(voucher));
        found[2] = Messages.digest(domain, Messages.hash(promised));
        found[3] = Messages.digest(domain, Messages.hash(result));
        found[4] = Messages.digest(domain, Messages.hash(verdict));
    }

    function smallDigests(
        bytes32 domain,
        Admission calldata admission,
        Row calldata row,
        Draw calldata draw,
        TraceCommitment calldata trace,
        Inclusion calldata inclusion,
        ReviewCommitment calldata review
    ) external pure returns (bytes32[6] memory found) {
        found[0] = Messages.digest(domain, Messages.hash(admission));
        found[1] = Messages.digest(domain, Messages.hash(row));
        found[2] = Messages.digest(domain, Messages.hash(draw));
        found[3] = Messages.digest(domain, Messages.hash(trace));
        found[4] = Messages.digest(domain, Messages.hash(inclusion));
        found[5] = Messages.digest(domain, Messages.hash(review));
    }

    function separator(address bank) external view returns (bytes32) {
        return Messages.separator(bank);
    }

    function tabId(Tab calldata tab) external pure returns (bytes32) {
        return Messages.tabId(tab);
    }

    function seeds(bytes32 order, bytes32 secret, bytes32 results, bytes32[] calldata commitments)
        external
        pure
        returns (bytes32[6] memory found)
    {
        found[0] = Messages.inferAlpha(order);
        found[1] = Messages.drawAlpha(order);
        found[2] = Messages.checkSeed(order, secret, commitments.length == 0 ? secret : commitments[0], results);
        found[3] = Messages.segmentSeed(secret, 3);
        found[4] = Messages.courtSeed(order, 1, secret);
        found[5] = Messages.tilesSeed(order, commitments, secret);
    }

    function sets(bytes32[] calldata structHashes, address[] calldata nodes)
        external
        pure
        returns (bytes32 results, bytes32 admitted)
    {
        return (Messages.resultsHash(structHashes), Messages.nodesHash(nodes));
    }

    function hits(bytes32 secret, bytes32 beta, uint256 checkRate) external pure returns (bool) {
        return Messages.hits(secret, beta, checkRate);
    }

    function fee(Order calldata order, Rules calldata rules, uint256 segments, Result calldata last)
        external
        pure
        returns (uint256)
    {
        return Prices.fee(order, rules, segments, last);
    }

    function pay(Order calldata order, Rules calldata rules, Promise calldata promised, Result calldata result, uint256 width)
        external
        pure
        returns (uint256 unit, uint256 reward, uint256 worth, Ask memory bound)
    {
        uint256 count = Prices.positions(result.prompt, result.cached, result.written);
        unit = Prices.unit(rules, count);
        reward = Prices.checkReward(rules, count);
        worth = Prices.promiseWorth(promised, result);
        bound = Prices.bound(order, width, rules.layers);
    }
}
