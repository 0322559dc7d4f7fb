// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

/// @notice Where a live task stands.
enum Phase {
    None,
    Opened,
    Assigned,
    Committed,
    Sampled,
    Disputed
}

/// @notice How a task ended. The last byte of a finished task's slot is this number; it is zero while the task lives.
enum Outcome {
    None,
    Accepted,
    Rejected,
    Indeterminate,
    Expired,
    Aborted
}

/// @notice Why stake was taken.
enum SlashReason {
    None,
    Rejected,
    Disagreed,
    Unrevealed,
    SchedulerLate,
    Equivocated,
    Overturned,
    DisputeLost
}

/// @notice What an operator address is registered as.
enum Role {
    None,
    Node,
    Scheduler
}

/// @notice Periods in blocks, fixed at deployment.
/// @param commitWindow blocks from opening to the commitments
/// @param sampleWindow blocks from the commitments to the sample; at most 200, so that the block hash is still known
/// @param revealWindow blocks from the sample (exact class: from the commitments) to the last opening
/// @param disputeWindow blocks from a settlement to the last block in which it can be disputed
/// @param unbondingPeriod blocks from deregistration to withdrawal; longer than a task, the dispute window, a
///        re-verification and the 200 blocks that an order's reference may lie back
/// @param minimumSchedulerStake wei that a scheduler needs to open a task
/// @param reserve account whose credit receives slashes that are owed to nobody else
struct Parameters {
    uint32 commitWindow;
    uint32 sampleWindow;
    uint32 revealWindow;
    uint32 disputeWindow;
    uint32 unbondingPeriod;
    uint96 minimumSchedulerStake;
    address reserve;
}

/// @notice A transformer at fixed weights; its id is keccak256(abi.encode(descriptor)).
/// @param architecture "llama/<keccak of the canonical configuration>/<keccak of tokenizer and chat template>"
/// @param dtype 0 float32, 1 bfloat16
/// @param weightsRoot Merkle root over the tensors, a leaf per weight row
struct ModelDescriptor {
    string architecture;
    uint16 layers;
    uint32 hiddenSize;
    uint32 vocabulary;
    uint8 dtype;
    bytes32 weightsRoot;
}

/// @notice How a model is run, compared and paid; its id is keccak256(abi.encode(executionClass)).
/// @param dtype of the traces: 0 float32, 1 bfloat16
/// @param exact whether honest runs are bitwise reproducible; if so roots are compared, else sampled tiles
/// @param mantissaBits how many mantissa bits are compared
/// @param steps how many steps at that precision two elements may differ
/// @param theta share of agreeing elements that makes two openings agree, basis points
/// @param tiles how many tiles are opened per party
/// @param candidates how many nodes may infer a segment
/// @param verifiers how many nodes check a segment; odd
/// @param reviewers how many other nodes check it again after a dispute; odd, more than `verifiers` (VeriLLM, Lemma E.2)
/// @param unit wei per unit of reward
/// @param minimumStake wei a node must have to join a group of the class
/// @param stateCut cut on the state score of a verifier, millionths (used off chain)
/// @param marginCut cut on the token margin of a verifier, millionths (used off chain)
/// @param calibration hash of the data the thresholds come from
struct ExecutionClass {
    bytes32 model;
    string name;
    uint8 dtype;
    bool exact;
    uint8 mantissaBits;
    uint16 steps;
    uint16 theta;
    uint8 tiles;
    uint8 candidates;
    uint8 verifiers;
    uint8 reviewers;
    uint96 unit;
    uint96 minimumStake;
    uint32 stateCut;
    uint32 marginCut;
    bytes32 calibration;
}

/// @notice What settlement needs to know of a class and its model, in one storage slot. Never holds unit 0.
struct Rules {
    uint96 unit;
    uint32 hiddenSize;
    uint16 layers;
    uint8 dtype;
    bool exact;
    uint8 mantissaBits;
    uint16 steps;
    uint16 theta;
    uint8 tiles;
    uint8 candidates;
    uint8 verifiers;
    uint8 reviewers;
}

/// @notice Contiguous layers [first, end).
struct Segment {
    uint8 first;
    uint8 end;
}

/// @notice Money and standing of an operator, in one storage slot.
/// @param exitBlock 0 while bonded, else the last block at which the stake can still be slashed
struct Account {
    uint96 stake;
    uint96 credit;
    uint40 exitBlock;
    Role role;
}

/// @param first first layer of the hosted slice
/// @param end layer after the last one of the hosted slice
/// @param segments segments, each inside the slice, whose groups the node joins
/// @param tlsKeyHash SHA-256 of the TLS public key that peers pin
struct NodeRegistration {
    address operator;
    address payout;
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    Segment[] segments;
    string endpoint;
    bytes32 tlsKeyHash;
}

