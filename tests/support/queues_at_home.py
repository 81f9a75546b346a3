"""The application's own registry, as `make run` takes it, and a queue whose jobs take their time."""

import queues
from tests.support.queues import sleeps

registry = [*queues.registry, sleeps.new_worker]
schedule = queues.schedule
schema = queues.schema
sandbox = queues.sandbox
