// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {SignatureChecker} from "@openzeppelin/contracts/utils/cryptography/SignatureChecker.sol";
import {SafeCast} from "@openzeppelin/contracts/utils/math/SafeCast.sol";
import {EcVrf} from "../libraries/EcVrf.sol";
import {TileTree} from "../libraries/TileTree.sol";
import {IBank} from "./interfaces/IBank.sol";
import {Contracts, IDeployment} from "./interfaces/IDeployment.sol";
import {IDocket} from "./interfaces/IDocket.sol";
import {IRegistry} from "./interfaces/IRegistry.sol";
import {ISummons} from "./interfaces/ISummons.sol";
import {Parameters, PotKind, Rules, Tab} from "./interfaces/MarketTypes.sol";
import {CaseKind, CasePhase, CaseState, SummonsKind} from "./interfaces/Proceedings.sol";
import {Draw, Opinion, Order, Result, SignedOrder, Verdict, VrfProof} from "./interfaces/Signed.sol";
import {BlockHeader} from "./libraries/BlockHeader.sol";
import {CaseGas} from "./libraries/CaseGas.sol";
import {ClassRules} from "./libraries/ClassRules.sol";
import {HandedOn} from "./libraries/HandedOn.sol";
import {Ledger} from "./libraries/Ledger.sol";
import {Messages} from "./libraries/Messages.sol";
import {Owners} from "./libraries/Owners.sol";
import {Prices} from "./libraries/Prices.sol";
import {Seats} from "./libraries/Seats.sol";
import {Signatures} from "./libraries/Signatures.sol";
import {States} from "./libraries/States.sol";
import {Windows} from "./libraries/Windows.sol";

