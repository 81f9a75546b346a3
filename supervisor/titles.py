"""Process titles: what `ps` shows an operator. `paceline: apollo apollo.IngestCompany id=8123`."""

from datetime import UTC, datetime, timedelta

import setproctitle as _setproctitle

from supervisor.worker import boottime

# At its first use it looks for the place of the title by that of the environment's first variable: let that be now,
# before a registry or the sandbox changes the variable, which moves it.
_setproctitle.getproctitle()


def set_title(text: str) -> None:
    """Name this process `paceline: TEXT`. About a microsecond."""
    _setproctitle.setproctitle(f"paceline: {text}")


def utc(moment: float) -> datetime:
    """A moment on boottime() as a date."""
    return datetime.now(UTC) + timedelta(seconds=moment - boottime())


def clock(moment: float, form: str = "%H:%M:%S") -> str:
    """A moment on boottime() as titles show it, in UTC, with the date where that is another day."""
    then = utc(moment)
    return then.strftime(form if then.date() == datetime.now(UTC).date() else f"%Y-%m-%d {form}")
