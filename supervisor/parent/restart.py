"""When a dead child is started again: a pure function of its deaths and the time."""

from collections.abc import Sequence

LONGEST = 60.0  # seconds
_SPREAD = 0.2  # of the delay, so that queues that died together do not start together


def restart_at(deaths: Sequence[float]) -> float:
    """When to start again after these deaths without a finished job in between; 0 for none.

    At once after the first, then 1, 2, 4 ... 60 seconds after the last. The jitter is drawn from the
    time of death itself, so that the rule stays a function.
    """
    if not deaths:
        return 0.0
    delay = min(LONGEST, 2.0 ** (len(deaths) - 2)) if 1 < len(deaths) < 40 else LONGEST * (len(deaths) > 1)
    jitter = deaths[-1] * 1e3 % 1  # the microseconds of the death, in [0, 1)
    return deaths[-1] + delay * (1 - _SPREAD * jitter)


def restart_delay(deaths: Sequence[float], now: float) -> float:
    """Seconds to wait from `now` before the next start."""
    return max(0.0, restart_at(deaths) - now)
