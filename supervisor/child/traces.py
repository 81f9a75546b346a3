"""What Sentry gets of a job beyond its fault, where tracing is on: a span queue.process.

The span stands in a transaction, as the Queues page wants it; the trace is the job's own, see enqueue.py. Nothing here
waits: the SDK's thread sends, drops what an ingest is too slow for, and gets half a second at the process's end.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import sentry_sdk

from supervisor import report, status
from supervisor.child.execution import Claimed, Result


class Traces:
    """Tells Sentry of the jobs of one worker."""

    @contextmanager
    def process(self, claimed: Claimed) -> Iterator[Callable[[Result], None]]:
        """Around a job's run; what it yields is to be told the result. A fault reported inside is in the trace."""
        job = claimed.job
        with (
            sentry_sdk.isolation_scope(),  # what a handler sets ends with its job
            sentry_sdk.start_transaction(op="queue.task", name=job.name, source="task") as transaction,
            sentry_sdk.start_span(op="queue.process", name=job.queue) as span,
        ):
            facts = {"message.id": str(job.id), "message.receive.latency": claimed.latency * 1000}
            report.describe(span, job.queue, len(claimed.args.encode()), {**facts, "message.retry.count": 0})

            def ended(result: Result) -> None:
                failed = status.outcome(result.status) == "err"
                for part in span, transaction:
                    part.set_status("internal_error" if failed else "ok")
                    # The handler's time, without the wait for a fault's event to leave.
                    part.finish(end_timestamp=span.start_timestamp + timedelta(seconds=result.elapsed))

            yield ended
