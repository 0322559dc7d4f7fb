// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// ---------------------------------------------------------------------------------------------------- deployment

/// @notice What is fixed for a deployment. Windows are in blocks, money is in the asset's smallest unit.
/// @param asset the chain's coin (zero) or one ERC-20
/// @param lag D: blocks from an answer to its acknowledgement; a burst of cheats is found before it is paid
/// @param summonsWindow blocks in which a summons is answered
/// @param lookahead blocks from an opening to the block whose RANDAO draws (EIP-4399; 132 on Ethereum)
/// @param drawWindow blocks after the lookahead in which that RANDAO can be proven; within EIP-2935's 8,191
/// @param commitWindow blocks from the draw of reviewers to their commitments
/// @param revealWindow blocks from the seed (exact classes: from the commitments) to the reveals
/// @param claimDelay blocks from a claim to its settlement; longer than the longest case
/// @param answerWindow blocks in which an objection is answered
/// @param closeDelay blocks from closing a tab to its end; longer than a claim and its last objection
/// @param unbonding blocks from deregistration to withdrawal; longer than order, lag and the longest case
/// @param seasoning blocks after which a seat may check and judge (seven days on Ethereum)
/// @param referenceAge blocks that an order's reference block may lie back
/// @param suspensionPause blocks in which a node is suspended by at most one case (a day on Ethereum)
/// @param schedulerStake least stake of a scheduler
/// @param gasPrice asset units per 10^9 gas: for the coin the most at which gas is paid back, for a token what is paid
///        back whatever gas costs, since nobody knows that here
/// @param weights weight of each node's seats in draws (reputation), or zero: all count fully
/// @param prover contract that convicts by proof in place of the deployment's own (IProofs), or zero
struct Parameters {
    address asset;
    uint32 lag;
    uint32 summonsWindow;
    uint32 lookahead;
    uint32 drawWindow;
    uint32 commitWindow;
    uint32 revealWindow;
    uint32 claimDelay;
    uint32 answerWindow;
    uint32 closeDelay;
    uint32 unbonding;
    uint32 seasoning;
    uint32 referenceAge;
    uint32 suspensionPause;
    uint96 schedulerStake;
    uint96 gasPrice;
    address weights;
    address prover;
}

// ---------------------------------------------------------------------------------------------------------- money

/// @notice Where money can be. Every unit that the Bank holds is in exactly one pot.
enum PotKind {
    Credit, // withdrawable; id = account
    Stake, // bonded; id = operator
    Locked, // stake that is earmarked for a case; id = operator
    Tab, // id = tab
    Bond, // of a case or a summons; id = its id
    Burnt // nobody's; id = 0
}

/// @notice One movement; pots are (kind, id), an address as the lower 160 bits of its id.
struct Movement {
    PotKind fromKind;
    bytes32 fromId;
    PotKind toKind;
    bytes32 toId;
    uint96 amount;
}

/// @notice A one-way payment channel; its id is keccak256(abi.encode(payer, payee, key)).
/// @param key signs for this tab: an account, or a contract that answers EIP-1271 (another kind of voucher verifier)
struct Tab {
    address payer;
    address payee;
    address key;
}

/// @notice What is stored of a tab, in one slot. `redeemed` never resets, so that old vouchers never replay.
/// @param balance what is left of the deposits
/// @param redeemed paid out to the payee, ever
/// @param closesAt block from which the payer may take the rest; 0 while open
struct TabState {
    uint96 balance;
    uint96 redeemed;
    uint40 closesAt;
    bool known;
}

/// @notice EIP-712: the payer's latest word on a tab, signed by the tab key.
/// @param spent cumulative, payable at once
/// @param authorised cumulative: the most that may be owed with every order up to `sequence`
/// @param sequence last sequence number that this word covers
/// @param acknowledgedThrough every number up to here is acknowledged (paid by `spent`), less the exceptions
/// @param exceptions bit i: number acknowledgedThrough - i is not acknowledged
struct Voucher {
    bytes32 tab;
    uint96 spent;
    uint96 authorised;
    uint64 sequence;
    uint64 acknowledgedThrough;
    uint256 exceptions;
}

/// @notice EIP-712: the tab key agrees to be the key of this payer's tab with this payee.
struct TabConsent {
    address payer;
    address payee;
}

/// @notice Leaves that were authorised but not acknowledged, claimed at once.
/// @param first first claimed sequence number; leaf i of the tree is number first + i
/// @param last last claimed sequence number
/// @param exceptions bit i: number first + i is not claimed (only the first 256 numbers can be left out)
/// @param total sum of all leaves
/// @param root Merkle-sum root over the leaves (library SumTree)
struct Claim {
    uint64 first;
    uint64 last;
    uint256 exceptions;
    uint96 total;
    bytes32 root;
}

/// @notice A claim on its way; its id is keccak256(abi.encode(state)), the lowest sixteen bits cleared. The Bank stores id and
///         number of open objections in one word per tab, so that a new objection never invalidates a call that is on its way.
/// @param voucher the word of the payer that it stands on
/// @param owed voucher.spent + claim.total, at most voucher.authorised
/// @param settlesAt block from which it can be settled
/// @param claimer who filed it, the payee or its owner, and gets its gas back
struct ClaimState {
    Claim claim;
    Voucher voucher;
    uint96 owed;
    uint40 settlesAt;
    address claimer;
}

