// SPDX-License-Identifier: Apache-2.0
pragma solidity ^0.8.30;

// What parties sign (EIP-712). Every message is flat.

/// @notice A client's order, signed by its tab key. Its digest is the order's id everywhere.
/// @param tab the client's tab with the scheduler, who is its payee
/// @param sequence number of the order on its tab, from 1
/// @param requestHash keccak256 of a salt and the canonical request
/// @param ends byte s is the end of segment s, zero after the last
/// @param promptPrice what the client pays, asset units per 10^9 positions
/// @param nodeShare share of these prices that nodes may ask, basis points: seats that ask more are passed over
/// @param maxFee the most it costs, at most the class's cap
/// @param checkRate q, millionths, at least the class's least; 1,000,000: always
/// @param deadline Unix seconds after which it is not admitted
/// @param referenceBlock block whose groups, asks and keys count
/// @param drawHash keccak256 of the first secret: the lottery
/// @param tilesHash keccak256 of the second secret: the tiles of a check
/// @param replyKey X25519 key for what comes back sealed
struct Order {
    bytes32 tab;
    uint64 sequence;
    bytes32 executionClass;
    bytes32 requestHash;
    bytes32 ends;
    uint64 promptPrice;
    uint64 cachedPrice;
    uint64 writtenPrice;
    uint16 nodeShare;
    uint96 maxFee;
    uint32 checkRate;
    uint64 deadline;
    uint64 referenceBlock;
    bytes32 drawHash;
    bytes32 tilesHash;
    bytes32 replyKey;
}

/// @notice The scheduler takes an order and names who serves it.
/// @param nodes keccak256(abi.encodePacked(inferencer of each segment)), each as a 32-byte word
/// @param blockNumber newest block that the scheduler saw
struct Admission {
    bytes32 order;
    bytes32 nodes;
    uint64 blockNumber;
}

enum Work {
    Inference,
    Check
}

/// @notice The scheduler owes a node for work on an order, signed by the key of their tab before the node begins.
/// @param sequence number of the promise on their tab, from 1
/// @param work Inference or Check, as a number
/// @param referenceBlock of the order
/// @param price most that the work costs; inference is paid by the positions of the result at `ask`, a check in full
struct Promise {
    bytes32 tab;
    uint64 sequence;
    bytes32 order;
    uint8 segment;
    uint8 work;
    uint64 referenceBlock;
    uint64 promptAsk;
    uint64 cachedAsk;
    uint64 writtenAsk;
    uint96 price;
}

/// @notice One row of a node's trace, chained to the row before it.
struct Row {
    bytes32 order;
    uint8 segment;
    uint32 position;
    bytes32 rowHash;
    bytes32 previous;
}

/// @notice What a node signs at the end of its part; in court only this can convict it.
/// @param inputHead chain head of the rows it read, the output head of the segment before; the first one's is the request hash
/// @param outputHead chain head of the rows it gave
/// @param prompt positions computed from the prompt; cached: of it taken from a cache; written: tokens it wrote
/// @param traceCommitment keccak256(abi.encode(trace root, salt))
/// @param outputHash salted hash of the answer; zero but at the last segment
struct Result {
    bytes32 order;
    uint8 segment;
    bytes32 inputHead;
    bytes32 outputHead;
    uint32 prompt;
    uint32 cached;
    uint32 written;
    bytes32 traceCommitment;
    bytes32 outputHash;
}

/// @notice The scheduler's word after the answer, from which the lag runs.
/// @param results keccak256 over the struct hashes of all results, in order of segments
/// @param beta output of its VRF over (order, "draw")
/// @param blockNumber newest block that the scheduler saw
struct Draw {
    bytes32 order;
    bytes32 results;
    bytes32 beta;
    uint64 blockNumber;
}

/// @notice A verifier's hidden trace root, signed before it sees the node's rows.
/// @param result struct hash of the result that it will judge: who is shown another one commits once more
struct TraceCommitment {
    bytes32 order;
    uint8 segment;
    bytes32 result;
    bytes32 commitment;
}

/// @notice What a verifier or reviewer says. CannotTell costs nobody anything.
enum Opinion {
    None,
    Accept,
    Reject,
    CannotTell,
    MissingPrompt, // of the opener: prompt or answer
    MissingInput, // of the scheduler: rows of the segments before
    MissingTrace // of the node: its own rows
}

/// @notice A verifier's verdict over one result.
/// @param result struct hash of the result
/// @param commitment of its TraceCommitment
/// @param opinion Accept, Reject or CannotTell, as a number
/// @param locks a rejection that suspends the node: the verifier locks L for it
struct Verdict {
    bytes32 order;
    uint8 segment;
    bytes32 result;
    bytes32 commitment;
    uint8 opinion;
    bool locks;
}

/// @notice A signature of 64 bytes (EIP-2098): parity above s.
struct Signature {
    bytes32 r;
    bytes32 vs;
}

/// @notice What a verdict says where order, segment and result are known, with its signature.
struct Word {
    bytes32 commitment;
    uint8 opinion;
    bool locks;
    Signature signature;
}

/// @notice The scheduler promises that a leaf is in its log.
/// @param entry number of the log entry that will hold it at the latest
struct Inclusion {
    bytes32 order;
    bytes32 leaf;
    uint64 entry;
}

/// @notice A reviewer's hidden reveal in one round of a case:
///         keccak256(abi.encode(hearing, reviewer, root, opinion, score, spread, salt)).
/// @param caseId the hearing: Messages.hearing(caseId, round), so that a commitment of one round is worth nothing in another
struct ReviewCommitment {
    bytes32 caseId;
    bytes32 commitment;
}

/// @notice An RFC 9381 proof (suite 0x01) with what EcVrf needs to check it cheaply.
struct VrfProof {
    bytes proof;
    uint256[] hints;
}

/// @notice An order with all that was signed over it, as a case, a summons or a conviction needs it.
/// @param client the tab's payer
/// @param key the tab's key
struct SignedOrder {
    Order order;
    address client;
    address scheduler;
    address key;
    bytes signature;
}
