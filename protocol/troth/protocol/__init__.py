"""The rules of Troth: pure functions over frozen types. No sockets, no clock, no torch.

Read ``docs/protocol.md`` first; it runs the whole protocol with these modules.

The market
    market         tabs, orders, draws, checks, the court; ``market.life.live`` states the life of a request

The rest is what both ways share, and the per-task way.

Words and identity
    types          the protocol's structs and scalars          errors        what is refused, and what to do
    hashing        keccak256                                   dtype         float32 and bfloat16
    typed_data     EIP-712: hash, sign, recover                identifiers   content hashes, commitments, fee
    architecture   a model's architecture string

One request, in order
    request        canonical request and its salted hashes     announcement  what a node is shown before it serves
    vrf, p256      ECVRF-P256 (RFC 9381), contract hints       permutation   Fisher–Yates from a VRF output
    assignment     the draw of parties and of tiles            rows          the signed chain of states
    tensors        rows and tokens as bytes                    wire          frames between scheduler and nodes
    tokens         public noise, choice, margins               trace         tiles, Merkle root, openings
    statistics, scores, comparison                             a verifier's judgement of states
    agreement, clusters, settlement, payout                    the contract's decision, and who is paid

The chain, as data
    task, task_progress, contract_types, contract_errors       the contract's structs and refusals
    calls, events, bindings                                    its calldata and logs, from its ABI
    state, mapping, fold, fold_registry, fold_tasks, fold_money  the chain's state, folded from events
"""
