"""What the vendors' clients share: a call is bounded in time, length and place, and tells nothing that is secret."""

import os
import warnings
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import msgspec
import pytest

from deploy.sandbox.server import TOKEN, Manner, Refused, Reply, Request, Sandbox, Vendor
from queues.http import LONGEST, Answer, Client
from supervisor import Context, Job, RateLimited, TokenRefused, UnexpectedStatus
from supervisor.worker import boottime

ANY = r"/.*"


class Plain(Client):
    vendor = "plain"
    default_url = "https://plain.example"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}


class PlainVendor(Vendor):
    """Answers any path with its name."""

    name = "plain"

    def authorise(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            raise Refused(self.refusal(401, 0))

    def refusal(self, status: int, retry_after: float) -> Reply:
        return Reply(status, {"error": {"code": "no"}}, {"Retry-After": f"{retry_after:g}"})

    def echo(self, request: Request) -> Reply:
        return Reply(200, {"path": request.path, "sent": request.json()})

    routes = (("GET", ANY, echo), ("POST", ANY, echo))


class Echo(msgspec.Struct):
    path: str
    sent: object = None


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlainVendor]:
    vendor = PlainVendor()
    with Sandbox([vendor]) as sandbox:
        for name, value in sandbox.environment().items():
            monkeypatch.setenv(name, value)
        yield vendor


def context(seconds: float = 30.0) -> Context:
    return Context(Job(1, "plain", "plain.Ask", datetime.now(UTC), None), boottime() + seconds)


def get(path: str = "/x", seconds: float = 30.0, **options: int) -> Answer:
    return Plain().call(context(seconds), "GET", path, **options)


# In time


@pytest.mark.parametrize("manner", ["stall", "drip"])
def test_an_answer_that_stalls_or_drips_ends_before_the_deadline(manner: Manner, plain: PlainVendor) -> None:
    """A body that drips comes in many reads, each in time."""
    plain.tell(manner)
    ctx = context(0.8)
    with pytest.raises(TimeoutError, match=r"^plain: no whole answer within 0\.5s$"):
        Plain().call(ctx, "GET", "/x")
    assert ctx.remaining() > 0


def test_a_clients_own_limit_is_shorter_than_a_long_job(plain: PlainVendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_TIMEOUT", "0.3")
    plain.tell("stall")
    with pytest.raises(TimeoutError, match=r"within 0\.3s"):
        get(seconds=3600)


def test_an_answer_that_is_late_and_in_time_is_an_answer(plain: PlainVendor) -> None:
    plain.tell(0.3)
    assert get(seconds=5).read(Echo) == Echo("/x")


def test_without_time_nothing_is_asked(plain: PlainVendor) -> None:
    with pytest.raises(TimeoutError):
        get(seconds=0.1)
    assert plain.count == 0


def test_a_vendor_that_goes_on_refusing_is_asked_less_and_less_often(plain: PlainVendor) -> None:
    """Also when it says "at once": after 0.25 s, then 0.5 s, and then there is no time for another second."""
    plain.tell(429, retry_after=0, times=9)
    ctx = context(1.9)
    with pytest.raises(RateLimited, match="retry after 0s"):
        Plain().call(ctx, "GET", "/x")
    assert plain.count == 3
    assert 0 < ctx.remaining() < 1.15


# In length and in shape


def test_an_answer_that_is_too_long_is_not_read_to_its_end(plain: PlainVendor) -> None:
    plain.tell(Reply(200, b"1" * (LONGEST + 1)))
    with pytest.raises(ConnectionError, match=f"^plain: the answer is longer than {LONGEST} bytes$"):
        get()
    plain.tell(Reply(200, b"1" * LONGEST))
    assert len(get().body) == LONGEST


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "plain: answer of another shape: Input data was truncated"),
        (b"<html>planted", "plain: answer of another shape: JSON is malformed: invalid character (byte 0)"),
        (b'{"path": "planted\xff"}', "plain: answer of another shape: "),
        (b'{"planted": 1}', "plain: answer of another shape: Object missing required field `path`"),
        (b'{"path": ["planted"]}', "plain: answer of another shape: Expected `str`, got `array` - at `$.path`"),
    ],
)
def test_an_answer_of_another_shape_is_told_by_its_place(body: bytes, why: str) -> None:
    with pytest.raises(ValueError) as raised:
        Answer("plain", 200, {}, body).read(Echo)
    assert str(raised.value).startswith(why)
    assert "planted" not in str(raised.value)
    assert raised.value.__suppress_context__


def test_a_word_is_read_from_an_error_and_nothing_else_is() -> None:
    def word(body: bytes) -> str:
        return Answer("plain", 400, {}, body).word("error", "code")

    assert word(b'{"error": {"code": "invalid_auth"}}') == "invalid_auth"
    for other in (b"", b"<p>", b"[]", b'{"error": 1}', b'{"error": {"code": 5}}', b'{"error": {"code": "two words"}}'):
        assert word(other) == ""


