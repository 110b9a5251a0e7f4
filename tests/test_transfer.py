"""GET requests: connections, certificates, and how they end."""

from __future__ import annotations

import contextlib
import http.server
import io
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import certifi
import google_crc32c
import pytest
import requests

from beam_tfr.storage import bounded_answers, prompt_answers, transfer
from beam_tfr.storage.transfer import Answer, Route
from tests.tls_proxy import tls_proxy

DATA = os.urandom(300_000)


class Server(http.server.ThreadingHTTPServer):
    """Counts its connections; /stall sends half of the data and then nothing."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.num_connections = 0
        self.requests = list[tuple[str, str | None]]()
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.server.num_connections += 1

    def do_GET(self) -> None:
        if self.path == "/endless/head":
            self._send_lines_for_ever(b"HTTP/1.1 200 OK\r\nX-Long: ")
            return
        if self.path == "/endless/trailer":
            head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
            self._send_lines_for_ever(head + b"1\r\nx\r\n0\r\n")
            return
        if self.path.startswith("/endless"):
            self._send_for_ever(403 if self.path.endswith("403") else 200)
            return
        self.server.requests.append((self.path, self.headers["Proxy-Authorization"]))
        self.send_response(404 if self.path == "/none" else 200)
        self.send_header("X-Twice", "a")
        self.send_header("X-Twice", "b=c:d")
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        if self.path != "/stall":
            self.wfile.write(DATA)
            self.close_connection = self.path == "/close"
            return
        self.wfile.write(DATA[: len(DATA) // 2])
        self.wfile.flush()
        time.sleep(60)

    def _send_for_ever(self, status: int) -> None:
        """Sends a body without end, a byte each time if it is slow."""
        self.send_response(status)
        self.end_headers()
        self.close_connection = True
        data = b"x" if "slow" in self.path else b"x" * 100_000
        with contextlib.suppress(OSError):
            while True:
                self.wfile.write(data)
                time.sleep(0.01)

    def _send_lines_for_ever(self, begin: bytes) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(begin)
            while True:
                self.wfile.write(b"x: y\r\n" if begin.endswith(b"\n") else b"x")
                time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with contextlib.closing(server.socket):
        yield server
        server.shutdown()


def get(
    endpoint: str,
    sink: io.BytesIO,
    place: str = "/",
    *,
    max_bytes: int | None = None,
    proxy: str = "",
    certificates: str = certifi.where(),
) -> Answer:
    route = Route(endpoint, proxy, certificates)
    headers = {"Accept-Encoding": "gzip"}
    return transfer.get(route, place, headers, sink, max_bytes=max_bytes, left_s=lambda: 30.0)


def test_an_answer(server: Server) -> None:
    sink = io.BytesIO(b"what an earlier attempt wrote" * 100_000)
    answer = get(server.url, sink)
    assert sink.getvalue() == DATA
    assert (answer.status_code, answer.is_whole, answer.text) == (200, True, "")
    assert int.from_bytes(answer.crc32c, "big") == google_crc32c.value(DATA)
    assert answer.headers.get_all("x-twice") == ["a", "b=c:d"]


def test_an_error_is_text_and_no_content(server: Server) -> None:
    sink = io.BytesIO()
    answer = get(server.url, sink, "/none")
    assert (answer.status_code, sink.getvalue()) == (404, b"")
    assert 0 < len(answer.text) <= 1 << 16


@pytest.mark.timeout(100)
def test_an_error_without_end_is_cut(server: Server) -> None:
    assert get(server.url, io.BytesIO(), "/endless/403").text == "x" * (1 << 16)
    left_s = itertools.chain([10.0] * 10, itertools.repeat(0.0))
    route = Route(server.url, "", certifi.where())
    answer = transfer.get(
        route,
        "/endless/slow/403",
        {},
        io.BytesIO(),
        max_bytes=None,
        left_s=lambda: next(left_s),
    )
    assert answer.status_code == 403
    assert 0 < len(answer.text) < 1 << 16


@pytest.mark.timeout(100)
def test_answers_to_the_client_of_google_end(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = requests.Session()
    session.mount("http://", bounded_answers.BoundedAdapter())
    assert session.get(f"{server.url}/").content == DATA
    assert session.get(f"{server.url}/none").status_code == 404
    assert session.get(f"{server.url}/endless/403").text == "x" * bounded_answers.MOST_MESSAGE_BYTES
    monkeypatch.setattr(bounded_answers, "MOST_BYTES", 1 << 20)
    with pytest.raises(requests.ConnectionError, match="does not end"):
        session.get(f"{server.url}/endless")
    monkeypatch.setattr(bounded_answers, "LONGEST_S", 0.3)
    with pytest.raises(requests.ConnectionError, match="does not end"):
        session.get(f"{server.url}/endless/slow")
    slow = session.get(f"{server.url}/endless/slow/403")
    assert slow.status_code == 403
    assert 0 < len(slow.text) < bounded_answers.MOST_MESSAGE_BYTES


@pytest.mark.timeout(100)
@pytest.mark.parametrize(
    ("limit", "place"), [("HEAD_S", "/endless/head"), ("ANSWER_S", "/endless/trailer")]
)
def test_the_head_and_the_trailer_of_an_answer_end(
    server: Server, monkeypatch: pytest.MonkeyPatch, limit: str, place: str
) -> None:
    """Each byte comes in time, and the last one never."""
    monkeypatch.setattr(prompt_answers, limit, 0.3)
    with pytest.raises(TimeoutError, match="does not end"):
        get(server.url, io.BytesIO(), place)
    session = requests.Session()
    session.mount("http://", bounded_answers.BoundedAdapter())
    with pytest.raises((requests.Timeout, requests.ConnectionError)):
        session.get(f"{server.url}{place}")


def test_it_ends_after_max_bytes(server: Server) -> None:
    sink = io.BytesIO()
    answer = get(server.url, sink, "/stall", max_bytes=10_000)
    assert not answer.is_whole
    assert len(sink.getvalue()) > 10_000
    assert DATA.startswith(sink.getvalue())


def test_connections_are_used_again(server: Server) -> None:
    for _ in range(5):
        get(server.url, io.BytesIO())
    assert server.num_connections == 1


def test_a_connection_that_the_service_has_closed_is_replaced(server: Server) -> None:
    get(server.url, io.BytesIO(), "/close")
    time.sleep(0.1)
    sink = io.BytesIO()
    get(server.url, sink)
    assert sink.getvalue() == DATA
    assert server.num_connections == 2


def test_a_forked_process_has_connections_of_its_own(server: Server) -> None:
    get(server.url, io.BytesIO())
    child = os.fork()
    if not child:
        sink = io.BytesIO()
        get(server.url, sink)
        os._exit(0 if sink.getvalue() == DATA else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert server.num_connections == 2
    get(server.url, io.BytesIO())
    assert server.num_connections == 2


def test_a_full_disk_is_no_broken_connection(server: Server) -> None:
    class Full(io.BytesIO):
        def write(self, _: object) -> int:
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left") as caught:
        get(server.url, Full())
    assert caught.value.errno == 28


def test_a_service_that_is_not_there() -> None:
    with pytest.raises(ConnectionError):
        get("http://127.0.0.1:9", io.BytesIO())


def test_only_trusted_certificates_through_a_proxy(server: Server, tmp_path: Path) -> None:
    with tls_proxy(server.url, tmp_path) as environment:
        proxy = environment["HTTPS_PROXY"]
        service = "https://storage.googleapis.com"
        for _ in range(2):
            sink = io.BytesIO()
            trusted = environment["CURL_CA_BUNDLE"]
            answer = get(service, sink, "/x", proxy=proxy, certificates=trusted)
            assert (answer.status_code, sink.getvalue()) == (200, DATA)
        with pytest.raises(ConnectionError, match="certificate"):
            get(service, io.BytesIO(), proxy=proxy)


def test_a_proxy_of_http_gets_the_whole_url_and_its_password(server: Server) -> None:
    proxy = server.url.replace("//", "//me:p%40ss@")
    get("http://service.invalid:81", io.BytesIO(), "/x?y=1", proxy=proxy)
    assert server.requests[-1] == ("http://service.invalid:81/x?y=1", "Basic bWU6cEBzcw==")


def test_an_interrupt_does_not_wait_for_a_stall(server: Server) -> None:
    program = f"""
import io
from beam_tfr.storage.transfer import Route, get
print("begun", flush=True)
try:
    route = Route("{server.url}", "", "")
    get(route, "/stall", {{}}, io.BytesIO(), max_bytes=None, left_s=lambda: 60)
except KeyboardInterrupt:
    print("interrupted")
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    while not server.num_connections:
        time.sleep(0.01)
    begun = time.monotonic()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30)[0] == "interrupted\n"
    assert time.monotonic() - begun < transfer.STALL_S
