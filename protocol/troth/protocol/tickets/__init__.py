"""Payment that nobody can link to who bought it: tickets, blind-signed by t of n committee members.

``curve`` (points and names), ``dealing`` (an epoch's key, which nobody holds whole), ``signing`` (blind signatures and
their checks), ``purchases`` (what a buyer keeps, and the tree that it commits to), ``messages`` (what is signed and
sent to contracts/tickets/Tickets.sol).
"""
