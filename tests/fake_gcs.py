"""A Cloud Storage of one's own that fails to order.

Pages, preconditions, checksums, latency, faults.

    python -m tests.fake_gcs [--latency_ms 50] [--photos BUCKET=FOLDER]

It serves Google's JSON API on a free port, from a process of its own, and prints its address.
`FakeGcs` starts it and tells it what to hold and how to fail. A fault is a word:

    503, 403, …      that status; 429:1.5 with Retry-After: 1.5
    reset            the connection is reset before an answer
    cut:0.3          it is reset after 30 % of the object
    stall            nothing more comes after half of the object
    corrupt          the last byte is wrong, the checksum is that of the right one
    unchecked        there is no checksum
    change, vanish   another writer was there just before
    lost             what was asked for is done, and the connection reset instead of an answer
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import collections
import contextlib
import dataclasses
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import google_crc32c

END = "\U0010ffff"  # after all names in use
RANDOM_FAULTS = ("408", "429:0.01", "500", "502", "503", "504", "reset", "cut:0.5", "corrupt")
RANDOM_UPLOAD_FAULTS = ("429:0.01", "500", "503", "reset", "lost")


@dataclasses.dataclass
class Object:
    data: bytes
    generation: int
    encoding: str = ""
    updated: float = dataclasses.field(default_factory=time.time)

    def metadata(self, bucket: str, name: str) -> dict[str, str]:
        return {
            "name": name,
            "bucket": bucket,
            "size": str(len(self.data)),
            "generation": str(self.generation),
            "crc32c": self.crc32c(),
            "updated": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.updated)),
        }

    def crc32c(self) -> str:
        return base64.b64encode(google_crc32c.Checksum(self.data).digest()).decode()


@dataclasses.dataclass
class Settings:
    """How to answer.

    Attributes:
        latency_s: before each answer.
        together: kind of request, "downloads" or "others" -> (how many are answered as they come,
            how many of the next must have arrived before one of them is answered).
        page_size: most objects in a page of a listing.
        fail_share: of the requests for objects that fail by chance, never one request's repetition
            for ever.
        faults: name -> what happens to the next requests for it, in order.
        held: names to which nothing is moved; such a request waits for other settings, and then
            breaks, undone.
        denied: methods that are answered with 403.
        said: the message of such an answer.
        kept: what is said when an object is to be deleted or replaced; empty if it may be.
        requester_pays: whether a request must name the project that pays.
        log: whether requests are noted.
        listing: answer to every listing; empty for the objects that are stored.
        num_extra: bytes that follow each part of an object, without being requested.
    """

    latency_s: float = 0.0
    together: dict[str, tuple[int, int]] = dataclasses.field(default_factory=dict)
    page_size: int = 1000
    fail_share: float = 0.0
    faults: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    held: list[str] = dataclasses.field(default_factory=list)
    denied: list[str] = dataclasses.field(default_factory=list)
    said: str = "said 403"
    kept: str = ""
    requester_pays: bool = False
    log: bool = True
    listing: str = ""
    num_extra: int = 0


@dataclasses.dataclass
class Request:
    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def parts(self) -> tuple[str, str]:
        """(bucket, name) of a path like /…/b/BUCKET/o/NAME.

        The name is empty for the bucket itself.
        """
        match = re.search(r"/b/([^/]+)(?:/o(?:/(.*))?)?$", self.path)
        assert match, self.path
        return match[1], urllib.parse.unquote(match[2] or "")


class Answer(Exception):  # noqa: N818 - what is raised is an answer, of any kind
    def __init__(self, status: int, body: Any = b"", **headers: str) -> None:
        super().__init__(status)
        self.status, self.headers = (
            status,
            {name.replace("_", "-"): value for name, value in headers.items()},
        )
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()


def refusal(status: int, said: str = "", **headers: str) -> Answer:
    return Answer(
        status, {"error": {"code": status, "message": said or f"said {status}"}}, **headers
    )


class Server:
    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {"b": {}}
        self.settings = Settings()
        self.uploads: dict[str, tuple[str, str, Mapping[str, str], bytearray]] = {}
        self.finished: dict[str, Answer] = {}
        self.log: list[dict[str, str]] = []
        self.generation = 0
        self.connections = 0
        self.running: collections.Counter[str] = collections.Counter()
        self.most: collections.Counter[str] = collections.Counter()
        self.arrived: collections.Counter[str] = collections.Counter()
        self.enough: dict[str, asyncio.Event] = collections.defaultdict(asyncio.Event)
        self.random = random.Random(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while request := await self._receive(reader):
                if request.path.startswith("/control"):
                    self._send(writer, self.control(request))
                elif not await self._answer(request, writer):
                    return
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _receive(self, reader: asyncio.StreamReader) -> Request | None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except asyncio.IncompleteReadError:
            return None
        first, *lines = head.split("\r\n")[:-2]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in lines)
        }
        method, target, _ = first.split(" ")
        url = urllib.parse.urlsplit(target)
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        return Request(method, url.path, dict(urllib.parse.parse_qsl(url.query)), headers, body)

    def _send(self, writer: asyncio.StreamWriter, answer: Answer) -> None:
        headers = {"Content-Length": str(len(answer.body)), **answer.headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        writer.write(f"HTTP/1.1 {answer.status} -\r\n{lines}\r\n".encode("latin-1") + answer.body)

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answers one request; False when the connection is over."""
        kind = "downloads" if request.query.get("alt") == "media" else "others"
        self.running[kind] += 1
        self.most[kind] = max(self.most[kind], self.running[kind])
        try:
            if self.settings.latency_s:
                await asyncio.sleep(self.settings.latency_s)
            await self._gather(kind)
            if await self._is_held(request):
                writer.transport.abort()
                return False
            fault = self._note(request)
            try:
                answer = self._handle(request, fault)
            except Answer as raised:
                answer = raised
            return await self._deliver(answer, fault, writer)
        finally:
            self.running[kind] -= 1

    async def _is_held(self, request: Request) -> bool:
        """Whether a request is a move that has to wait; returns when it need not any more."""
        target = urllib.parse.unquote(request.path.rpartition("/moveTo/o/")[2])
        is_held = target in self.settings.held
        while target in self.settings.held:
            await asyncio.sleep(0.01)
        return is_held

    async def _gather(self, kind: str) -> None:
        self.arrived[kind] += 1
        first, next_ones = self.settings.together.get(kind, (0, 0))
        if self.arrived[kind] <= first:
            return
        if self.arrived[kind] >= first + next_ones:
            self.enough[kind].set()
        with contextlib.suppress(asyncio.TimeoutError):
            # then the test finds fewer than it wants
            await asyncio.wait_for(self.enough[kind].wait(), timeout=60)

    async def _deliver(self, answer: Answer, fault: str, writer: asyncio.StreamWriter) -> bool:
        kind, _, share = fault.partition(":")
        if kind in ("reset", "lost"):
            writer.transport.abort()
            return False
        if kind not in ("cut", "stall") or answer.status != 200:
            self._send(writer, answer)
            return True
        whole, answer.headers["Content-Length"] = answer.body, str(len(answer.body))
        answer.body = whole[: int(len(whole) * float(share or 0.5))]
        self._send(writer, answer)
        await writer.drain()
        if kind == "stall":
            await asyncio.sleep(3600)
        writer.close()
        return False

    def _note(self, request: Request) -> str:
        """Logs a request, and says how it fails."""
        # the client asks in the background where a bucket lies
        if re.search(r"/v1/b/[^/]+$", request.path):
            return ""
        if request.path.startswith("/resumable/"):
            name = self.uploads[request.path.rpartition("/")[2]][1]
        elif "/moveTo/o/" in request.path:
            name = urllib.parse.unquote(request.path.rpartition("/")[2])
        elif request.method == "POST":
            name = upload_name(request)
        else:
            name = request.parts()[1]
        settings = self.settings
        if settings.log:
            signed = "yes" if "authorization" in request.headers else "no"
            self.log.append(
                {"method": request.method, "name": name, "signed": signed, **request.query}
            )
        if request.method in settings.denied:
            return "403"
        if settings.faults.get(name):
            return settings.faults[name].pop(0)
        if self.random.random() < settings.fail_share:
            return self.random.choice(
                RANDOM_FAULTS if request.method == "GET" else RANDOM_UPLOAD_FAULTS
            )
        return ""

    def _handle(self, request: Request, fault: str) -> Answer:
        status, _, after = fault.partition(":")
        if status == "403":
            return refusal(403, self.settings.said)
        if status.isdecimal():
            return refusal(int(status), **({"Retry_After": after} if after else {}))
        if fault == "reset":
            return Answer(200)
        if request.path.startswith("/resumable/"):
            return self.resume_upload(request)
        if self.settings.requester_pays and "userProject" not in request.query:
            return refusal(400, "Bucket is a requester pays bucket but no user project provided.")
        if match := re.search(r"/b/([^/]+)/o/([^/]+)/moveTo/o/([^/]+)$", request.path):
            return self.move(
                match[1], *map(urllib.parse.unquote, match.groups()[1:]), request.query
            )
        if request.method == "POST":
            return self.upload(request)
        return self.handle_bucket(request, fault)

    def handle_bucket(self, request: Request, fault: str) -> Answer:
        bucket, name = request.parts()
        if bucket not in self.objects:
            return refusal(404)
        if name:
            return self.handle_object(request, fault, bucket, name)
        if request.path.endswith("/o"):
            return self.list_objects(request, bucket)
        return Answer(200, {"name": bucket})

    def handle_object(self, request: Request, fault: str, bucket: str, name: str) -> Answer:
        """Reads, deletes or touches an object, if it has the generation that is asked for."""
        if fault == "change":
            self.put(bucket, name, b"another " + self.objects[bucket][name].data)
        if fault == "vanish":
            del self.objects[bucket][name]
        found = self.objects[bucket].get(name)
        if found is None:
            return Answer(404, f"No such object: {bucket}/{name}".encode())
        wanted = request.query.get("ifGenerationMatch")
        if wanted is not None and int(wanted) != found.generation:
            return refusal(412)
        if request.query.get("generation", str(found.generation)) != str(found.generation):
            return refusal(404)
        if request.method == "DELETE":
            self.check_kept(bucket, name)
            del self.objects[bucket][name]
            return Answer(204)
        if request.method == "PATCH":
            found.updated = time.time()
        if request.query.get("alt") != "media":
            return Answer(200, found.metadata(bucket, name), Content_Type="application/json")
        return self.media(request, found, fault)

    def media(self, request: Request, found: Object, fault: str) -> Answer:
        # of which no checksum is needed, and that of a large object takes long
        is_part = "range" in request.headers
        headers = (
            {}
            if fault == "unchecked" or is_part
            else {"X_Goog_Hash": f"crc32c={found.crc32c()},md5=AAAA"}
        )
        if found.encoding:
            headers["Content_Encoding"] = headers["X_Goog_Stored_Content_Encoding"] = found.encoding
        data = found.data
        if fault == "corrupt" and data:
            data = data[:-1] + bytes([data[-1] ^ 1])
        headers |= {
            "X_Goog_Generation": str(found.generation),
            "X_Goog_Stored_Content_Length": str(len(found.data)),
        }
        if part := re.fullmatch(r"bytes=([0-9]+)-([0-9]*)", request.headers.get("range", "")):
            first, last = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
            if first > last:
                return Answer(416, b"")
            body = data[first : last + 1] + bytes(self.settings.num_extra)
            return Answer(206, body, Content_Range=f"bytes {first}-{last}/{len(data)}")
        return Answer(200, data, **headers)

    def list_objects(self, request: Request, bucket: str) -> Answer:
        if self.settings.listing:
            body = self.settings.listing.encode()
            return Answer(200, body, Content_Type="application/json")
        query, objects = request.query, self.objects[bucket]
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        names = sorted(
            name
            for name in objects
            if name.startswith(prefix) and name > query.get("pageToken", "")
        )
        names = [
            name
            for name in names
            if query.get("startOffset", "") <= name < query.get("endOffset", END)
        ]
        size = min(self.settings.page_size, int(query.get("maxResults", 1000)))
        page = names[:size]
        shown = [name for name in page if not delimiter or delimiter not in name[len(prefix) :]]
        answer: dict[str, Any] = {"items": [objects[name].metadata(bucket, name) for name in shown]}
        if delimiter:
            folders = (
                name[len(prefix) :].partition(delimiter)[0] for name in page if name not in shown
            )
            answer["prefixes"] = sorted({f"{prefix}{folder}{delimiter}" for folder in folders})
        if len(names) > size:
            answer["nextPageToken"] = page[-1]
        return Answer(200, answer, Content_Type="application/json")

    def upload(self, request: Request) -> Answer:
        bucket, name = request.parts()[0], upload_name(request)
        if bucket not in self.objects:
            return refusal(404)
        if request.query["uploadType"] == "resumable":
            self.check_generation(bucket, name, request.query)
            number = str(len(self.uploads))
            self.uploads[number] = (bucket, name, request.query, bytearray())
            return Answer(
                200, b"{}", Location=f"http://{request.headers['host']}/resumable/{number}"
            )
        described, data = parts_of(request)
        return self.finish_upload(bucket, name, request.query, data, described.get("crc32c"))

    def resume_upload(self, request: Request) -> Answer:
        number = request.path.rpartition("/")[2]
        bucket, name, query, held = self.uploads[number]
        match = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", request.headers["content-range"])
        assert match
        if number in self.finished:
            return self.finished[number]
        if match[1] is not None and int(match[1]) == len(held):
            held += request.body
        if match[2] == str(len(held)):
            self.finished[number] = self.finish_upload(bucket, name, query, bytes(held), None)
            return self.finished[number]
        return Answer(308, b"", **({"Range": f"bytes=0-{len(held) - 1}"} if held else {}))

    def move(self, bucket: str, source: str, target: str, query: Mapping[str, str]) -> Answer:
        found = self.objects.get(bucket, {}).get(source)
        if found is None:
            return refusal(404)
        if query.get("ifSourceGenerationMatch", str(found.generation)) != str(found.generation):
            return refusal(412)
        self.check_generation(bucket, target, query)
        for name in (source, target):
            self.check_kept(bucket, name)
        del self.objects[bucket][source]
        self.put(bucket, target, found.data, found.encoding)
        return Answer(
            200,
            self.objects[bucket][target].metadata(bucket, target),
            Content_Type="application/json",
        )

    def check_generation(self, bucket: str, name: str, query: Mapping[str, str]) -> None:
        found = self.objects[bucket].get(name)
        if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != (
            found.generation if found else 0
        ):
            raise refusal(412)

    def check_kept(self, bucket: str, name: str) -> None:
        if self.settings.kept and name in self.objects[bucket]:
            raise refusal(403, self.settings.kept.format(f"{bucket}/{name}"))

    def finish_upload(
        self, bucket: str, name: str, query: Mapping[str, str], data: bytes, crc: str | None
    ) -> Answer:
        self.check_generation(bucket, name, query)
        self.check_kept(bucket, name)
        if crc is not None and crc != Object(data, 0).crc32c():
            return refusal(400)
        self.put(bucket, name, data)
        return Answer(
            200, self.objects[bucket][name].metadata(bucket, name), Content_Type="application/json"
        )

    def put(self, bucket: str, name: str, data: bytes, encoding: str = "") -> None:
        self.generation += 1
        self.objects.setdefault(bucket, {})[name] = Object(data, self.generation, encoding)

    def control(self, request: Request) -> Answer:
        """What tests ask for: never late, never failing, never logged."""
        action = request.path.rpartition("/")[2]
        answer: Answer | None = getattr(self, f"control_{action}")(request)
        return answer or Answer(200)

    def control_put(self, request: Request) -> None:
        query = request.query
        self.put(query["bucket"], query.get("name", ""), request.body, query.get("encoding", ""))

    def control_put_many(self, request: Request) -> None:
        for name in json.loads(request.body):
            self.put("b", name, b"")

    def control_settings(self, request: Request) -> None:
        self.settings = Settings(**json.loads(request.body))
        self.arrived.clear()
        self.enough.clear()

    def control_take_log(self, _: Request) -> Answer:
        log = self.log
        self.log = []
        return Answer(200, log)

    def control_delete(self, request: Request) -> None:
        self.objects[request.query["bucket"]].pop(request.query["name"], None)

    def control_clear(self, _: Request) -> None:
        self.__init__()  # type: ignore[misc]

    def control_names(self, request: Request) -> Answer:
        return Answer(200, sorted(self.objects[request.query["bucket"]]))

    def control_get(self, request: Request) -> Answer:
        found = self.objects[request.query["bucket"]].get(request.query["name"])
        return Answer(200, found.data) if found else Answer(404, b"")

    def control_counts(self, _: Request) -> Answer:
        counts = {
            "most": dict(self.most),
            "connections": self.connections,
            "running": self.running.total(),
        }
        self.most.clear()
        self.connections = 0
        return Answer(200, counts)


