"""Phase 1: which machine hosts which layers (Parallax, section 3.2). Entry: `placing.place`.

docs/explanation/placement.md explains it.
"""