def test_whether_an_error_says_something_is_told_and_not_what_it_says() -> None:
    def says(body: bytes) -> bool:
        return Answer("plain", 403, {}, body).says("secondary Rate", "error", "message")

    assert says(b'{"error": {"message": "You have exceeded a Secondary rate limit."}}')
    for other in (b"", b"secondary rate", b"[]", b'{"error": "secondary rate"}', b'{"error": {"message": 5}}'):
        assert not says(other)


def test_a_body_is_sent_as_json(plain: PlainVendor) -> None:
    assert Plain().call(context(), "POST", "/x", body={"a": [1]}).read(Echo) == Echo("/x", {"a": [1]})
    assert plain.requests[0].headers["content-type"] == "application/json"


# In place


def test_a_redirect_is_not_followed_unless_asked(plain: PlainVendor) -> None:
    plain.tell(Reply(302, b"", {"Location": "/plain/other"}), times=2)
    with pytest.raises(UnexpectedStatus, match=r"^HTTP 302$"):
        get()
    assert get(redirects=1).read(Echo).path == "/other"


def test_redirects_end(plain: PlainVendor) -> None:
    plain.tell(Reply(301, b"", {"Location": "/plain/x"}), times=9)
    with pytest.raises(UnexpectedStatus, match=r"^HTTP 301$"):
        get(redirects=3)
    assert plain.count == 4


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/x", "//planted.example/x", "https://plain.example.planted/x"])
def test_no_redirect_leads_the_token_elsewhere(place: str, plain: PlainVendor) -> None:
    plain.tell(Reply(302, b"", {"Location": place}))
    with pytest.raises(ConnectionError, match=r"^plain: the answer leads to another place$"):
        get(redirects=1)
    assert plain.count == 1


@pytest.mark.parametrize("place", ["http://127.0.0.1:9/x", "https://plain.example/x", "x", ""])
def test_no_link_leads_the_token_elsewhere(place: str, plain: PlainVendor) -> None:
    with pytest.raises(ConnectionError, match=r"^plain: the answer leads to another place$"):
        get(place)
    assert plain.count == 0


def test_a_link_below_the_vendors_address_is_followed_with_its_query(plain: PlainVendor) -> None:
    assert get(f"{Plain().url}/orgs?page=2").read(Echo).path == "/orgs"
    assert plain.requests[0].query == {"page": "2"}


# Connections


def test_a_connection_is_kept_and_a_fork_opens_its_own(plain: PlainVendor) -> None:
    client = Plain()
    for _ in range(2):
        client.call(context(), "GET", "/x")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork in a process with threads: the stand-in's
        pid = os.fork()
    if not pid:
        try:
            client.call(context(), "GET", "/x")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    client.call(context(), "GET", "/x")
    first, second, forked, last = [request.port for request in plain.requests]
    assert first == second == last != forked


def test_where_nobody_listens_the_address_is_not_told(plain: PlainVendor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAIN_URL", "http://user:planted@127.0.0.1:9/planted")
    with pytest.raises(ConnectionError, match=r"^plain: no connection$") as raised:
        get("/x?key=planted")
    assert raised.value.__suppress_context__


# Secrets


def test_a_token_or_address_that_cannot_be_is_refused_when_the_client_is_made_and_not_shown(
    plain: PlainVendor, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in [
        ("PLAIN_TOKEN", "planted\nX-Header: 1"),
        ("PLAIN_TOKEN", "plänted"),
        ("PLAIN_URL", "ftp://planted"),
        ("PLAIN_URL", "http://planted:port"),
        ("PLAIN_TIMEOUT", "planted"),
        ("PLAIN_TIMEOUT", "nan"),
        ("PLAIN_TIMEOUT", "0"),
    ]:
        with monkeypatch.context() as patch, pytest.raises(ValueError, match=variable[5:]) as raised:
            patch.setenv(variable, value)
            Plain()
        assert "planted" not in str(raised.value)
    monkeypatch.setenv("PLAIN_TOKEN", f"{TOKEN}\n")  # as a file has it
    get()


def test_no_log_record_shows_a_url(plain: PlainVendor, caplog: pytest.LogCaptureFixture) -> None:
    """urllib3 warns of headers that it cannot read, and prints the URL."""
    caplog.set_level(0)
    plain.tell(Reply(200, {"path": "/"}, {"X-Odd": "1\r\nnot a header"}))
    with suppress(TimeoutError):  # the length stands after that
        get("/x?key=planted", seconds=0.5)
    assert plain.count == 1
    assert "planted" not in caplog.text


def test_no_token_is_a_refused_one() -> None:
    with pytest.raises(TokenRefused) as raised:
        get()
    assert (str(raised.value), raised.value.code) == ("set PLAIN_TOKEN", 401)


# Retry-After


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ("30", 30, 30),
        ("1.5", 1.5, 1.5),
        (600, 590, 600),
        (-600, 0, 0),
        ("", 60, 60),
        ("soon", 60, 60),
    ],
)
def test_a_wait_is_read_as_seconds_or_a_date_and_is_a_minute_where_none_is_named(
    given: str | int, least: float, most: float
) -> None:
    if isinstance(given, int):  # from now, as a date
        given = format_datetime(datetime.now(UTC) + timedelta(seconds=given), usegmt=True)
    assert least <= Answer("plain", 429, {"retry-after": given} if given else {}, b"").retry_after() <= most
