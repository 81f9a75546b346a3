"""Waiting for facts: the only way a test here lets time pass."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def eventually(probe: Callable[[], T], timeout: float = 15.0) -> T:
    """The first truthy answer of `probe`; AssertionError with the last answer after `timeout` seconds.

    An exception of the probe's counts as "not yet" and is shown when time is up.
    """
    give_up = time.monotonic() + timeout
    while True:
        try:
            last: object = (answer := probe())
            if answer:
                return answer
        except Exception as error:  # noqa: BLE001 - whatever the probe raises, it is not there yet
            last = error
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {timeout:g} s; last seen: {last!r}")
        time.sleep(0.01)
