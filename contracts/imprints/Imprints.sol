// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {SSTORE2} from "solady/src/utils/SSTORE2.sol";
import {Encoded} from "../libraries/Encoded.sol";
import {PublicNoise} from "../libraries/PublicNoise.sol";
import {WeightsTree} from "../libraries/WeightsTree.sol";
import {IBank} from "../market/interfaces/IBank.sol";
import {Contracts, IDeployment} from "../market/interfaces/IDeployment.sol";
import {IEvidence} from "../market/interfaces/IEvidence.sol";
import {IProofs} from "../market/interfaces/IProofs.sol";
import {IProver} from "../market/interfaces/IProver.sol";
import {IRegistry} from "../market/interfaces/IRegistry.sol";
import {Parameters, PotKind} from "../market/interfaces/MarketTypes.sol";
import {Fines} from "../market/libraries/Fines.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Orders} from "../market/libraries/Orders.sol";
import {Passing} from "../market/libraries/Passing.sol";
import {ShownAnswers} from "../market/libraries/ShownAnswers.sol";
import {Groth16} from "./Groth16.sol";
import {IImprints, ImprintKey, ImprintProof} from "./IImprints.sol";

/// @title Convicts for a wrong token over a row that is not shown
/// @dev Holds money within one call only. It is created before the deployment that it serves, whose addresses follow from its
///      parameters.
contract Imprints is IImprints, IProver, ReentrancyGuardTransient {
    using SafeERC20 for IERC20;

    bytes32 private constant IMPRINTS_TYPE = keccak256("Imprints(bytes32 result,bytes32 root)");
    bytes32 private constant CONTEXT_TAG = keccak256("troth/imprints/context/1");
    bytes private constant MARK = "/imprints:0x";
    uint256 private constant HASH_DIGITS = 64;
    /// @dev The noise comes in units of 2^-120, and its lead is shown in units of 2^-64, in 84 bits.
    uint256 private constant NOISE_SHIFT = 56;
    uint256 private constant LEAD_BITS = 84;
    uint256 private constant TOKEN_BITS = 32;
    /// @dev Bytes of a call of `beaten` whose strings and arrays are empty.
    uint256 private constant EMPTY = 3140;
    /// @dev Words of an ImprintProof in which offsets stand; its result has nine words.
    uint256 private constant CLASS = 1;
    uint256 private constant MODEL = 2;
    uint256 private constant REQUEST = 13;
    uint256 private constant DRAW = 14;
    uint256 private constant TOKEN = 15;
    uint256 private constant SIGNATURE = 18;
    uint256 private constant SIBLINGS = 20;

    IEvidence private immutable EVIDENCE;
    IProver private immutable NEXT;
    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    address private immutable ASSET;

    mapping(uint256 columns => address) private _keys;
    bool private transient _convicting;

    /// @param chosen the parameters of the deployment to come, whose prover this contract is
    /// @param next what is asked about other evidence; zero: the deployment's own Proofs
    constructor(IDeployment factory, Parameters memory chosen, IProver next, ImprintKey[] memory keys) {
        chosen.prover = address(this);
        Contracts memory parts = factory.addressesOf(chosen);
        EVIDENCE = IEvidence(parts.evidence);
        NEXT = address(next) == address(0) ? IProver(parts.proofs) : next;
        (BANK, REGISTRY, ASSET) = (IBank(parts.bank), IRegistry(parts.registry), chosen.asset);
        emit ImprintsDeployed(parts.evidence, address(NEXT));
        for (uint256 i = 0; i < keys.length; ++i) {
            _add(keys[i]);
        }
    }

    /// @dev Only what the Bank pays out.
    receive() external payable {
        if (msg.sender != address(BANK)) revert NotBank(msg.sender);
    }

    function _add(ImprintKey memory key) private {
        if (_keys[key.columns] != address(0)) revert KeyTwice(key.columns);
        bytes memory words = abi.encodePacked(key.words);
        _keys[key.columns] = SSTORE2.write(words);
        emit ImprintKeyAdded(key.columns, keccak256(words));
    }

    // ---------------------------------------------------------------------------------------------------- convicting

    /// @inheritdoc IImprints
    function convict(bytes calldata evidence) external nonReentrant {
        if (bytes4(evidence) != IImprints.beaten.selector) revert NoSuchEvidence(bytes4(evidence));
        (, address recipient) = abi.decode(evidence[4:], (uint256, address));
        if (recipient == address(0)) revert ZeroRecipient();
        _convicting = true;
        EVIDENCE.convictByProof(evidence);
        _convicting = false;
        uint96 paid = BANK.balanceOf(PotKind.Credit, Fines.toId(address(this)));
        if (paid == 0) return;
        if (ASSET == address(0)) {
            BANK.withdraw(address(this));
            BANK.credit{value: paid}(recipient, paid);
            return;
        }
        paid = Passing.withdrawn(BANK, ASSET, paid);
        if (paid == 0) return;
        IERC20(ASSET).forceApprove(address(BANK), paid);
        BANK.credit(recipient, paid);
    }

    /// @inheritdoc IProver
    function proven(bytes calldata evidence) external returns (address party, uint64 offenceBlock, bytes32 subject) {
        if (bytes4(evidence) != IImprints.beaten.selector) return NEXT.proven(evidence);
        // What Evidence pays goes to its caller, who may have read the proof in somebody else's transaction.
        if (!_convicting) revert NotByConvict();
        ImprintProof calldata proof;
        address recipient;
        // Read where it lies, as the compiler reads arguments: behind the selector are the proof's offset and the recipient.
        assembly ("memory-safe") {
            let arguments := add(evidence.offset, 4)
            proof := add(arguments, and(calldataload(arguments), 0xffffffff))
            recipient := shr(96, shl(96, calldataload(add(arguments, 0x20))))
        }
        uint256 words;
        assembly ("memory-safe") {
            words := proof
        }
        uint256 needed = _lengthOf(words);
        if (evidence.length != needed) revert SurplusEvidence(evidence.length, needed);
        (party, offenceBlock, subject) = _weigh(proof, recipient);
        emit BeatenByImprint(subject, party);
    }

    /// @dev Bytes of the call of `beaten` with this proof, as Proofs has it of its own.
    function _lengthOf(uint256 proof) private pure returns (uint256) {
        uint256 signed = Encoded.padded(Encoded.lengthOf(Encoded.partOf(proof, REQUEST), 0))
            + Encoded.padded(Encoded.lengthOf(proof, SIGNATURE));
        uint256 words = Encoded.lengthOf(Encoded.partOf(proof, TOKEN), 3) + Encoded.lengthOf(proof, SIBLINGS);
        uint256 shown = ShownAnswers.lengthOf(
            Encoded.partOf(proof, CLASS), Encoded.partOf(proof, MODEL), Encoded.partOf(proof, DRAW)
        );
        return EMPTY + shown + signed + 32 * words;
    }

    // -------------------------------------------------------------------------------------------------------- the proof

    /// @inheritdoc IImprints
    function beaten(ImprintProof calldata proof, address recipient)
        external
        view
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        return _weigh(proof, recipient);
    }

    function _weigh(ImprintProof calldata proof, address recipient)
        private
        view
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        bytes32 domain = Messages.separator(address(BANK));
        bytes32 order = Orders.digestAt(domain, proof.order);
        subject = Messages.hashOf(proof.result);
        // Who signs imprints of a result stands by both.
        bytes32 signed = keccak256(abi.encode(IMPRINTS_TYPE, subject, proof.imprints));
        party = ECDSA.recover(Messages.digest(domain, signed), proof.signature);
        offenceBlock = proof.order.order.referenceBlock;
        ShownAnswers.requireLast(proof.result, proof.order.order.ends, order);
        Orders.requireEqual(Encoded.hashOf(proof.executionClass), proof.order.order.executionClass);
        Orders.requireEqual(Encoded.hashOf(proof.model), proof.executionClass.model);
        ShownAnswers.requireToken(proof.result, proof.token);
        bytes32 leaf = keccak256(abi.encodePacked(bytes1(0x00), proof.imprint));
        Orders.requireEqual(
            WeightsTree.treeRoot(leaf, proof.token.index, proof.result.written, proof.siblings), proof.imprints
        );
        if (proof.rival >= proof.model.vocabulary) revert IProofs.NoSuchToken(proof.rival, proof.model.vocabulary);
        uint256[4] memory inputs = [
            proof.imprint,
            _headOf(proof.executionClass.name, proof.mark),
            _termsOf(proof, order),
            contextOf(subject, recipient)
        ];
        if (!Groth16.holds(keyOf(proof.model.hiddenSize), proof.points, inputs)) {
            revert ProofDoesNotHold(inputs[0], inputs[1], inputs[2], inputs[3]);
        }
    }

    /// @dev The root that a class names, before the end of its name or another mark. Nodes serve no class that holds the mark
    ///      twice.
    function _headOf(string calldata name, uint256 mark) private pure returns (uint256 root) {
        bytes calldata whole = bytes(name);
        uint256 digits = mark + MARK.length;
        uint256 end = digits + HASH_DIGITS;
        if (
            mark >= whole.length || end > whole.length || keccak256(whole[mark:digits]) != keccak256(MARK)
                || (end != whole.length && whole[end] != "/")
        ) revert ImprintsNotNamed(name, mark);
        for (uint256 i = digits; i < end; ++i) {
            uint256 digit = uint8(whole[i]);
            if (digit >= 0x61 && digit <= 0x66) digit -= 0x57;
            else if (digit >= 0x30 && digit <= 0x39) digit -= 0x30;
            else revert ImprintsNotNamed(name, mark);
            root = root << 4 | digit;
        }
    }

    /// @dev Lead of the noise, whether logits are rounded, token and rival, the lowest bits first.
    function _termsOf(ImprintProof calldata proof, bytes32 order) private view returns (uint256) {
        ShownAnswers.Choice memory choice = ShownAnswers.choiceOf(proof.request, proof.order.order);
        int256 lead = 0;
        if (choice.temperature != 0) {
            lead = _leadOf(proof, order) * int256(choice.temperature) / int256(ShownAnswers.MILLION) >> NOISE_SHIFT;
            // top_p, top_k and min_p leave the likeliest: where tokens are left out, the rival must win without noise, too.
            if (choice.cut && lead > 0) lead = 0;
        }
        uint256 rounded = proof.executionClass.dtype == 0 ? 0 : 1;
        uint256 tokens = uint256(proof.rival) << TOKEN_BITS | proof.token.token;
        // Noise is below 2^6 and a temperature below 2^13: a lead has 83 bits and a sign.
        return (tokens << 1 | rounded) << LEAD_BITS | uint256(lead + int256(1 << LEAD_BITS - 1));
    }

    /// @dev By how much the rival's noise is the larger one, in units of 2^-120.
    function _leadOf(ImprintProof calldata proof, bytes32 order) private view returns (int256) {
        bytes32 seed = ShownAnswers.seedOf(REGISTRY, proof.order.scheduler, order, proof.draw);
        uint256 position = ShownAnswers.positionOf(proof.result, proof.token);
        return PublicNoise.gumbel(seed, position, proof.rival) - PublicNoise.gumbel(seed, position, proof.token.token);
    }

    // ------------------------------------------------------------------------------------------------------------ reads

    /// @inheritdoc IImprints
    function contextOf(bytes32 result, address recipient) public view returns (uint256) {
        return uint256(keccak256(abi.encode(CONTEXT_TAG, block.chainid, address(this), result, recipient))) >> 8;
    }

    /// @inheritdoc IImprints
    function keyOf(uint32 columns) public view returns (bytes memory) {
        address kept = _keys[columns];
        if (kept == address(0)) revert NoKey(columns);
        return SSTORE2.read(kept);
    }
}
