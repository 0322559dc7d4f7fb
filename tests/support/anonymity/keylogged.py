"""Runs the `main` of a module with TLS key logs on: python -m support.anonymity.keylogged FILE MODULE [ARGUMENTS].

Only tests do this. The product has no way to log keys: here every SSLContext is given the file when it is made.
"""

from __future__ import annotations

import importlib
import ssl
import sys


def log_keys(file: str) -> None:
    """From now on every TLS context of this process writes its secrets to `file`."""
    made = ssl.SSLContext.__new__

    def logging(cls: type[ssl.SSLContext], *arguments: object, **options: object) -> ssl.SSLContext:
        context = made(cls, *arguments, **options)
        context.keylog_filename = file
        return context

    ssl.SSLContext.__new__ = logging


def main() -> None:
    """See the module."""
    file, module = sys.argv[1:3]
    sys.argv[:3] = [module]
    log_keys(file)
    importlib.import_module(module).main()


if __name__ == "__main__":
    main()
