"""Whatever text reaches the log, no line of it can be taken for a record that the service did not write."""

from tests.process.test_logs import LINE
from tests.support.rows import Rows
from tests.support.supervised import RunSupervisor
from tests.support.wait import eventually

LOUD = "tests.support.queues_loud"
FORGED = '2026-01-01T00:00:00.000Z INFO queue=quick job=quick.Ok id=1 status="ok" latency=0.00s duration=0.00s'
ENDS = ["\n", "\r", "\r\n", "\x0b", "\x0c", "\x1e", "\x85", "\u2028", "\u2029", "\x1b[2K\x1b[G"]


def test_a_text_that_a_handler_logs_is_one_line_whatever_it_holds(run_supervisor: RunSupervisor, rows: Rows) -> None:
    sup = run_supervisor("quick")
    jobs = [rows.insert("quick", "quick.Log", {"text": f"answer {n}{end}{FORGED}"}) for n, end in enumerate(ENDS)]
    eventually(lambda: rows.status(jobs[-1]) == "ok")
    sup.terminate()
    sup.wait()
    with sup.log_file.open(newline="", encoding="utf-8") as log:  # as it was written
        lines = log.read().rstrip("\n").splitlines()
    assert [line for line in lines if not LINE.fullmatch(line)] == []
    assert not any(line.startswith(FORGED) for line in lines)
    told = [line for line in lines if FORGED in line]
    assert [line.partition(" ERROR ")[2] for line in told] == [
        f"answer {n}{shown}{FORGED}"
        for n, shown in enumerate(
            [r"\n", r"\r", r"\r\n", r"\u000b", r"\f", r"\u001e", r"\u0085", r"\u2028", r"\u2029", r"\u001b[2K\u001b[G"]
        )
    ]


def test_the_stack_that_a_handler_logs_is_indented_each_line_of_its_errors_text_too(
    run_supervisor: RunSupervisor, rows: Rows
) -> None:
    sup = run_supervisor("loud", registry=LOUD)
    sup.expect_traceback = True
    job = rows.insert("loud", "loud.LogStack", {"text": f"answer\n{FORGED}\x1b[A"})
    eventually(lambda: rows.status(job) == "ok")
    lines = sup.log().rstrip("\n").split("\n")
    [first] = [number for number, line in enumerate(lines) if line.endswith(" ERROR it failed")]
    stack = [line for line in lines if not LINE.fullmatch(line)]
    assert lines[first + 1 : first + 1 + len(stack)] == stack
    assert stack[0] == "  Traceback (most recent call last):"
    assert stack[-2:] == ["  ValueError: answer", rf"  {FORGED}\u001b[A"]
    assert all(line.startswith("  ") for line in stack)
