"""The market's rules: tabs, prices by work, checks that clients draw, one court. Pure functions over frozen types.

Read ``docs/reference/protocol.md`` first; it runs the whole protocol with these modules.

Words             types      structs of the interfaces        messages     EIP-712 messages, ids, seeds, hashes
Money             prices     what work costs                  tabs         vouchers and acknowledgement windows
                  claims     the Merkle-sum tree, objections  economy      what makes cheating lose
A request         lottery    secrets, and whether they hit    draws        which seats are drawn
                  checks     admission, results, verdicts     life         from order to acknowledgement or outcome
                  rows       the chain of a segment's rows    last_row     the state behind an embedding, opened
Evidence          court      a case's rules and money         convictions  what signatures prove by themselves
                  receipt    one file that proves it offline  errors       what is refused, and what to do
"""
