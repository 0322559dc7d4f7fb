"""A process that writes every packet that enters the router into a pcap file, until SIGTERM.

Run as a script (only the standard library, so that it starts at once): capture.py FILE. Prints "capturing", and at the
end how many frames the kernel dropped for want of room. Each packet enters once, by the cable of whoever sent it.
"""

from __future__ import annotations

import signal
import socket
import struct
import sys
from pathlib import Path
from typing import BinaryIO

_ALL_PROTOCOLS = 3
_SOL_PACKET, _STATISTICS = 263, 6
_RECEIVE_BUFFER_FORCE, _TIMESTAMPS = 33, 35
_OUTGOING = 4
_BUFFER = 64 * 2**20
_LARGEST = 2**18
PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, _LARGEST, 1)
"""Little-endian, times in nanoseconds, Ethernet."""
RECORD = struct.Struct("<IIII")


def capture(file: BinaryIO) -> int:
    """Write until SIGTERM; returns the number of frames that were lost."""
    stopping = False

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_PROTOCOLS)) as tap:
        tap.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER_FORCE, _BUFFER)
        tap.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
        tap.settimeout(0.2)
        file.write(PCAP_HEADER)
        print("capturing", flush=True)
        while True:
            try:
                frame, ancillary, _, address = tap.recvmsg(_LARGEST, 64)
            except TimeoutError:
                if stopping:
                    break
                continue
            if address[2] != _OUTGOING:
                seconds, nanoseconds = struct.unpack("qq", ancillary[0][2])
                file.write(RECORD.pack(seconds, nanoseconds, len(frame), len(frame)) + frame)
        return int(struct.unpack("II", tap.getsockopt(_SOL_PACKET, _STATISTICS, 8))[1])


if __name__ == "__main__":
    with Path(sys.argv[1]).open("wb") as output:
        lost = capture(output)
    print(f"lost {lost}", flush=True)
