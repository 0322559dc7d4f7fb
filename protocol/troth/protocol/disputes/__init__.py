"""Disputes over arithmetic: how a trace is committed to, the turns of both sides, and what convicts
(``contracts/disputes``)."""
