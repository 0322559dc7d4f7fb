"""Engines: what computes boundary states. `interface` is the seam; `torch_engine` is the one for any slice."""
