"""Attestation: what a machine runs, said by its hardware, bound to the keys under which it answers.

docs/explanation/confidential.md says who reads what, and what was never run on such a machine.
"""
