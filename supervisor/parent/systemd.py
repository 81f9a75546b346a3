"""What systemd is told of the parent, if it asks to be (sd_notify(3)): READY, STOPPING, and that its loop turns."""

import os
import socket
from contextlib import suppress


class Systemd:
    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        self._watched = bool(os.environ.get("WATCHDOG_USEC"))

    def ready(self) -> None:
        self._tell("READY=1")

    def stopping(self) -> None:
        self._tell("STOPPING=1")

    def turned(self) -> None:
        """The loop turns, as it does every second: let WatchdogSec be a few of them."""
        if self._watched:
            self._tell("WATCHDOG=1")

    def _tell(self, text: str) -> None:
        if self._address:
            address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as end:
                end.sendto(text.encode(), address)
