// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

import {IERC20} from "@openzeppelin/contracts/token/ERC20/IERC20.sol";
import {SafeERC20} from "@openzeppelin/contracts/token/ERC20/utils/SafeERC20.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";
import {ReentrancyGuardTransient} from "@openzeppelin/contracts/utils/ReentrancyGuardTransient.sol";
import {IBank} from "../market/interfaces/IBank.sol";
import {Contracts, IDeployment} from "../market/interfaces/IDeployment.sol";
import {IEvidence} from "../market/interfaces/IEvidence.sol";
import {IProofs, ShownRow} from "../market/interfaces/IProofs.sol";
import {IProver} from "../market/interfaces/IProver.sol";
import {IRegistry} from "../market/interfaces/IRegistry.sol";
import {Parameters, PotKind, Role} from "../market/interfaces/MarketTypes.sol";
import {Fault} from "../market/interfaces/Proceedings.sol";
import {Fines} from "../market/libraries/Fines.sol";
import {Messages} from "../market/libraries/Messages.sol";
import {Passing} from "../market/libraries/Passing.sol";
import {Windows} from "../market/libraries/Windows.sol";
import {Accusations} from "./Accusations.sol";
import {Accusation, Choice, Dispute, IDisputes, Packed, Turn} from "./IDisputes.sol";
import {Claim, ISteps, Matter, Part, Word} from "./ISteps.sol";
import {PackedDispute} from "./PackedDispute.sol";
import {TraceTree} from "./TraceTree.sol";

