// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {console} from "@uniswap/v4-core/lib/forge-std/src/console.sol";
import {DrawRequest, PotKind, Tab} from "../../../market/interfaces/MarketTypes.sol";
import {
    Admission,
    Draw,
    Opinion,
    Order,
    Promise,
    Result,
    SignedOrder,
    Verdict,
    Work
} from "../../../market/interfaces/Signed.sol";
import {Messages} from "../../../market/libraries/Messages.sol";
import {Orders} from "../../../market/libraries/Orders.sol";
import {MarketTest} from "./MarketTest.sol";

/// @dev A tab key that agrees to one digest (EIP-1271), until it is told not to.
contract ContractKey {
    bytes32 public agreed;

    function agree(bytes32 digest) external {
        agreed = digest;
    }

    function isValidSignature(bytes32 digest, bytes calldata) external view returns (bytes4) {
        return digest == agreed ? bytes4(0x1626ba7e) : bytes4(0xffffffff);
    }
}

/// @title Served orders with everything that was signed over them
abstract contract EvidenceTest is MarketTest {
    uint256 private constant TRANSACTION = 21_000;
    /// @dev Half of secp256k1's order, doubled: n.
    uint256 private constant N = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141;

    /// @dev A whole play of one order.
    struct Play {
        SignedOrder order;
        bytes32 id;
        address[] nodes;
        Admission admission;
        bytes admissionSignature;
        Result[] results;
        bytes[] resultSignatures;
        bytes32 resultsHash;
        Draw draw;
        bytes drawSignature;
        bytes32 secret;
    }

    /// @dev Verdicts of drawn seats with the hints of their draw.
    struct Check {
        address[] seats;
        bytes hints;
        Verdict[] verdicts;
        bytes[] signatures;
    }

    function play(bytes32 class, bytes32 ends, uint64 sequence) internal view returns (Play memory made) {
        return play(newOrder(class, ends, sequence));
    }

    function play(Order memory order) internal view returns (Play memory made) {
        made.order = signOrder(order);
        made.id = orderId(order);
        made.nodes = inferencers(order);
        made.secret = drawSecret(order.sequence);
        (made.results, made.resultSignatures, made.resultsHash) = results(order, made.nodes);
        (made.draw, made.drawSignature) = signDraw(order, made.resultsHash);
        (made.admission, made.admissionSignature) = signAdmission(order, made.nodes);
    }

    /// @dev The scheduler says this of its order instead.
    function signAgain(Play memory made) internal view {
        made.drawSignature = sign(SCHEDULER_KEY, Messages.hash(made.draw));
        made.admissionSignature = sign(SCHEDULER_KEY, Messages.hash(made.admission));
    }

    /// @dev The seats that check a segment, silent nodes' owners passed over.
    function seatsOf(Play memory made, uint8 segment, address[] memory silent)
        internal
        view
        returns (address[] memory seats, bytes memory hints)
    {
        Order memory order = made.order.order;
        DrawRequest memory request;
        (request.first, request.end) = segmentAt(order.ends, segment);
        request.executionClass = order.executionClass;
        request.blockNumber = order.referenceBlock;
        request.seed = Messages.segmentSeed(
            Messages.checkSeed(made.id, made.secret, made.draw.beta, made.resultsHash), segment
        );
        request.count = registry.rulesOf(order.executionClass).verifiers;
        request.seasoned = true;
        request.excluded = ownersOf(joined(made.nodes, silent));
        (seats, hints) = lens.draw(request);
    }

    function checkOf(Play memory made, uint8 segment, Opinion opinion) internal view returns (Check memory check) {
        return checkOf(made, segment, opinion, new address[](0));
    }

    /// @dev One verdict per drawn node, all of this opinion.
    function checkOf(Play memory made, uint8 segment, Opinion opinion, address[] memory silent)
        internal
        view
        returns (Check memory check)
    {
        (check.seats, check.hints) = seatsOf(made, segment, silent);
        address[] memory nodes = distinct(check.seats);
        check.verdicts = new Verdict[](nodes.length);
        check.signatures = new bytes[](nodes.length);
        for (uint256 i = 0; i < nodes.length; ++i) {
            check.verdicts[i] = verdictOf(made, segment, opinion);
            check.signatures[i] = signAs(nodes[i], Messages.hash(check.verdicts[i]));
        }
    }

    function verdictOf(Play memory made, uint8 segment, Opinion opinion) internal pure returns (Verdict memory) {
        return Verdict({
            order: made.id,
            segment: segment,
            result: Messages.hash(made.results[segment]),
            commitment: keccak256("commitment"),
            opinion: uint8(opinion),
            locks: false
        });
    }

    // ---- promises

    /// @dev The tab whose key is the scheduler's operator.
    function nodeTab(address node) internal view returns (Tab memory) {
        return Tab({payer: ownerOf(scheduler), payee: node, key: scheduler});
    }

    function promiseOf(Play memory made, address node, uint8 segment, Work work)
        internal
        view
        returns (Promise memory promised)
    {
        promised.tab = Messages.tabId(nodeTab(node));
        promised.sequence = 1;
        promised.order = made.id;
        promised.segment = segment;
        promised.work = uint8(work);
        promised.referenceBlock = made.order.order.referenceBlock;
        (promised.promptAsk, promised.cachedAsk, promised.writtenAsk) = (ASK, ASK, ASK);
        promised.price = FEE_CAP;
    }

    function burntMoney() internal view returns (uint256) {
        return bank.balanceOf(PotKind.Burnt, 0);
    }

    // ---- signatures that must not pass

    /// @dev The same signature with the other s.
    function malleated(bytes memory signature) internal pure returns (bytes memory) {
        (bytes32 r, bytes32 s, uint8 v) = (bytes32(0), bytes32(0), uint8(signature[64]));
        assembly ("memory-safe") {
            r := mload(add(signature, 0x20))
            s := mload(add(signature, 0x40))
        }
        return abi.encodePacked(r, bytes32(N - uint256(s)), v == 27 ? uint8(28) : uint8(27));
    }

    /// @dev Signed for a deployment whose bank is another.
    function foreign(uint256 key, bytes32 structHash) internal returns (bytes memory) {
        bytes32 digest = Messages.digest(Messages.separator(makeAddr("another bank")), structHash);
        (uint8 v, bytes32 r, bytes32 s) = vm.sign(key, digest);
        return abi.encodePacked(r, s, v);
    }

    function joined(address[] memory one, address[] memory other) internal pure returns (address[] memory all) {
        all = new address[](one.length + other.length);
        for (uint256 i = 0; i < one.length; ++i) all[i] = one[i];
        for (uint256 i = 0; i < other.length; ++i) all[one.length + i] = other[i];
    }

    function listOf(address item) internal pure returns (address[] memory list) {
        list = new address[](1);
        list[0] = item;
    }

    // ---- gas

    /// @dev Makes a call as a transaction of its own would, and says what it took, refunds not counted. A transaction's
    ///      receiver is warm, and its value is part of its base; a call's costs 9,000, of which 2,300 come back.
    function transact(string memory name, address target, address sender, uint256 sent, bytes memory data)
        internal
        returns (uint256 used)
    {
        used = TRANSACTION;
        for (uint256 i = 0; i < data.length; ++i) used += data[i] == 0 ? 4 : 16;
        vm.prank(sender);
        uint256 before = gasleft();
        (bool success, bytes memory reason) = target.call{value: sent}(data);
        used += before - gasleft() - 2600 - (sent == 0 ? 0 : 6700);
        if (!success) raise(reason);
        console.log(name, used);
    }
}