/// @notice Which order's money a tab leaf is.
enum LeafKind {
    Order, // client to scheduler: an order and its results
    Promise // scheduler to node: a promise with the node's result or verdict
}

// ----------------------------------------------------------------------------------------------- parties and classes

enum Role {
    None,
    Node,
    Scheduler
}

/// @notice A transformer at fixed weights; its id is keccak256(abi.encode(descriptor)).
struct ModelDescriptor {
    string architecture;
    uint16 layers;
    uint32 hiddenSize;
    uint32 vocabulary;
    uint8 dtype;
    bytes32 weightsRoot;
}

/// @notice Contiguous layers [first, end).
struct Segment {
    uint8 first;
    uint8 end;
}

/// @notice How a model is run, compared, priced and judged; its id is keccak256(abi.encode(executionClass)).
/// @param dtype of the traces: 0 float32, 1 bfloat16
/// @param exact whether honest runs are bitwise reproducible; if so roots are compared, else sampled tiles
/// @param mantissaBits how many mantissa bits are compared
/// @param steps how many steps at that precision two elements may differ
/// @param theta share of agreeing elements that makes two openings agree, basis points
/// @param tiles tiles that each party of a case opens; 0 in an exact class
/// @param candidates how many nodes may infer a segment (c)
/// @param verifiers seats that check a drawn answer (k); odd
/// @param reviewers seats of the court (m'); odd
/// @param checkPrice asset units per 10^9 positions that one seat earns for checking or reviewing: six units (u)
/// @param feeCap the most an order of this class can cost (g)
/// @param leastCheckRate least share of orders that clients draw (q), millionths
/// @param honestShare share of honest seats that the penalty is made for (r), basis points
/// @param penalty what a conviction takes (L)
/// @param seat stake of one seat
/// @param seatCap most seats of one node
/// @param stateCut cut on the state score of a verifier, millionths
/// @param marginCut cut on the token margin of a verifier, millionths
/// @param secondCut score, in millionths of the first cut, beyond which a tolerant class takes stake; above 1,000,000
/// @param poolLimit outcomes between the cuts, per owner in a pool window, that convict
/// @param poolWindow blocks of that window
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
    uint96 checkPrice;
    uint96 feeCap;
    uint32 leastCheckRate;
    uint16 honestShare;
    uint96 penalty;
    uint96 seat;
    uint16 seatCap;
    uint32 stateCut;
    uint32 marginCut;
    uint32 secondCut;
    uint16 poolLimit;
    uint32 poolWindow;
    bytes32 calibration;
}

/// @notice What the other contracts need to know of a class, packed in three slots. Never holds seat 0.
struct Rules {
    uint96 penalty;
    uint96 seat;
    uint16 seatCap;
    uint8 dtype;
    bool exact;
    uint8 mantissaBits;
    uint8 tiles;
    uint8 verifiers;
    uint8 reviewers;
    uint96 checkPrice;
    uint96 feeCap;
    uint32 leastCheckRate;
    uint16 theta;
    uint16 steps;
    uint32 secondCut;
    uint16 poolLimit;
    uint32 poolWindow;
    uint32 hiddenSize;
    uint16 layers;
    uint8 candidates;
}

/// @notice What a node asks for its segment, asset units per 10^9 positions.
struct Ask {
    uint64 prompt;
    uint64 cached;
    uint64 written;
}

/// @param segments one or two, each inside [first, end), whose groups the node joins
/// @param asks one per segment
/// @param payout where credit is paid; zero: the owner
struct NodeRegistration {
    address operator;
    address payout;
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    Segment[] segments;
    Ask[] asks;
    uint96 stake;
    string endpoint;
    bytes32 tlsKeyHash;
}

struct SchedulerRegistration {
    address operator;
    address payout;
    uint256 vrfX;
    uint256 vrfY;
    uint96 stake;
    string endpoint;
    bytes32 tlsKeyHash;
}

/// @notice EIP-712: an operator's agreement to be registered by `owner`.
struct Consent {
    address owner;
    address operator;
}

/// @notice A member of a group at one place of its compact array, from a block on; one storage slot.
/// @param since block at which the newest seats were added
/// @param seats all seats; 0 while suspended
/// @param settled seats that were there before the newest ones; they season from earlier
struct Entry {
    address operator;
    uint32 fromBlock;
    uint32 since;
    uint16 seats;
    uint16 settled;
}

/// @notice What is drawn. The rule: for i = 0, 1, …: h = keccak256(abi.encode(seed, i)); place = (h >> 128) mod size;
///         the entry there at `blockNumber` is accepted if (h mod 2^128) mod (seatCap * 10,000) < seats * weight, its owner
///         is not excluded, and (if `distinct`) it was not accepted before and its ask does not exceed `bound`.
/// @param seasoned count only seats that are at least `seasoning` old at `blockNumber`
/// @param distinct candidates are different nodes, within a price; verifiers and reviewers are seats at the class's price, and a
///        node has all of its drawn ones
/// @param excluded owners
/// @param bound what an ask for this segment may be at most, where `distinct`; zero is a bound like another
/// @param hints four bytes for each look-up that the latest word does not answer, in order (Registry.draw; Lens.draw makes them)
struct DrawRequest {
    bytes32 executionClass;
    uint8 first;
    uint8 end;
    uint64 blockNumber;
    bytes32 seed;
    uint16 count;
    bool seasoned;
    bool distinct;
    address[] excluded;
    Ask bound;
    bytes hints;
}