/// @title The game by which arithmetic convicts
/// @dev Holds the bonds of open disputes, and nothing else between calls. It is created before the deployment that it serves, whose
///      addresses follow from its parameters.
contract Disputes is IDisputes, IProver, ReentrancyGuardTransient {
    using PackedDispute for Dispute;
    using PackedDispute for Packed;
    using SafeERC20 for IERC20;

    bytes32 private constant ENDED = bytes32(uint256(1));
    /// @dev Levels that are shown at once: 2^5 words are 1 KiB.
    uint256 private constant MOST_STRIDE = 5;
    /// @dev Nudges of which the accused may choose one.
    uint8 private constant NUDGES = 8;
    /// @dev No dispute has more turns: 15 levels over all tensors and 33 in one (a tensor has 26 at most), shown by five, the
    ///      signed row asked for and given, the parts of a sum asked for and given, and the end.
    uint256 private constant MOST_TURNS = 26;
    /// @dev What the accused pays in the longest usual dispute, for which the bond stands.
    uint256 private constant BOND_GAS = 1_000_000;
    /// @dev Each field of a Matter is a word.
    uint256 private constant MATTER_BYTES = 384;
    /// @dev Of 8,192 terms 64 parts, and a bias.
    uint256 private constant MOST_PARTS_BYTES = 65 * 96;

    IEvidence private immutable EVIDENCE;
    IProver private immutable PROOFS;
    IBank private immutable BANK;
    IRegistry private immutable REGISTRY;
    ISteps private immutable STEPS;
    address private immutable ASSET;
    uint256 private immutable WINDOW;
    uint256 private immutable OPENING;
    uint96 private immutable BOND;

    mapping(bytes32 dispute => bytes32) private _disputes;
    /// @dev Hash of what `proven` may say in this transaction.
    bytes32 private transient _convicting;

    /// @param chosen the parameters of the deployment to come, whose prover this contract is
    constructor(IDeployment factory, Parameters memory chosen, ISteps steps) {
        chosen.prover = address(this);
        uint256 longest = MOST_TURNS * chosen.answerWindow;
        if (chosen.unbonding < longest) revert UnbondingTooShort(chosen.unbonding, longest);
        Contracts memory parts = factory.addressesOf(chosen);
        (EVIDENCE, PROOFS) = (IEvidence(parts.evidence), IProver(parts.proofs));
        (BANK, REGISTRY, STEPS) = (IBank(parts.bank), IRegistry(parts.registry), steps);
        (ASSET, WINDOW, OPENING) = (chosen.asset, chosen.answerWindow, Windows.answerAge(chosen));
        BOND = uint96(BOND_GAS * chosen.gasPrice / 1e9);
        emit DisputesDeployed(parts.evidence, address(steps), chosen.answerWindow);
    }

    /// @dev Only what the Bank pays out.
    receive() external payable {
        if (msg.sender != address(BANK)) revert NotBank(msg.sender);
    }

    // ------------------------------------------------------------------------------------------------------- opening

    /// @inheritdoc IDisputes
    function open(Accusation calldata accusation) external payable nonReentrant returns (bytes32 dispute) {
        bytes32 domain = Messages.separator(address(BANK));
        Matter memory matter = Accusations.matterOf(accusation, domain);
        Dispute memory state;
        state.matter = _hashOf(matter);
        state.result = Messages.hashOf(accusation.result);
        bytes32 signed = Messages.digest(domain, state.result);
        (state.accused, state.accuser) = (ECDSA.recover(signed, accusation.signature), msg.sender);
        state.offenceBlock = accusation.order.order.referenceBlock;
        dispute = disputeIdOf(state.result, matter.position, msg.sender);
        if (_disputes[dispute] != 0) revert AlreadyDisputed(dispute);
        uint256 lastBlock = uint256(state.offenceBlock) + OPENING;
        if (block.number > lastBlock) revert TooLate(block.number, lastBlock);
        _requireStake(state.accused);
        state.left = STEPS.depth(matter, accusation.shape);
        state.bond = _collect();
        emit DisputeOpened(
            dispute,
            state.accused,
            msg.sender,
            matter,
            accusation.shape,
            state.result,
            state.offenceBlock,
            state.bond,
            state.left
        );
        _enter(dispute, state, Turn.Accused);
    }

    /// @dev A node of this deployment whose stake stays until the longest dispute has ended: if it leaves later, unbonding is
    ///      longer.
    function _requireStake(address accused) private view {
        (Role role, uint40 exitBlock,) = REGISTRY.bondOf(accused);
        (uint96 stake, uint96 locked) = BANK.stakeOf(accused);
        bool leaves = exitBlock != 0 && block.number + MOST_TURNS * WINDOW > exitBlock;
        if (role != Role.Node || leaves || stake + locked == 0) {
            revert NothingToLose(accused, exitBlock, uint256(stake) + locked);
        }
    }

    function _collect() private returns (uint96) {
        if (ASSET == address(0)) {
            if (msg.value != BOND) revert BondMismatch(msg.value, BOND);
            return BOND;
        }
        if (msg.value != 0) revert BondMismatch(msg.value, 0);
        uint256 before = Passing.held(ASSET);
        IERC20(ASSET).safeTransferFrom(msg.sender, address(this), BOND);
        uint256 received = Passing.held(ASSET) - before;
        if (received < BOND) revert BondMismatch(received, BOND);
        return BOND;
    }

    // --------------------------------------------------------------------------------------------------------- turns

    /// @inheritdoc IDisputes
    function show(bytes32 dispute, Packed calldata given, bytes32[] calldata nodes) external {
        _show(dispute, _load(dispute, given, Turn.Accused), nodes);
    }

    /// @inheritdoc IDisputes
    function defend(bytes32 dispute, Packed calldata given, uint8 nudge, uint32 moved, bytes32[] calldata nodes)
        external
    {
        Dispute memory state = _load(dispute, given, Turn.Accused);
        if (nudge == 0 || nudge > NUDGES || state.root != 0) revert NoSuchNudge(nudge, NUDGES, state.root);
        // Twice as many tensors.
        (state.nudge, state.moved, state.left) = (nudge, moved, state.left + 1);
        emit Defended(dispute, nudge, moved);
        _show(dispute, state, nodes);
    }

    function _show(bytes32 dispute, Dispute memory state, bytes32[] calldata nodes) private {
        _requirePlayer(state.accused);
        _requireInTime(state.deadline);
        state.shown = strideOf(state.left);
        bytes32 root = TraceTree.wholeRoot(nodes, state.shown);
        if (state.root == 0) (state.root, state.node) = (root, root);
        else if (root != state.node) revert WrongNodes(root, state.node);
        emit Shown(dispute, nodes);
        _enter(dispute, state, Turn.Accuser);
    }

    /// @inheritdoc IDisputes
    function choose(bytes32 dispute, Packed calldata given, Choice calldata choice) external {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requirePlayer(state.accuser);
        _requireInTime(state.deadline);
        if (state.shown >= state.left) revert WrongLevel(state.inTensor, state.left, state.shown);
        _descend(state, choice);
        emit Chosen(dispute, choice.index);
        _enter(dispute, state, Turn.Accused);
    }

    /// @inheritdoc IDisputes
    function chooseTensor(
        bytes32 dispute,
        Packed calldata given,
        Matter calldata matter,
        bytes calldata shape,
        Choice calldata choice
    ) external {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requirePlayer(state.accuser);
        _requireInTime(state.deadline);
        _requireMatter(state, matter, shape);
        if (state.inTensor || state.shown != state.left) {
            revert WrongLevel(state.inTensor, state.left, state.shown);
        }
        _descend(state, choice);
        // Numbers of tensors have 15 bits.
        (state.inTensor, state.tensor, state.place) = (true, uint32(state.place), 0);
        state.left = STEPS.depthOf(matter, shape, state.nudge != 0, state.tensor);
        emit TensorChosen(dispute, choice.index, state.left);
        _enter(dispute, state, Turn.Accused);
    }

    /// @dev The node that was chosen among those that were shown.
    function _descend(Dispute memory state, Choice calldata choice) private pure {
        if (choice.index >> state.shown != 0 || choice.siblings.length != state.shown) {
            revert NoSuchChoice(choice.index, 1 << state.shown);
        }
        bytes32 root = TraceTree.pathRoot(choice.node, choice.index, choice.siblings);
        if (root != state.node) revert WrongNodes(root, state.node);
        state.place = state.place << state.shown | choice.index;
        state.node = choice.node;
        state.left -= state.shown;
        state.shown = 0;
    }

    /// @inheritdoc IDisputes
    function askRow(bytes32 dispute, Packed calldata given, Matter calldata matter, uint32 position) external {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requirePlayer(state.accuser);
        _requireInTime(state.deadline);
        _requireMatterOf(state, matter);
        if (state.asked != 0) revert AskedBefore(dispute);
        if (position > matter.position) revert NoSuchRow(position, uint256(matter.position) + 1);
        state.asked = position + 1;
        emit RowAsked(dispute, position);
        _enter(dispute, state, Turn.Row);
    }

    /// @inheritdoc IDisputes
    function giveRow(bytes32 dispute, Packed calldata given, Matter calldata matter, ShownRow calldata row) external {
        Dispute memory state = _load(dispute, given, Turn.Row);
        _requirePlayer(state.accused);
        _requireInTime(state.deadline);
        _requireMatterOf(state, matter);
        STEPS.requireSigned(matter, state.asked - 1, row);
        emit RowGiven(dispute, row);
        _enter(dispute, state, Turn.Accuser);
    }

    /// @inheritdoc IDisputes
    function askSum(bytes32 dispute, Packed calldata given, Choice calldata choice, uint8 number) external {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requirePlayer(state.accuser);
        _requireInTime(state.deadline);
        _requireWord(state);
        if (state.number != 0) revert AskedBefore(dispute);
        if (number > 7) revert NoSuchNumber(number);
        _descend(state, choice);
        state.number = number + 1;
        emit SumAsked(dispute, choice.index, number);
        _enter(dispute, state, Turn.Sum);
    }

    /// @inheritdoc IDisputes
    function giveSum(bytes32 dispute, Packed calldata given, bytes calldata parts) external {
        Dispute memory state = _load(dispute, given, Turn.Sum);
        _requirePlayer(state.accused);
        _requireInTime(state.deadline);
        // Whoever shows that they are wrong must give them again.
        if (parts.length > MOST_PARTS_BYTES) revert TooManyParts(parts.length, MOST_PARTS_BYTES);
        state.parts = keccak256(parts);
        emit SumGiven(dispute, parts);
        _enter(dispute, state, Turn.Accuser);
    }

    // --------------------------------------------------------------------------------------------------------- the end

    /// @inheritdoc IDisputes
    function wrongStep(
        bytes32 dispute,
        Packed calldata given,
        Matter calldata matter,
        bytes calldata shape,
        Choice calldata choice,
        bytes calldata step
    ) external nonReentrant {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requireMatter(state, matter, shape);
        _requireWord(state);
        _descend(state, choice);
        if (!STEPS.isWrong(matter, shape, _claimOf(state), _wordOf(state), step)) revert NothingWrong(dispute);
        _convict(dispute, state);
    }

    /// @inheritdoc IDisputes
    function wrongPart(
        bytes32 dispute,
        Packed calldata given,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata parts,
        uint256 index,
        bytes calldata step
    ) external nonReentrant {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requireMatter(state, matter, shape);
        _requireParts(state, parts);
        Part memory part = Part({number: state.number - 1, index: index, value: parts[96 * index:96 * index + 96]});
        if (!STEPS.isWrongPart(matter, shape, _claimOf(state), _wordOf(state), part, step)) revert NothingWrong(dispute);
        _convict(dispute, state);
    }

    /// @inheritdoc IDisputes
    function wrongSum(
        bytes32 dispute,
        Packed calldata given,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata parts
    ) external nonReentrant {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requireMatter(state, matter, shape);
        _requireParts(state, parts);
        if (STEPS.concludes(matter, shape, _claimOf(state), _wordOf(state), state.number - 1, parts)) {
            revert NothingWrong(dispute);
        }
        _convict(dispute, state);
    }

    function _requireParts(Dispute memory state, bytes calldata parts) private pure {
        if (keccak256(parts) != state.parts) revert WrongParts(keccak256(parts), state.parts);
    }

    function _requireWord(Dispute memory state) private pure {
        if (!state.inTensor || state.shown != state.left) {
            revert WrongLevel(state.inTensor, state.left, state.shown);
        }
    }

    function _wordOf(Dispute memory state) private pure returns (Word memory) {
        return Word({tensor: state.tensor, place: state.place, value: state.node});
    }

    /// @inheritdoc IDisputes
    function wrongRow(
        bytes32 dispute,
        Packed calldata given,
        Matter calldata matter,
        bytes calldata shape,
        bytes calldata opening
    ) external nonReentrant {
        Dispute memory state = _load(dispute, given, Turn.Accuser);
        _requireMatter(state, matter, shape);
        if (!STEPS.isFar(matter, shape, _claimOf(state), opening)) revert NothingWrong(dispute);
        _convict(dispute, state);
    }

    function _claimOf(Dispute memory state) private pure returns (Claim memory) {
        return Claim({root: state.root, seed: state.result, nudge: state.nudge, moved: state.moved});
    }

    /// @inheritdoc IDisputes
    function silent(bytes32 dispute, Packed calldata given) external nonReentrant {
        Turn turn = given.turnOf();
        Dispute memory state = _load(dispute, given, turn == Turn.Row || turn == Turn.Sum ? turn : Turn.Accused);
        if (block.number <= state.deadline) revert TooEarly(block.number, state.deadline);
        _convict(dispute, state);
    }

    /// @inheritdoc IDisputes
    function close(bytes32 dispute, Packed calldata given) external nonReentrant {
        Dispute memory state = _load(dispute, given, given.turnOf());
        _disputes[dispute] = ENDED;
        if (_isMoot(state)) {
            emit DisputeMoot(dispute, state.accused, state.accuser, state.bond);
            Passing.credit(BANK, ASSET, state.accuser, state.bond);
            return;
        }
        if (state.turn != Turn.Accuser) revert WrongTurn(state.turn, Turn.Accuser);
        if (block.number <= state.deadline) revert TooEarly(block.number, state.deadline);
        emit DisputeLost(dispute, state.accused, state.accuser, state.bond);
        Passing.credit(BANK, ASSET, state.accused, state.bond);
    }

    /// @dev Whether no conviction can come of it: there was one, or the stake is gone.
    function _isMoot(Dispute memory state) private view returns (bool) {
        if (EVIDENCE.isProven(keccak256(abi.encode(Fault.ByProof, state.result)))) return true;
        (Role role, uint40 exitBlock,) = REGISTRY.bondOf(state.accused);
        (uint96 stake, uint96 locked) = BANK.stakeOf(state.accused);
        return role != Role.Node || (exitBlock != 0 && block.number > exitBlock) || stake + locked == 0;
    }

    /// @dev Evidence asks back what is proven, and credits this contract, which passes on what arrives. No bond comes in
    ///      meanwhile: who opens a dispute waits for the guard.
    function _convict(bytes32 dispute, Dispute memory state) private {
        _disputes[dispute] = ENDED;
        bytes memory evidence = abi.encode(state.accused, state.offenceBlock, state.result);
        _convicting = keccak256(evidence);
        EVIDENCE.convictByProof(evidence);
        _convicting = 0;
        uint96 earned = BANK.balanceOf(PotKind.Credit, Fines.toId(address(this)));
        uint96 paid = state.bond + (earned == 0 ? 0 : Passing.withdrawn(BANK, ASSET, earned));
        emit DisputeWon(dispute, state.accused, state.accuser, paid);
        Passing.credit(BANK, ASSET, state.accuser, paid);
    }

    /// @inheritdoc IProver
    function proven(bytes calldata evidence)
        external
        returns (address party, uint64 offenceBlock, bytes32 subject)
    {
        if (bytes4(evidence) == IProofs.wrongToken.selector) return PROOFS.proven(evidence);
        if (_convicting == 0 || keccak256(evidence) != _convicting) revert NoSuchProof(bytes4(evidence));
        return abi.decode(evidence, (address, uint64, bytes32));
    }

    // ------------------------------------------------------------------------------------------------------- helpers

    function _load(bytes32 dispute, Packed calldata given, Turn turn) private view returns (Dispute memory state) {
        bytes32 hash = given.hashOf();
        if (_disputes[dispute] != hash) revert StateMismatch(dispute, _disputes[dispute], hash);
        state = given.unpack();
        if (state.turn != turn) revert WrongTurn(state.turn, turn);
    }

    /// @dev Who reads the events of turns knows the state, of which the hash is kept.
    function _enter(bytes32 dispute, Dispute memory state, Turn turn) private {
        state.turn = turn;
        state.deadline = uint40(block.number + WINDOW);
        _disputes[dispute] = state.hashOf();
    }

    function _hashOf(Matter memory matter) private pure returns (bytes32 hash) {
        assembly ("memory-safe") {
            hash := keccak256(matter, MATTER_BYTES)
        }
    }

    function _requirePlayer(address expected) private view {
        if (msg.sender != expected) revert WrongPlayer(msg.sender, expected);
    }

    function _requireInTime(uint256 deadline) private view {
        if (block.number > deadline) revert TooLate(block.number, deadline);
    }

    function _requireMatterOf(Dispute memory state, Matter calldata matter) private pure {
        bytes32 hash;
        assembly ("memory-safe") {
            let free := mload(0x40)
            calldatacopy(free, matter, MATTER_BYTES)
            hash := keccak256(free, MATTER_BYTES)
        }
        if (hash != state.matter) revert WrongMatter(hash, state.matter);
    }

    function _requireMatter(Dispute memory state, Matter calldata matter, bytes calldata shape) private pure {
        _requireMatterOf(state, matter);
        if (keccak256(shape) != matter.shape) revert ISteps.WrongShape(keccak256(shape), matter.shape);
    }

    // --------------------------------------------------------------------------------------------------------- reads

    /// @inheritdoc IDisputes
    function disputeOf(bytes32 dispute) external view returns (bytes32) {
        return _disputes[dispute];
    }

    /// @inheritdoc IDisputes
    function disputeIdOf(bytes32 result, uint32 position, address accuser) public pure returns (bytes32) {
        return keccak256(abi.encode(result, position, accuser));
    }

    /// @inheritdoc IDisputes
    function strideOf(uint8 left) public pure returns (uint8) {
        // As few turns as can be, and as even as they can be.
        uint256 turns = (uint256(left) + MOST_STRIDE - 1) / MOST_STRIDE;
        return turns == 0 ? 0 : uint8((left + turns - 1) / turns);
    }

    /// @inheritdoc IDisputes
    function bondFor() external view returns (uint96) {
        return BOND;
    }

    /// @inheritdoc IDisputes
    function windows() external view returns (uint256 turn, uint256 opening) {
        return (WINDOW, OPENING);
    }
}
