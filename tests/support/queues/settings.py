"""What a test can set from outside, by the environment of the process that it starts."""

import os

JOB_TIMEOUT = float(os.environ.get("TEST_JOB_TIMEOUT", "300"))  # seconds
POLL_INTERVAL = float(os.environ.get("TEST_POLL_INTERVAL", "30"))  # seconds
THROTTLE = float(os.environ.get("TEST_THROTTLE", "1"))  # seconds, of the queue `paced`
