"""Regular expressions that a stranger wrote into config.json: which names they fit, in bounded time and memory.

An expression of a few characters may take longer than the age of the universe, and an engine asks it at its start. It
is tried here in a process of its own, that ends after some seconds whatever happens within.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence

from troth.node.errors import ModelError

SECONDS = 10.0
"""For all expressions over all names of a model; those of real models take some hundredths."""
MEMORY = 1 << 30
OTHER_SOURCE = "Fetch the model again from its source."
_TRIED = f"""
import json, re, resource, sys
resource.setrlimit(resource.RLIMIT_AS, ({MEMORY}, {MEMORY}))
resource.setrlimit(resource.RLIMIT_CPU, ({int(SECONDS)}, {int(SECONDS)}))
told = json.load(sys.stdin)
compiled = [re.compile(one) for one in told["patterns"]]
json.dump([[place for place, name in enumerate(told["names"]) if one.match(name)] for one in compiled], sys.stdout)
"""


def fitting(patterns: Sequence[str], names: Iterable[str]) -> Mapping[str, frozenset[str]]:
    """The names that begin as each expression says.

    Raises:
        ModelError: one of them is none, or they take too long.
    """
    if not patterns:
        return {}
    listed = sorted(names)
    told = json.dumps({"patterns": patterns, "names": listed})
    command = [sys.executable, "-I", "-S", "-c", _TRIED]
    try:
        done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=SECONDS, check=True)
    except (subprocess.SubprocessError, UnicodeError) as error:
        said = ", ".join(ascii(one[:60]) for one in patterns[:3])
        what = "a pattern of quantization_config cannot be used, or does not end"
        raise ModelError(what, said, OTHER_SOURCE) from error
    found = json.loads(done.stdout)
    return {one: frozenset(listed[place] for place in places) for one, places in zip(patterns, found, strict=True)}
