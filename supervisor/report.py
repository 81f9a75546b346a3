"""Faults: each is one log line and one Sentry event, tagged queue, job and id.

One run of failures is one event (Outage). Log records never become events by themselves.
In a child; the parent reports through a helper, since the SDK starts a thread at the first event.
What Sentry gets beyond faults, where tracing is on, is in child/traces.py and enqueue.py.
"""

import time
from collections.abc import Callable, Mapping

import sentry_sdk
from sentry_sdk.tracing import Span

from supervisor.log import log

FLUSH_LIMIT = 2.0  # seconds that a process waits for its events to leave
_QUIET = 60.0  # seconds without waiting, after an ingest did not take an event in time


class _Ingest:
    """What this process has seen of where its events go."""

    slow_until = 0.0  # on time.monotonic()


def start(dsn: str | None, traces_sample_rate: float = 0.0) -> None:
    """Set the SDK up; with no DSN its calls do nothing. It starts no thread before the first event."""
    if not dsn:
        return
    sentry_sdk.init(
        dsn=dsn,
        # None of them: they turn log records into events, drop an error that comes twice, and put the command
        # line (a password may stand there), programs run and requests made into every event.
        default_integrations=False,
        auto_enabling_integrations=False,
        max_breadcrumbs=0,
        auto_session_tracking=False,
        include_local_variables=False,  # a stack's variables hold tokens and answers
        send_default_pii=False,
        max_request_body_size="never",
        traces_sample_rate=traces_sample_rate or None,
        enable_backpressure_handling=False,  # it starts a thread of its own
    )


def fault(text: str, error: BaseException | None = None, *, queue: str = "", job: str = "", id: int = 0) -> None:
    """Log `text` and send one event: of `error` with its stack, or of the text.

    Waits up to FLUSH_LIMIT for the event to leave, so that it arrives also if the process dies next;
    not for a minute after an ingest that did not take one in time.
    """
    log.error("%s", " ".join(text.split()))
    capture(text, error, {"queue": queue, "job": job, "id": str(id) if id else ""})
    flush()


def enabled() -> bool:
    """Whether events are sent anywhere."""
    return sentry_sdk.is_initialized()


def tracing() -> bool:
    """Whether traces and check-ins are sent too."""
    return enabled() and bool(sentry_sdk.get_client().options["traces_sample_rate"])


def capture(text: str, error: BaseException | None, tags: Mapping[str, str]) -> None:
    """Hand one event to the SDK, without waiting."""
    if not enabled():
        return
    with sentry_sdk.new_scope() as scope:
        for key, value in tags.items():
            if value:
                scope.set_tag(key, value)
        if error is None:
            scope.capture_message(text, level="error")
        else:
            scope.set_extra("fault", text)
            scope.capture_exception(error)


def flush(limit: float = FLUSH_LIMIT, *, last: bool = False) -> None:
    """Wait for this process's events to leave, `limit` seconds at most; as a process's last act, in any case."""
    if not enabled() or (time.monotonic() < _Ingest.slow_until and not last):
        return
    began = time.monotonic()
    sentry_sdk.flush(timeout=limit)
    if time.monotonic() - began >= limit:
        _Ingest.slow_until = time.monotonic() + _QUIET


def describe(span: Span, queue: str, size: int, facts: Mapping[str, object]) -> None:
    """Set what Sentry's Queues page reads of a span queue.publish or queue.process; `size` is the args', in bytes."""
    for key, value in {"system": "paceline", "destination.name": queue, "message.body.size": size, **facts}.items():
        span.set_data(f"messaging.{key}", value)


class Outage:
    """One run of failures of one thing: the first is reported, the end is logged with its length.

    `show` is told the text of each failure, and "" at the end.
    """

    def __init__(self, what: str, *, queue: str = "", show: Callable[[str], object] = lambda text: None) -> None:
        self.what, self.queue, self._show = what, queue, show
        self.since: float | None = None

    def failed(self, error: BaseException) -> None:
        text = " ".join(str(error).split()) or type(error).__name__
        self._show(text)
        if self.since is None:
            self.since = time.monotonic()
            self.tell(f"{self.what}: {text}", error)

    def tell(self, text: str, error: BaseException) -> None:
        fault(text, error, queue=self.queue)

    def over(self) -> None:
        if self.since is not None:
            log.info("%s: over after %.1f s", self.what, time.monotonic() - self.since)
            self.since = None
            self._show("")
