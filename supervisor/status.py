"""The status text of a row: each prefix is built here, and read back here, in Python and in SQL.

A job's row is `pending`, then `started`, then for good: `ok` or any unprefixed text; `fail: ...` (ran;
a negative answer that a retry does not change); `skip: ...` (nothing to attempt); `err: ...` (a fault:
the handler raised, or its process ended). An operator's pause is a row too, and `paused`.
"""

PENDING = "pending"
STARTED = "started"
PAUSED = "paused"
NOT_FINAL = (PENDING, STARTED, PAUSED)
FINAL = ("ok", "fail", "skip", "err")
OUTCOMES = (*NOT_FINAL, *FINAL)
LONGEST = 2_000  # characters of a status
UNSTORABLE = "err: the status text could not be stored"  # the fixed ASCII fallback


def fail(text: str) -> str:
    """`fail: text`: the job ran, and the answer is a no that a retry does not change."""
    return f"fail: {text}"


def skip(text: str) -> str:
    """`skip: text`: there was nothing to attempt."""
    return f"skip: {text}"


def err(text: str) -> str:
    """`err: text`: a fault. The engine's own; a handler raises instead."""
    return f"err: {text}"


def interrupted(cause: str = "") -> str:
    """The status of a job whose process ended before the job did."""
    return err(f"interrupted: {cause}" if cause else "interrupted")


def ended(by: str) -> str:
    """The status of a job that an operator has ended."""
    return err(f"ended by operator: {by}")


def timed_out(seconds: float) -> str:
    """The status of a job that reached its deadline, `seconds` after its claim."""
    return err(f"timeout after {seconds:g}s")


def outcome(status: str) -> str:
    """One of OUTCOMES: the word before the colon, the status itself while not final, else `ok`."""
    if status in NOT_FINAL:
        return status
    head, colon, _ = status.partition(":")
    return head if colon and head in ("fail", "skip", "err") else "ok"


# The same function as an SQL expression over a column named status.
OUTCOME_SQL = (
    "CASE WHEN status IN ('pending', 'started', 'paused') THEN status"
    " WHEN status ~ '^(fail|skip|err):' THEN split_part(status, ':', 1) ELSE 'ok' END"
)


def storable(text: str) -> str:
    """`text` as Postgres can hold it: no NUL, no lone surrogate, LONGEST characters with a mark at a cut."""
    if len(text) > LONGEST:  # cut first: the text may be 50 MB
        text = text[: LONGEST - 1] + "…"
    return text.replace("\0", "�").encode("utf-8", "replace").decode()


def of_answer(answer: object) -> str:
    """The status for what a handler returned: its text, or an err where that is no final status."""
    if not isinstance(answer, str):
        return err(f"handler returned {type(answer).__name__}, not a status text")
    if not answer.strip():
        return err("handler returned an empty text")
    if answer in NOT_FINAL or outcome(answer) == "err":
        return err(f"handler returned {answer[:200]!r}; it raises for a fault")
    return answer


def of_error(error: BaseException) -> str:
    """`err: ` and the exception's message, or its type's name where the message is empty or fails."""
    try:
        # Of the database's errors the first line: the rest repeats the row.
        message = getattr(getattr(error, "diag", None), "message_primary", None) or str(error)
    except Exception:  # noqa: BLE001 - a handler's exception may fail to print itself
        message = ""
    return err(message if message.strip() else type(error).__name__)
