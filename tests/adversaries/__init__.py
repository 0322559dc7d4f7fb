"""Adversaries: real processes that run the real services and break one rule each.

`registry` lists them, with what must catch each. `node` is the process of a dishonest node: the shipped service with
one of its parts replaced (`impostor` the engine, `conspiracy` the rules of a verifier). What a process does in which
task it reads from `notes`, so that one process plays many cheats and nothing is restarted. `stage` is the network,
`trial` one question and what came of it, `table` what is printed. `python -m adversaries` plays all of them.
"""
