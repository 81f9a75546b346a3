"""The typed errors: what handlers and clients raise, and what a person at the command line is told."""


class PacelineError(Exception):
    """Its text is one line that says what to do; the command prints it and exits with `exit_code`."""

    exit_code = 1


class UsageError(PacelineError):
    """The person's input is wrong: a flag, a name, a registry."""

    exit_code = 2


class BadArgs(ValueError):
    """`args` hold what jsonb cannot; the text names the path: `args.people[3].age: NaN is not JSON`."""


class UsedBeforeFork(RuntimeError):
    """A registry's `DB` was used in the parent; connections are opened in children, on first use."""


class UnexpectedStatus(Exception):
    """An HTTP status that the client does not handle. On 401 and 403 the queue pauses for an hour.

    `detail` is for fields that the client picked; never the body, which may repeat a secret.
    """

    def __init__(self, code: int, detail: str = "") -> None:
        super().__init__(f"HTTP {code}: {detail}" if detail else f"HTTP {code}")
        self.code = code


class TokenRefused(UnexpectedStatus):
    """The vendor refused the token in some other way than by a 401; treated as one."""

    def __init__(self, detail: str = "", code: int = 401) -> None:
        super().__init__(code, detail)


class RateLimited(Exception):
    """The vendor refused and nothing ran; the queue rests for `retry_after` seconds, a minute where that is no time."""

    def __init__(self, retry_after: float) -> None:
        self.retry_after = retry_after if retry_after >= 0 else 60.0  # nan is not >= 0 either
        super().__init__(f"rate limited, retry after {self.retry_after:.0f}s")


class JobTimeout(BaseException):
    """Raised in the handler at the job's deadline.

    A BaseException, so that an `except Exception` of the handler's cannot keep it.
    """
