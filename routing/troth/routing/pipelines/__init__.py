"""Phase 2: which machines serve a request (Parallax, section 3.3). Entry: `router.Router`.

docs/explanation/placement.md explains it.
"""
