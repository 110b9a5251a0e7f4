"""Lets TensorFlow's own gs://, which knows no other address than Google's, read from an emulator.

TensorFlow honors HTTPS_PROXY and CURL_CA_BUNDLE: this proxy answers CONNECT with a certificate of
its own authority and passes what comes on to the emulator.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import trustme

HOSTS = ("storage.googleapis.com", "www.googleapis.com")
_HOP_BY_HOP = {
    "connection",
    "content-length",
    "transfer-encoding",
    "host",
    "server",
    "date",
    "accept-encoding",
}


@contextlib.contextmanager
def tls_proxy(emulator: str, folder: Path) -> Iterator[dict[str, str]]:
    """Serves while the block runs.

    Args:
        emulator: its address, http://HOST:PORT.
        folder: for the certificate.

    Yields:
        The environment in which a process of its own reads gs:// from there.
    """
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*HOSTS).configure_cert(context)

    class Proxy(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            self.close_connection = False  # http.client asks with HTTP/1.0
            self.send_response(200)
            self.end_headers()
            self.connection = context.wrap_socket(self.connection, server_side=True)
            self.rfile, self.wfile = (
                self.connection.makefile("rb"),
                self.connection.makefile("wb", 0),
            )  # type: ignore[assignment]

        def do_GET(self) -> None:
            upstream = http.client.HTTPConnection(emulator.removeprefix("http://"))
            headers = {
                name: value
                for name, value in self.headers.items()
                if name.lower() not in _HOP_BY_HOP
            }
            upstream.request("GET", self.path, headers=headers)
            answer = upstream.getresponse()
            body = answer.read()
            upstream.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("localhost", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "HTTPS_PROXY": f"http://localhost:{server.server_port}",
            "CURL_CA_BUNDLE": str(folder / "ca.pem"),
            "NO_GCE_CHECK": "true",
            "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",
        }
    finally:
        server.shutdown()
        server.server_close()
