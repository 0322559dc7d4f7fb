// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// ---------------------------------------------------------------------------------------------------------------- court

enum CaseKind {
    None,
    Rejection, // drawn, and a majority of the drawn verifiers rejected
    Acceptance, // drawn, and no majority rejected: the client says that the result is false
    Doubt // not drawn, or not checked: only the leaf can fall
}

enum CasePhase {
    None,
    Opened,
    Drawn,
    Committed,
    Seeded
}

enum Outcome {
    None,
    Upheld, // the result stands: the opener loses its bond
    Convicted, // the node loses L
    Refunded, // the leaf falls, nobody is slashed
    Undecided, // no cluster, twice: the leaf falls, nobody is slashed
    OpenerMissing, // the case is lost, the leaf stays open
    SchedulerMissing, // the scheduler loses L
    NodeMissing, // the node showed nothing: it loses L
    Lapsed // the opener did not carry it on: the bond is lost
}

/// @notice A case on its way; the Court stores keccak256(abi.encode(state)).
/// @param order digest of the order
/// @param result struct hash of the result that is judged
/// @param node who signed it
/// @param opener who put up the bond
/// @param verifiers drawn verifiers, one per seat, with a byte each in `opinions`; empty for a Doubt
/// @param excluded owners who cannot review
/// @param rows rows of the trace: prompt + cached + written - 1, at least 1, and no more than fit 2^22 tiles
/// @param fee what the order costs: the client's refund
/// @param unit u of the case: what a seat earns, over six
/// @param bond what the opener put up
/// @param locked what is locked of the node's stake
/// @param suspends whether the node is suspended for it
/// @param phaseBlock block in which this phase began
/// @param round counts all rounds under this case id, so that nothing that was signed for one counts in another: even in the
///        first round of an opening, odd in the second, after an undecided first one
/// @param answeredAt block that the scheduler's draw names
/// @param drawer who drew the reviewers, committer who ended the commitments, seeder who proved the tiles' seed, in this round:
///        each gets its gas back
/// @param reviewers distinct nodes, with their drawn seats in `seats`, a byte each
/// @param commitments one per reviewer, zero where there is none
struct CaseState {
    CaseKind kind;
    CasePhase phase;
    uint8 segment;
    uint8 round;
    bool suspends;
    uint40 phaseBlock;
    uint64 referenceBlock;
    uint64 answeredAt;
    uint32 rows;
    bytes32 order;
    bytes32 executionClass;
    bytes32 ends;
    bytes32 result;
    bytes32 traceCommitment;
    address client;
    address scheduler;
    address node;
    address opener;
    uint96 fee;
    uint96 unit;
    uint96 bond;
    uint96 locked;
    address[] verifiers;
    bytes opinions;
    address[] excluded;
    address[] reviewers;
    bytes seats;
    bytes32[] commitments;
    bytes32 seed;
    address drawer;
    address committer;
    address seeder;
}

/// @notice What the node shows: its root and salt, and its tiles. Absent: root zero.
struct NodeReveal {
    bytes32 root;
    bytes32 salt;
    bytes tiles;
    bytes32[] siblings;
}

// -------------------------------------------------------------------------------------------------------------- summons

enum SummonsKind {
    None,
    Results, // an admitted order without results
    Check // a drawn segment without verdicts
}

/// @notice A summons on its way; Summons stores keccak256(abi.encode(state)).
/// @param extended whether it was passed on
/// @param offenceBlock block of the admission or draw that proves it
/// @param referenceBlock of the order, from which the conviction voids
/// @param order digest of the order
/// @param results what the draw names; zero for Results
/// @param named what the scheduler's word names: the admission's nodes, or the draw's beta
/// @param secret the client's first one; zero for Results
/// @param passedTo a node that was silent, and now must speak; zero: the scheduler must answer
/// @param deposit what the summoner put up and the scheduler holds
/// @param fee the order's bound, by which silence is priced
struct SummonsState {
    SummonsKind kind;
    uint8 segment;
    bool extended;
    uint40 deadline;
    uint64 offenceBlock;
    uint64 referenceBlock;
    bytes32 order;
    bytes32 executionClass;
    bytes32 ends;
    bytes32 results;
    bytes32 named;
    bytes32 secret;
    address client;
    address scheduler;
    address summoner;
    address passedTo;
    uint96 deposit;
    uint96 fee;
}

/// @notice Why a party was convicted.
enum Fault {
    None,
    FalseResult, // by the court
    NothingShown, // by the court: nothing was shown, or rows are missing
    Unanswered, // a summons was not answered
    TwoResults,
    TwoRows,
    TwoVerdicts,
    TwoAdmissions,
    TwoDraws,
    WrongNodes, // other nodes than those that were drawn
    WrongBeta, // another output than that of the VRF
    HeadsApart, // heads that do not meet, under the scheduler's signature
    PromiseBroken, // a settled claim that the tab did not cover
    ByProof, // by the prover
    Pooled // more outcomes between the cuts than honest noise gives
}