/// @param vrfX abscissa of the P-256 VRF key
/// @param vrfY ordinate of the P-256 VRF key
struct SchedulerRegistration {
    address operator;
    address payout;
    uint256 vrfX;
    uint256 vrfY;
    string endpoint;
    bytes32 tlsKeyHash;
}

/// @notice What a client signs (EIP-712); the digest is the task id, so chain and contract are part of it.
/// @param deadline Unix seconds after which the order cannot be opened
/// @param referenceBlock block whose group membership the assignment uses
/// @param ends byte s is the end of segment s, zero after the last; signed, since the split chooses the groups, and who
///        could choose it alone would draw from groups of its own
struct Order {
    bytes32 executionClass;
    bytes32 requestHash;
    address scheduler;
    uint96 maxFee;
    uint64 deadline;
    uint64 referenceBlock;
    uint64 nonce;
    bytes32 ends;
}

/// @notice The part of a task that never changes.
/// @dev A review, which is a segment's second verification, is kept like a task: its client is who disputed (zero if
///      nobody did), its fee is the bond, its reference block the one before the dispute.
/// @param ends byte s is the end of segment s (segment 0 starts at layer 0); zero after the last segment. A review's is
///        a zero byte, the first layer, and the end of its one segment
struct Terms {
    address client;
    address scheduler;
    bytes32 executionClass;
    uint96 fee;
    uint64 referenceBlock;
    bytes32 ends;
}

/// @notice The part of a task that its calls move forward.
/// @param phaseBlock block at which the phase began; an assignment leaves the opening block here
/// @param segments number of segments
/// @param candidates number of candidates per segment
/// @param attempt attempt that was committed
/// @param positions rows of the trace
/// @param outputHash salted hash of the emitted tokens
/// @param seed output of the sampling VRF
/// @param parties per segment c candidates, then k verifiers; once a segment has a root, its inferencer stands first
///        (it changed places with the candidate that stood there); empty until assigned
/// @param posts per segment the inferencer's root, then k verifiers' commitments, zero where there is none;
///        empty until the first post
/// @param revealed per segment 1 + k hashes of what was revealed by its own call, inferencer first, zero where nothing
///        was; empty until the first reveal
struct Progress {
    Phase phase;
    uint40 phaseBlock;
    uint8 segments;
    uint8 candidates;
    uint8 attempt;
    uint32 positions;
    bytes32 outputHash;
    bytes32 seed;
    address[] parties;
    bytes32[] posts;
    bytes32[] revealed;
}

/// @notice A live task; its slot holds keccak256(abi.encode(keccak256(abi.encode(terms)), progress)), the last two bytes
///         cleared.
struct Task {
    Terms terms;
    Progress progress;
}

/// @notice What a settled task keeps for a dispute; its slot holds keccak256(abi.encode(last state,
///         keccak256(abi.encode(settled)))), but for the last two bytes: the number of segments that are not accepted,
///         and the outcome.
/// @param outcomes per segment: Accepted, Rejected or Indeterminate
/// @param verdicts per segment: bit v is set if verifier v opened the verdict true
/// @param clusters per segment: bit v is set if verifier v is in the proper cluster
/// @param valid per segment: bit v is set if verifier v opened a verdict that its own trace does not contradict; zero if
///        the inferencer opened nothing
/// @param settledBlock block of the settlement
struct Settled {
    uint8[] outcomes;
    uint8[] verdicts;
    uint8[] clusters;
    uint8[] valid;
    uint40 settledBlock;
}

/// @notice An RFC 9381 proof (suite 0x01) with what the contract needs to check it cheaply.
/// @param proof 81 bytes: Gamma, c, s
/// @param hints see the library EcVrf
struct VrfProof {
    bytes proof;
    uint256[] hints;
}

/// @notice All roots and commitments of a task with their makers' signatures.
/// @param inferencers byte s is the index of the candidate that inferred segment s
/// @param posts as in Progress
/// @param signatures 65 bytes (r, s, v) for each post that is not zero, in the same order: TraceRoot, VerdictCommitment
struct CommitSubmission {
    uint8 attempt;
    uint32 positions;
    bytes32 outputHash;
    bytes32 inferencers;
    bytes32[] posts;
    bytes signatures;
}

/// @notice What a party shows of its trace. An absent opening has a zero root and no tiles.
/// @param root trace root; an inferencer's equals its segment's root
/// @param verdict a verifier's verdict
/// @param salt salt of a verifier's commitment
/// @param tiles the sampled tiles, 512 bytes each; empty in an exact class
/// @param siblings proof paths, one after the other, bottom up
struct Opening {
    bytes32 root;
    bool verdict;
    bytes32 salt;
    bytes tiles;
    bytes32[] siblings;
}

/// @notice A signed row (EIP-712).
/// @param previous struct hash of the row before
struct Row {
    bytes32 taskId;
    uint8 segment;
    uint8 attempt;
    uint32 position;
    bytes32 rowHash;
    bytes32 previous;
}