def parts_of(request: Request) -> tuple[dict[str, str], bytes]:
    """(metadata, content) of an upload in one request."""
    match = re.search(r'boundary="?([^";]+)"?', request.headers["content-type"])
    assert match
    boundary = match[1].encode()
    _, described, content = request.body.split(b"--" + boundary, 2)
    content = content[: content.rindex(b"\r\n--" + boundary)]
    return json.loads(described.split(b"\r\n\r\n", 1)[1]), content.split(b"\r\n\r\n", 1)[1]


def upload_name(request: Request) -> str:
    if request.query.get("uploadType") == "resumable":
        return str(request.query.get("name") or json.loads(request.body)["name"])
    return str(parts_of(request)[0]["name"])


class FakeGcs:
    """Starts the server in a process of its own, and talks to it.

    Attributes:
        address: for STORAGE_EMULATOR_HOST.
    """

    module = "tests.fake_gcs"

    def __init__(self, *arguments: str) -> None:
        root = Path(__file__).parents[1]
        command = [sys.executable, "-m", self.module, *arguments]
        self._process = subprocess.Popen(
            command, cwd=root, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self.address = self._process.stdout.readline().strip()
        if not self.address:
            raise RuntimeError("the fake server did not start")
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ask(self, action: str, body: bytes = b"", **query: str) -> Any:
        url = f"{self.address}/control/{action}?{urllib.parse.urlencode(query)}"
        with self._opener.open(
            urllib.request.Request(url, data=body, method="POST"), timeout=240
        ) as response:
            return response.read()

    def clear(self) -> None:
        """As after the start: an empty bucket `b`."""
        self._ask("clear")

    def put(self, name: str, data: bytes, *, bucket: str = "b", encoding: str = "") -> None:
        self._ask("put", data, name=name, bucket=bucket, encoding=encoding)

    def put_many(self, names: list[str]) -> None:
        """Empty objects in the bucket b."""
        self._ask("put_many", json.dumps(names).encode())

    def delete(self, name: str, *, bucket: str = "b") -> None:
        self._ask("delete", name=name, bucket=bucket)

    def put_folder(self, folder: Path, prefix: str) -> None:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.put(f"{prefix}/{path.relative_to(folder)}", path.read_bytes())

    def get(self, name: str, *, bucket: str = "b") -> bytes:
        """The bytes of an object.

        Raises:
            FileNotFoundError: there is none.
        """
        try:
            return bytes(self._ask("get", name=name, bucket=bucket))
        except urllib.error.HTTPError as error:
            raise FileNotFoundError(name) from error

    def names(self, *, bucket: str = "b") -> list[str]:
        return list(json.loads(self._ask("names", bucket=bucket)))

    def set(self, **settings: Any) -> None:
        """All settings, those not given at their defaults; see `Settings`."""
        self._ask("settings", json.dumps(settings).encode())

    def take_log(self) -> list[dict[str, str]]:
        """The requests since this was last asked: method, name, signed, and their query."""
        return list(json.loads(self._ask("take_log")))

    def counts(self) -> dict[str, Any]:
        """Most downloads and others at a time, connections made, and running requests.

        All but the last are counted since this was last asked.
        """
        return dict(json.loads(self._ask("counts")))


async def run(server: Server, when_ready: Callable[[str], None]) -> None:
    listening = await asyncio.start_server(
        server.serve, "127.0.0.1", 0, limit=1 << 20, backlog=1024
    )
    when_ready(f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}")
    await listening.serve_forever()


def main(server: Server) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--latency_ms", type=float, default=0.0)
    parser.add_argument("--photos", default="")
    arguments = parser.parse_args()
    server.settings = Settings(latency_s=arguments.latency_ms / 1e3, log=not arguments.photos)
    bucket, _, folder = arguments.photos.partition("=")
    for path in sorted(Path(folder).rglob("*")) if folder else ():
        if path.is_file():
            server.put(bucket, os.fspath(path.relative_to(folder)), path.read_bytes())
    asyncio.run(run(server, lambda address: print(address, flush=True)))


if __name__ == "__main__":
    main(Server())
