"""Adversaries of the market: real processes that run the shipped services and break one rule each.

`registry` lists the rows of docs/reference/adversaries.md. `plan` is what the processes of one network are told,
`nodes` and `scheduler` are those processes, `rules` how they replace a rule of the shipped program; what a party does
in which order they read from `notes`, so that whoever is drawn plays the cheat and nothing is restarted. `network` sets
everything up, `money` counts what each party has, to the wei, `trial` plays a row, `scripts` holds rows whose cheat is
a client or plays on chain, `table` prints. `python -m adversaries` plays all of them.
"""
