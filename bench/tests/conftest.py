"""Examples of property tests are the same in every run, as in `tests/conftest.py`."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("fixed", deadline=None, derandomize=True)
settings.load_profile("fixed")
