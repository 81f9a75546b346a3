"""What every queue of a vendor's must do, as a class of tests that its own file fills in; and one job's run.

class TestEnrich(Contract):
    vendor_name, new_worker = "apollo", apollo.new_worker
    name, args, ok = "apollo.IngestCompany", {"domain": "stripe.com"}, "ok"
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest

from deploy.sandbox.server import Reply, Vendor
from supervisor import DB, Poller, Worker
from supervisor.child.execution import PAUSE, Rest
from tests.support.rows import Rows

SECRET = "planted-secret"


@dataclass(frozen=True, slots=True)
class Done:
    """How a job ended, and what its queue then does."""

    id: int
    status: str
    rest: Rest
    error: BaseException | None


class Work:
    """work(worker, name, args): that job's run in this process, as a child would run it, without its rest."""

    def __init__(self, db: DB, rows: Rows, caplog: pytest.LogCaptureFixture) -> None:
        self.db, self.rows = db, rows
        caplog.set_level(logging.DEBUG)

    def __call__(self, new_worker: Callable[[DB], Worker], name: str, args: Mapping[str, Any], **changes: Any) -> Done:
        worker = replace(new_worker(self.db), **changes)
        poller = Poller(worker, self.db)
        id = self.rows.insert(worker.queue, name, args)
        try:
            claimed = poller.claim(id)
            assert claimed is not None
            result, rest = poller.run(claimed)
            poller.finalize(claimed, result)
        finally:
            poller.session.drop()
        return Done(id, self.rows.status(id), rest, result.error)

    def enqueued(self) -> list[tuple[str, str, Any]]:
        """What waits: (queue, name, args), in order."""
        return self.rows.execute("SELECT queue, name, args FROM jobs WHERE status = 'pending' ORDER BY id")


class Contract:
    """Tests for one job of a vendor's queue: the good answer, and each bad one. The queue's own file tests the rest."""

    vendor_name: ClassVar[str]
    new_worker: ClassVar[Callable[[DB], Worker]]  # in a staticmethod()
    name: ClassVar[str]
    args: ClassVar[Mapping[str, Any]]
    ok: ClassVar[str] = "ok"  # its status after a good answer
    calls: ClassVar[int] = 1  # that a good run makes
    refused: ClassVar[str] = "err: HTTP 401"  # after a token that the vendor refuses
    other_403: ClassVar[tuple[Reply | int, str] | None] = None  # one that is not about the token, and the status
    short: ClassVar[float] = 0.3  # seconds, a rate limit that is waited for
    limited: ClassVar[str] = "err: rate limited, retry after 3412s"
    broken: ClassVar[str] = "err: HTTP 500"
    shape: ClassVar[tuple[Any, str]]  # a body that is another one's, and where its status says that it is wrong

    @pytest.fixture
    def run(self, work: Work) -> Callable[..., Done]:
        return lambda **changes: work(type(self).new_worker, self.name, self.args, **changes)

    def prepare(self, rows: Rows) -> None:
        """Put into the tables what the job needs."""

    @pytest.fixture(autouse=True)
    def _prepared(self, database: str, rows: Rows) -> None:
        self.prepare(rows)

    def test_a_good_answer(self, run: Callable[..., Done], vendor: Vendor) -> None:
        done = run()
        assert (done.status, done.error) == (self.ok, None)
        assert vendor.count == self.calls

    def test_a_refused_token_pauses_the_queue_and_is_told_nowhere(
        self, run: Callable[..., Done], vendor: Vendor, work: Work, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The stand-in's answer to it may repeat it: `work` looks for it in rows and log."""
        monkeypatch.setenv(f"{self.vendor_name.upper()}_TOKEN", SECRET)
        done = run()
        assert done.status == self.refused
        assert done.rest == Rest(PAUSE, self.refused.removeprefix("err: "), paused=True)
        assert vendor.count == 1
        assert SECRET in repr(vendor.requests[0].headers)
        assert work.enqueued() == []

    def test_without_a_token_nothing_is_asked_and_the_queue_pauses(
        self, run: Callable[..., Done], vendor: Vendor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        variable = f"{self.vendor_name.upper()}_TOKEN"
        monkeypatch.delenv(variable)
        done = run()
        assert (done.status, done.rest) == (f"err: set {variable}", Rest(PAUSE, f"set {variable}", paused=True))
        assert vendor.count == 0

    def test_a_403_that_is_something_else_pauses_nothing(
        self, run: Callable[..., Done], vendor: Vendor, work: Work
    ) -> None:
        if self.other_403 is None:
            pytest.skip("this vendor's pages know of none")
        answer, status = self.other_403
        vendor.tell(answer)
        done = run()
        assert (done.status, done.rest.paused) == (status, False)
        assert work.enqueued() == []

    def test_a_403_of_no_known_kind_pauses_the_queue(self, run: Callable[..., Done], vendor: Vendor) -> None:
        vendor.tell(Reply(403, f"<html>{SECRET}</html>".encode(), {"Content-Type": "text/html"}))
        done = run()
        assert (done.status, done.rest) == ("err: HTTP 403", Rest(PAUSE, "HTTP 403", paused=True))
        assert vendor.count == 1

    def test_a_short_rate_limit_is_waited_for(self, run: Callable[..., Done], vendor: Vendor) -> None:
        vendor.tell(429, retry_after=self.short)
        assert run().status == self.ok
        assert vendor.count == self.calls + 1

    def test_a_long_rate_limit_rests_the_queue_that_long(
        self, run: Callable[..., Done], vendor: Vendor, work: Work
    ) -> None:
        vendor.tell(429, retry_after=3412)
        done = run()
        assert (done.status, done.rest) == (self.limited, Rest(3412, "rate limited"))
        assert vendor.count == 1
        assert work.enqueued() == []

    def test_a_fault_of_the_vendors_is_an_err(self, run: Callable[..., Done], vendor: Vendor, work: Work) -> None:
        """And is not asked again: a call may be paid for, or have been carried out."""
        vendor.tell(500)
        done = run()
        assert (done.status, done.rest.paused) == (self.broken, False)
        assert vendor.count == 1
        assert work.enqueued() == []

    def test_a_cut_answer_is_an_err(self, run: Callable[..., Done], vendor: Vendor, work: Work) -> None:
        vendor.tell("cut")
        done = run()
        assert done.status.startswith(f"err: {self.vendor_name}: broken off"), done.status
        assert vendor.count == 1
        assert work.enqueued() == []

    def test_an_answer_that_never_comes_ends_before_the_deadline(
        self, run: Callable[..., Done], vendor: Vendor, work: Work
    ) -> None:
        """By the client, so that the process lives on."""
        vendor.tell("stall")
        done = run(job_timeout=0.7)
        assert done.status.startswith(f"err: {self.vendor_name}: no whole answer within 0."), done.status
        assert isinstance(done.error, TimeoutError)
        assert work.enqueued() == []

    def test_an_answer_of_another_shape_is_an_err_that_names_the_place(
        self, run: Callable[..., Done], vendor: Vendor, work: Work
    ) -> None:
        """And nothing of the body."""
        body, place = self.shape
        assert SECRET in repr(body)
        vendor.tell(Reply(200, body))
        done = run()
        assert done.status.startswith(f"err: {self.vendor_name}: answer of another shape: "), done.status
        assert place in done.status
        assert work.enqueued() == []
