// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {Ask, Rules, Tab, Voucher} from "../market/interfaces/MarketTypes.sol";
import {
    Admission,
    Draw,
    Inclusion,
    Order,
    Promise,
    Result,
    ReviewCommitment,
    Row,
    TraceCommitment,
    Verdict
} from "../market/interfaces/Signed.sol";
import {BlockHeader} from "../market/libraries/BlockHeader.sol";
import {Economy} from "../market/libraries/Economy.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Orders} from "../market/libraries/Orders.sol";
import {Prices} from "../market/libraries/Prices.sol";
import {SumTree} from "../market/libraries/SumTree.sol";

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

    function depthOf(uint64 first, uint64 last) external pure returns (uint256) {
        return SumTree.depthOf(first, last);
    }

    /// @notice The root of a claim, and its total, that follow from one leaf and its path.
    function climb(
        uint64 first,
        uint64 last,
        uint64 sequence,
        uint96 amount,
        bytes32[] calldata siblings,
        uint96[] calldata sums
    ) external pure returns (bytes32 root, uint96 total) {
        uint256 depth = SumTree.depthOf(first, last);
        (root, total) =
            SumTree.climb(SumTree.leafHash(sequence, amount), amount, sequence - first, depth, siblings, sums);
        root = SumTree.claimRoot(root, total, first, last);
    }

    function atLeast(uint256 trials, uint256 least, uint256 share) external pure returns (uint256) {
        return Economy.atLeast(trials, least, share);
    }

    function chances(uint256 rate, uint256 share, uint256 verifiers, uint256 reviewers)
        external
        pure
        returns (uint256 detection, uint256 conviction, uint256 supermajority)
    {
        detection = Economy.detection(rate, share, verifiers, reviewers);
        conviction = Economy.conviction(share, reviewers);
        supermajority = Economy.supermajority(reviewers);
    }

    function caseGas(uint256 reviewers, uint256 tiles) external pure returns (uint256) {
        return Economy.caseGas(reviewers, tiles);
    }

    function sound(uint256 penalty, uint256 feeCap, uint256 chance, uint256 spent, uint256 gasPrice)
        external
        pure
        returns (bool deters, bool rewards, uint256 leastSeat)
    {
        deters = Economy.deters(penalty, feeCap, chance);
        rewards = Economy.rewards(penalty, chance, spent, gasPrice);
        leastSeat = Economy.leastSeat(penalty, spent, gasPrice);
    }

    function parse(bytes calldata header) external pure returns (uint256 number, bytes32 randao, bytes32 hash) {
        return BlockHeader.parse(header);
    }

    function segmentCount(bytes32 ends) external pure returns (uint256) {
        return Orders.segmentCount(ends);
    }

    function layersOf(bytes32 ends, uint256 segment) external pure returns (uint8 first, uint8 end) {
        return Orders.layersOf(ends, segment);
    }
}
