"""`python -m troth.transport.probe URL`: the health check of a container. Exit code 0 where URL answers 200.

Only this machine's own loopback is asked, so that the key, which no authority vouches for, need not be known.
"""

from __future__ import annotations

import ssl
import sys
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

SECONDS = 5.0
LOOPBACK = {"127.0.0.1", "::1", "localhost"}


def probe(url: str) -> str:
    """Why it is not well; empty where it is."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or parts.hostname not in LOOPBACK:
        return f"{url} is not on this machine's loopback"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urlopen(Request(url), timeout=SECONDS, context=context) as answer:  # noqa: S310 - scheme and host are checked
            return "" if answer.status == 200 else f"{url} answers {answer.status}"
    except (URLError, OSError) as error:
        return f"{url}: {error}"


if __name__ == "__main__":
    words = probe(sys.argv[1]) if len(sys.argv) == 2 else "usage: python -m troth.transport.probe URL"
    sys.stdout.write(words)
    sys.exit(bool(words))
