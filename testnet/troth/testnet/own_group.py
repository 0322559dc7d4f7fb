"""Imported by the server of ``forked`` alone: a process group of its own, for the server and all that it forks.

A signal to the group of a demo, such as that of `timeout` or of Ctrl-C in a terminal, then reaches the demo alone: it
stops its processes and waits for each. The server would end by such a signal, and nobody could wait for them.
"""

from __future__ import annotations

import os

os.setpgid(0, 0)