/// @title Reads what a case is opened with, and draws who reviews it and what they show
/// @dev Stateless, and without any right: the Court asks it, and anybody else may.
contract Docket is IDocket {
    using Ledger for Ledger.Draft;
    using Owners for address[];

    /// @dev Tiles of the largest trace: no opening is deeper, and every allowed class' largest call fits a transaction.
    uint256 private constant MOST_TILES = 1 << 22;

    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    ISummons private immutable SUMMONS;
    /// @dev Blocks from an order's reference block to its draw, at most: stake that was drawn there is still bonded.
    uint256 private immutable ANSWER_AGE;
    uint256 private immutable LOOKAHEAD;
    uint256 private immutable DRAW_WINDOW;
    uint256 private immutable GAS_PRICE;

    constructor() {
        Contracts memory contracts = IDeployment(msg.sender).contracts();
        Parameters memory parameters = IDeployment(msg.sender).parameters();
        BANK = IBank(contracts.bank);
        REGISTRY = IRegistry(contracts.registry);
        SUMMONS = ISummons(contracts.summons);
        ANSWER_AGE = Windows.answerAge(parameters);
        LOOKAHEAD = parameters.lookahead;
        DRAW_WINDOW = parameters.drawWindow;
        GAS_PRICE = parameters.gasPrice;
    }

    // ------------------------------------------------------------------------------------------------------- opening

    /// @inheritdoc IDocket
    function examine(
        SignedOrder calldata order,
        Result[] calldata results,
        bytes[] calldata resultSignatures,
        Draw calldata draw,
        bytes calldata drawSignature,
        uint8 segment,
        bytes32 secret,
        Verdict[] calldata verdicts,
        bytes[] calldata verdictSignatures,
        VrfProof calldata proof,
        bytes calldata hints,
        bool suspend
    ) external view returns (CaseState memory state, bytes memory locks) {
        Rules memory rules;
        ClassRules.read(rules, REGISTRY, order.order.executionClass);
        bytes32 domain = Messages.separator(address(BANK));
        state.suspends = suspend;
        _readOrder(state, domain, order);
        bytes32 named = _readResults(state, domain, rules, results, resultSignatures, segment);
        _readDraw(state, domain, draw, drawSignature, named);
        _price(state, rules, order.order, results[results.length - 1], results[segment]);
        if (secret == 0 && verdicts.length == 0) {
            state.kind = CaseKind.Doubt;
        } else {
            _requireDrawn(order.order, secret, draw.beta);
            _requireProven(state, draw.beta, proof);
            address[] memory signers = _signersOf(state, domain, verdicts, verdictSignatures);
            _passOverSilent(state, rules.verifiers, signers);
            bytes32 seed = Messages.checkSeed(state.order, secret, draw.beta, draw.results);
            state.verifiers = _drawSeats(state, Messages.segmentSeed(seed, segment), rules.verifiers, hints);
            _seatVerdicts(state, verdicts, signers);
            _setKind(state);
        }
        _setOpener(state, order.key);
        States.Copy memory answer = States.encoded(state, _lock(state, rules.penalty));
        (uint256 start, uint256 size) = (answer.start, answer.size);
        assembly ("memory-safe") {
            return(start, size)
        }
    }

    /// @dev Only the client may call into question what no verifier rejected.
    function _setOpener(CaseState memory state, address key) private view {
        address opener = HandedOn.caller();
        if (state.kind != CaseKind.Rejection) {
            if (opener != state.client && opener != key) revert NotClient(opener, state.client, key);
            if (state.suspends) revert CannotSuspend(state.kind);
        }
        state.opener = opener;
        state.excluded.add(Seats.ownerOf(REGISTRY, state.scheduler));
        state.excluded.add(state.client);
        state.excluded.add(Seats.ownerOf(REGISTRY, state.client));
        if (opener == state.client) return;
        state.excluded.add(opener);
        state.excluded.add(Seats.ownerOf(REGISTRY, opener));
    }

    /// @dev Locks L of the node, or what it has, and L of each rejecter if the case suspends.
    function _lock(CaseState memory state, uint256 penalty) private view returns (bytes memory) {
        if (state.kind == CaseKind.Doubt) return "";
        bytes32 caseId = Messages.caseId(state.order, state.segment);
        bytes32 node = Ledger.id(state.node);
        uint256 stake = BANK.balanceOf(PotKind.Stake, node);
        state.locked = uint96(stake < penalty ? stake : penalty);
        Ledger.Draft memory draft = Ledger.start(caseId, 0, 1 + state.verifiers.length);
        draft.shift(PotKind.Stake, PotKind.Locked, state.node, state.locked);
        if (state.suspends) draft.lockRejecters(state, penalty);
        return draft.toCall();
    }

    /// @inheritdoc IDocket
    function bondFor(bytes32 executionClass, uint256 rows) external view returns (uint96) {
        Rules memory rules;
        ClassRules.read(rules, REGISTRY, executionClass);
        return _bond(rules, Prices.unit(rules, rows + 1), rows);
    }

    function _bond(Rules memory rules, uint256 unit, uint256 rows) private view returns (uint96) {
        uint256 depth = rules.exact ? 0 : TileTree.depthOf(TileTree.tileCount(rows, rules.hiddenSize, rules.dtype));
        uint256 units = Prices.BOND_UNITS + Prices.REWARD_UNITS * rules.reviewers;
        return SafeCast.toUint96(units * unit + CaseGas.worth(CaseGas.whole(rules, depth), GAS_PRICE));
    }

    function _readOrder(CaseState memory state, bytes32 domain, SignedOrder calldata given) private view {
        Order calldata order = given.order;
        bytes32 tab = Messages.tabId(Tab({payer: given.client, payee: given.scheduler, key: given.key}));
        if (tab != order.tab) revert WrongTab(order.tab, tab);
        // Its payer opened it: nobody becomes a client by somebody else's word.
        if (!BANK.tabOf(tab).known) revert TabUnknown(tab);
        state.order = Messages.digest(domain, Messages.hashOf(order));
        // An account's own signature counts whether it has code or not: by EIP-7702 it could take code on that denies it.
        if (Signatures.signerOf(state.order, given.signature) != given.key) {
            if (!SignatureChecker.isValidERC1271SignatureNowCalldata(given.key, state.order, given.signature)) {
                revert WrongSignature(given.key);
            }
        }
        state.executionClass = order.executionClass;
        state.ends = order.ends;
        state.referenceBlock = order.referenceBlock;
        state.client = given.client;
        state.scheduler = given.scheduler;
    }

    /// @dev All results, each for its place, and who signed them. The judged one's signer must be a node of the
    ///      class: nobody else has the stake that this class is made for.
    function _readResults(
        CaseState memory state,
        bytes32 domain,
        Rules memory rules,
        Result[] calldata results,
        bytes[] calldata signatures,
        uint8 segment
    ) private view returns (bytes32) {
        _requireSegments(state.ends, rules.layers, results.length);
        if (segment >= results.length) revert WrongSegments(state.ends, segment);
        if (signatures.length != results.length) revert WrongCount(signatures.length, results.length);
        state.segment = segment;
        // Room for the owners of inferencers and verifiers, of scheduler, client and opener, and for the last two
        // themselves.
        state.excluded = Owners.start(results.length + rules.verifiers + 5);
        bytes32[] memory hashes = new bytes32[](results.length);
        for (uint256 s = 0; s < hashes.length; ++s) {
            hashes[s] = _readResult(state, domain, results[s], signatures[s], s);
        }
        return Messages.resultsHash(hashes);
    }

    function _readResult(
        CaseState memory state,
        bytes32 domain,
        Result calldata result,
        bytes calldata signature,
        uint256 place
    ) private view returns (bytes32 structHash) {
        if (result.order != state.order || result.segment != place) {
            revert ForeignResult(place, result.order, result.segment);
        }
        structHash = Messages.hashOf(result);
        address signer = _signerOf(domain, structHash, signature);
        state.excluded.add(Seats.ownerOf(REGISTRY, signer));
        if (place != state.segment) return structHash;
        if (REGISTRY.classOf(signer) != state.executionClass) revert WrongClass(signer, state.executionClass);
        state.node = signer;
        state.result = structHash;
        state.traceCommitment = result.traceCommitment;
    }

    /// @dev Nobody is a party: what no key has signed is refused here.
    function _signerOf(bytes32 domain, bytes32 structHash, bytes calldata signature)
        private
        view
        returns (address signer)
    {
        signer = Signatures.signerOf(Messages.digest(domain, structHash), signature);
        if (signer == address(0)) revert WrongSignature(signer);
    }

    /// @dev Ends rise to the last layer, and nothing follows them.
    function _requireSegments(bytes32 ends, uint256 layers, uint256 count) private pure {
        uint256 last = 0;
        bool holds = count != 0 && count <= 32;
        for (uint256 s = 0; holds && s < count; ++s) {
            holds = uint8(ends[s]) > last;
            last = uint8(ends[s]);
        }
        if (!holds || last != layers || uint256(ends) << (8 * count) != 0) revert WrongSegments(ends, count);
    }

    function _readDraw(
        CaseState memory state,
        bytes32 domain,
        Draw calldata draw,
        bytes calldata signature,
        bytes32 expected
    ) private view {
        if (draw.order != state.order || draw.results != expected) {
            revert ForeignDraw(draw.order, draw.results, expected);
        }
        if (_signerOf(domain, Messages.hashOf(draw), signature) != state.scheduler) {
            revert WrongSignature(state.scheduler);
        }
        if (
            draw.blockNumber < state.referenceBlock || draw.blockNumber > block.number
                || draw.blockNumber - state.referenceBlock > ANSWER_AGE
        ) revert DrawOutOfTime(draw.blockNumber, state.referenceBlock, block.number);
        state.answeredAt = draw.blockNumber;
    }

    /// @dev Whatever the node signed can be judged: a length beyond what the class can open counts as the longest.
    function _price(
        CaseState memory state,
        Rules memory rules,
        Order calldata order,
        Result calldata last,
        Result calldata judged
    ) private view {
        uint256 rows = Prices.positions(judged.prompt, judged.cached, judged.written);
        rows = rows < 2 ? 1 : rows - 1;
        uint256 most = type(uint32).max;
        if (!rules.exact) {
            uint256 across = TileTree.tileCount(1, rules.hiddenSize, rules.dtype);
            most = across > MOST_TILES ? TileTree.TILE_ROWS : TileTree.TILE_ROWS * (MOST_TILES / across);
        }
        state.rows = uint32(rows < most ? rows : most);
        state.unit = SafeCast.toUint96(Prices.unit(rules, uint256(state.rows) + 1));
        state.bond = _bond(rules, state.unit, state.rows);
        state.fee = uint96(Prices.feeOf(order, rules, _count(state.ends), last));
    }

    /// @dev Number of segments of ends that were checked.
    function _count(bytes32 ends) private pure returns (uint256 count) {
        while (count < 32 && ends[count] != 0) ++count;
    }

    function _requireDrawn(Order calldata order, bytes32 secret, bytes32 beta) private pure {
        if (keccak256(abi.encodePacked(secret)) != order.drawHash) revert WrongSecret(secret, order.drawHash);
        if (!Messages.hits(secret, beta, order.checkRate)) revert NotHit(secret, beta, order.checkRate);
    }

    /// @dev Client and scheduler together could have signed any output: then they would choose lottery and verifiers.
    function _requireProven(CaseState memory state, bytes32 beta, VrfProof calldata given) private view {
        (uint256 x, uint256 y) = REGISTRY.vrfKeyOf(state.scheduler);
        bytes32 proven = EcVrf.verify(x, y, Messages.drawAlpha(state.order), given.proof, given.hints);
        if (proven != beta) revert WrongBeta(beta, proven);
    }

    /// @dev Whoever stayed silent after a summons was passed over in the check, and is here; but not where its own verdict is
    ///      shown: a check that was complete is not undone by a friend that is silent afterwards.
    function _passOverSilent(CaseState memory state, uint256 verifiers, address[] memory signers) private view {
        address[] memory silent =
            SUMMONS.silentOf(Messages.summonsId(state.order, SummonsKind.Check, state.segment));
        if (silent.length == 0) return;
        // As much room is left for verifiers, scheduler, client and opener as before.
        state.excluded = state.excluded.extend(silent.length + verifiers + 5);
        for (uint256 i = 0; i < silent.length; ++i) {
            address owner = Seats.ownerOf(REGISTRY, silent[i]);
            bool spoke = false;
            for (uint256 v = 0; v < signers.length && !spoke; ++v) {
                spoke = Seats.ownerOf(REGISTRY, signers[v]) == owner;
            }
            if (!spoke) state.excluded.add(owner);
        }
    }

    /// @dev Seasoned seats of the judged segment's group at the order's reference block.
    function _drawSeats(CaseState memory state, bytes32 chance, uint16 count, bytes calldata hints)
        private
        view
        returns (address[] memory)
    {
        Seats.Wanted memory wanted;
        wanted.executionClass = state.executionClass;
        (wanted.first, wanted.end) = _spanOf(state.ends, state.segment);
        wanted.blockNumber = state.referenceBlock;
        (wanted.seed, wanted.count) = (chance, count);
        return Seats.draw(wanted, REGISTRY, state.excluded, hints);
    }

    /// @dev First layer of a segment, and the one after its last.
    function _spanOf(bytes32 ends, uint256 segment) private pure returns (uint256 first, uint256 end) {
        first = segment == 0 ? 0 : uint8(ends[segment - 1]);
        end = uint8(ends[segment]);
    }

    /// @dev Who signed each verdict, all of which are over this result.
    function _signersOf(
        CaseState memory state,
        bytes32 domain,
        Verdict[] calldata verdicts,
        bytes[] calldata signatures
    ) private view returns (address[] memory signers) {
        if (signatures.length != verdicts.length) revert WrongCount(signatures.length, verdicts.length);
        signers = new address[](verdicts.length);
        for (uint256 i = 0; i < signers.length; ++i) {
            Verdict calldata verdict = verdicts[i];
            if (verdict.order != state.order || verdict.segment != state.segment || verdict.result != state.result) {
                revert ForeignVerdict(i, verdict.result);
            }
            if (verdict.opinion == 0 || verdict.opinion > uint8(Opinion.CannotTell)) {
                revert InvalidOpinion(i, verdict.opinion);
            }
            signers[i] = _signerOf(domain, Messages.hashOf(verdict), signatures[i]);
        }
    }

    /// @dev One verdict per drawn node; it counts for all of the node's seats.
    function _seatVerdicts(CaseState memory state, Verdict[] calldata verdicts, address[] memory signers) private view {
        state.opinions = new bytes(state.verifiers.length);
        for (uint256 i = 0; i < signers.length; ++i) {
            Verdict calldata verdict = verdicts[i];
            _seatVerdict(state, i, signers[i], verdict.opinion);
            if (state.suspends && verdict.opinion == uint8(Opinion.Reject) && !verdict.locks) {
                revert LockMissing(i, signers[i]);
            }
        }
        for (uint256 v = 0; v < state.verifiers.length; ++v) {
            state.excluded.add(Seats.ownerOf(REGISTRY, state.verifiers[v]));
        }
    }

    function _seatVerdict(CaseState memory state, uint256 index, address signer, uint8 opinion) private pure {
        (address[] memory verifiers, bytes memory opinions) = (state.verifiers, state.opinions);
        uint256 seats;
        bool judged;
        // There is a byte for each verifier; the last of these 32 is the one's.
        assembly ("memory-safe") {
            signer := shr(96, shl(96, signer))
            for { let v := mload(verifiers) } v { } {
                let at := add(opinions, v)
                if eq(mload(add(verifiers, shl(5, v))), signer) {
                    judged := or(judged, iszero(iszero(and(mload(at), 0xff))))
                    mstore8(add(at, 0x1f), opinion)
                    seats := add(seats, 1)
                }
                v := sub(v, 1)
            }
        }
        if (judged) revert AlreadyJudged(index, signer);
        if (seats == 0) revert NotVerifier(index, signer);
    }

    function _setKind(CaseState memory state) private pure {
        uint256 seats = state.opinions.length;
        uint256 rejecting = 0;
        for (uint256 v = 0; v < seats; ++v) {
            if (uint8(state.opinions[v]) == uint8(Opinion.Reject)) ++rejecting;
        }
        // Where no majority rejects, too few judged or they accepted: then only the client calls it into question.
        state.kind = 2 * rejecting > seats ? CaseKind.Rejection : CaseKind.Acceptance;
    }

    // ------------------------------------------------------------------------------------------------------- drawing

    /// @inheritdoc IDocket
    function drawReviewers(bytes32 caseId, CaseState calldata given, bytes calldata header, bytes calldata hints)
        external
        view
        returns (bytes32 randao, address[] memory reviewers, bytes memory seats)
    {
        if (given.phase != CasePhase.Opened) revert WrongPhase(given.phase);
        randao = _randao(given.phaseBlock, header);
        (,, uint8 count) = REGISTRY.committeeOf(given.executionClass);
        Seats.Wanted memory wanted;
        wanted.executionClass = given.executionClass;
        (wanted.first, wanted.end) = _spanOf(given.ends, given.segment);
        wanted.blockNumber = given.referenceBlock;
        (wanted.seed, wanted.count) = (Messages.courtSeed(caseId, given.round, randao), count);
        reviewers = Seats.draw(wanted, REGISTRY, Seats.copyOf(given.excluded), hints);
        seats = _seat(reviewers);
        // abi.encode(randao, reviewers, seats), of arrays as they lie in memory.
        assembly ("memory-safe") {
            let data := mload(0x40)
            let size := shl(5, add(mload(reviewers), 1))
            mstore(data, randao)
            mstore(add(data, 0x20), 0x60)
            mcopy(add(data, 0x60), reviewers, size)
            size := add(0x60, size)
            mstore(add(data, 0x40), size)
            // What is behind the seats in their last word is zero.
            let packed := and(add(mload(seats), 0x3f), not(0x1f))
            mcopy(add(data, size), seats, packed)
            return(data, add(size, packed))
        }
    }

    /// @inheritdoc IDocket
    function drawTiles(bytes32 caseId, CaseState calldata state, bytes calldata header)
        external
        view
        returns (bytes32)
    {
        if (state.phase != CasePhase.Committed) revert WrongPhase(state.phase);
        (bool exact,,) = REGISTRY.committeeOf(state.executionClass);
        if (exact) revert ExactClass(state.executionClass);
        return Messages.tilesSeed(caseId, state.commitments, _randao(state.phaseBlock, header));
    }

    /// @dev RANDAO of the block that is due, by its header.
    function _randao(uint256 phaseBlock, bytes calldata header) private view returns (bytes32) {
        uint256 due = phaseBlock + LOOKAHEAD;
        if (block.number <= due) revert TooEarly(block.number, due + 1);
        if (block.number > due + DRAW_WINDOW) revert TooLate(block.number, due + DRAW_WINDOW);
        return BlockHeader.randaoAt(due, header);
    }

    /// @dev An operator that is drawn more than once is one reviewer with more seats, at its first place.
    function _seat(address[] memory drawn) private pure returns (bytes memory seats) {
        uint256 total = drawn.length;
        seats = new bytes(total);
        assembly ("memory-safe") {
            let count := 0
            // Bit b: one whose address ends with b was there; of the others nobody need be looked for.
            let seen := 0
            let first := add(drawn, 0x20)
            for { let at := first } total { total := sub(total, 1) } {
                let operator := mload(at)
                at := add(at, 0x20)
                let mark := shl(and(operator, 0xff), 1)
                let place := count
                if and(seen, mark) {
                    place := 0
                    for { let word := first } lt(place, count) { word := add(word, 0x20) } {
                        if eq(mload(word), operator) { break }
                        place := add(place, 1)
                    }
                }
                if eq(place, count) { count := add(count, 1) }
                seen := or(seen, mark)
                // Neither array is longer than what was drawn. The last of these 32 bytes is the reviewer's.
                mstore(add(first, shl(5, place)), operator)
                let seat := add(seats, add(place, 1))
                mstore8(add(seat, 0x1f), add(mload(seat), 1))
            }
            mstore(drawn, count)
            mstore(seats, count)
        }
    }
}
