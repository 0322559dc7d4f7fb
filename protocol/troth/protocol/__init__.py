"""The rules of Troth: pure functions over frozen types. No sockets, no clock, no torch.

Read ``docs/reference/protocol.md`` first; it runs the whole protocol with these modules.

The market
    market         tabs, orders, draws, checks, the court; ``market.life.live`` states the life of a request

Words and identity
    types          scalars, layers, models                     errors        what is refused, and what to do
    hashing        keccak256                                   dtype         float32 and bfloat16
    typed_data     EIP-712: hash, sign, recover                identifiers   ids that are hashes of content
    architecture   a model's architecture string

One answer and its check
    request        canonical request and its salted hashes     vrf, p256     ECVRF-P256 (RFC 9381), contract hints
    tensors        rows and tokens as bytes                    wire          frames between scheduler and nodes
    tokens         public noise, choice, margins               trace         tiles, Merkle root, openings
    statistics, scores, comparison                             a verifier's judgement of states
    agreement, clusters                                        how many agree, and who agrees with whom

The chain, as data
    bindings, calls, logs                                      calldata and events, from the contracts' ABI
    contract_errors                                            what a contract refuses, in words
    committee, committee_calls                                 the directory's members
    reputation, reputation_events, reputation_calls            what they say of nodes
"""
