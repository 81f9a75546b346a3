"""Process titles: what `ps` shows an operator. `paceline: apollo apollo.IngestCompany id=8123`."""

import setproctitle as _setproctitle


def set_title(text: str) -> None:
    """Name this process `paceline: TEXT`. About a microsecond."""
    _setproctitle.setproctitle(f"paceline: {text}")
