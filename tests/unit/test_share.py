"""The share of jobs that are traced: from 0 to 1, and anything else is a usage error."""

import pytest

from supervisor.cli import _parser
from supervisor.errors import UsageError


def test_nothing_is_traced_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SENTRY_TRACES_SAMPLE_RATE", raising=False)
    assert _parser().parse_args(["run"]).sentry_traces_sample_rate == 0


def test_the_environment_says_it_and_a_flag_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_TRACES_SAMPLE_RATE", "0.25")
    assert _parser().parse_args(["run"]).sentry_traces_sample_rate == 0.25
    assert _parser().parse_args(["run", "--sentry-traces-sample-rate", "1"]).sentry_traces_sample_rate == 1


@pytest.mark.parametrize("given", ["1.1", "-1", "nan", "much"])
def test_what_is_no_share_is_refused(given: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SENTRY_TRACES_SAMPLE_RATE", given)
    with pytest.raises(UsageError, match=f"'{given}' is not a share from 0 to 1"):
        _parser().parse_args(["run"])
