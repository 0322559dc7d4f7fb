"""Canonical arithmetic: one right value for each number that a decoder layer computes, whatever machine computes it.

``operations`` says which numbers there are and what each is computed from, ``shapes`` reads a layer's sizes from a
model's configuration. docs/reference/arithmetic.md is the whole of it in words, ADR 34 says why.
"""
