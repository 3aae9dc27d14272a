"""HTTP: curl (h1, h2, h2c), httpx (h1, h2, h2c), aioquic and curl_cffi (h3), and websockets."""

import asyncio
import base64
import json
import tempfile
from urllib.parse import quote, urlencode

import httpx
import websockets
from curl_cffi import AsyncSession, CurlHttpVersion
from curl_cffi.requests.exceptions import RequestException
from aioquic.asyncio.client import connect as quic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

from client import PATIENCE, Follower, Getter, Missing, Publisher, Received, Refused, run

H1, H1S, H2, H2C, H3 = "h1", "h1s", "h2", "h2c", "h3"
UNTYPED = "application/octet-stream"
HANDSHAKE_FAILED = (35, 52, 55, 56)
"""curl's exit codes when TLS was refused, which TLS 1.3 may tell it only after the request is on its way."""


def topic_path(topic):
    return "/topics/" + "/".join(quote(level, safe="") for level in topic.split("/"))


def base_url(gateway, version):
    return gateway.http_base(secure=version not in (H1, H2C))


def from_envelope(line: str) -> Received:
    """The JSON object that streams carry for a message (design: id, topic, payload, encoding, …)."""
    item = json.loads(line)
    data = base64.b64decode(item["payload"]) if item["encoding"] == "base64" else item["payload"].encode()
    return Received(data, item.get("content_type"), item["topic"], item.get("retain"), extra=item)


class Requests(Publisher, Getter):
    """PUT, POST, DELETE and GET by whatever `request` is."""

    door = "http"
    version = H1

    def authorization(self):
        """The header, for clients that have no other way to be given a password or a token."""
        keys = self.credential
        if keys.token is not None:
            return [("authorization", f"Bearer {keys.token}")]
        if keys.password is not None:
            return [("authorization", "Basic " + base64.b64encode(f"{keys.user}:{keys.password}".encode()).decode())]
        return []

    async def request(self, method, path, headers=(), body=None):
        """(status, headers as a dict of lower-case names, body)"""
        raise NotImplementedError

    async def publish(self, topic, data, content_type, retain=True):
        headers = [] if content_type is None else [("content-type", content_type)]
        status, _, body = await self.request("PUT" if retain else "POST", topic_path(topic), headers, data)
        if status not in ((201, 204) if retain else (202,)):
            raise Refused(str(status))

    async def clear(self, topic):
        status, _, _ = await self.request("DELETE", topic_path(topic))
        if status != 204:
            raise Refused(str(status))

    async def get(self, topic):
        status, headers, body = await self.request("GET", topic_path(topic))
        if status == 404:
            return None
        if status != 200:
            raise Refused(str(status))
        kind = headers.get("content-type")
        return Received(body, kind, topic, extra=headers)


class Curl(Requests):
    """curl once per request."""

    flags = ()

    async def request(self, method, path, headers=(), body=None):
        with tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as sent, \
                tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as came:
            argv = ["curl", "-sS", *self.flags, "--cacert", self.gateway.ca, "-X", method, "-D", "-", "-o", came.name]
            argv += self._keys()
            if method == "HEAD":
                argv += ["-I"]
            for name, value in headers:
                argv += ["-H", f"{name}: {value}"]
            if body is not None:
                if not any(name == "content-type" for name, _ in headers):
                    argv += ["-H", "Content-Type:"]
                sent.write(body)
                sent.flush()
                # -T streams the file as it is; Expect: 100-continue stays as curl likes it.
                argv += ["-T", sent.name]
            code, out, err = await run(*argv, base_url(self.gateway, self.version) + path)
            if code in HANDSHAKE_FAILED and self.credential.certificate:
                raise Refused(f"handshake: {err.decode().strip()}")
            if code != 0:
                raise Missing(err.decode().strip())
            blocks = [block for block in out.decode().split("\r\n\r\n") if block.strip()]
            lines = blocks[-1].split("\r\n")
            protocol, status = lines[0].split()[:2]
            wanted = "HTTP/2" if self.version in (H2, H2C) else "HTTP/1.1"
            if protocol != wanted:
                raise Refused(f"{protocol} instead of {wanted}")
            fields = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines[1:])}
            came.seek(0)
            return int(status), fields, came.read()


    def _keys(self):
        keys = self.credential
        if keys.certificate:
            return ["--cert", keys.certificate[0], "--key", keys.certificate[1]]
        if keys.token is not None:
            return ["--oauth2-bearer", keys.token]
        return [] if keys.password is None else ["--user", f"{keys.user}:{keys.password}"]


class CurlStream(Follower):
    """curl -N on /subscribe: SSE over each version."""

    door = "http"
    version = H1
    flags = ()

    async def open(self):
        self.streams = []

    async def close(self):
        for process, task in self.streams:
            process.terminate()
            await process.wait()
            task.cancel()

    async def follow(self, topic):
        url = base_url(self.gateway, self.version) + "/subscribe?" + urlencode({"filter": topic})
        process = await asyncio.create_subprocess_exec(
            "curl", "-sSNi", *self.flags, "--cacert", self.gateway.ca, "-H", "accept: text/event-stream", url,
            stdout=asyncio.subprocess.PIPE, limit=1 << 26)
        head = []
        while (line := await asyncio.wait_for(process.stdout.readline(), PATIENCE)).strip():
            head.append(line.decode().strip().lower())
        if not head or head[0].split()[1] != "200" or "content-type: text/event-stream" not in ";".join(head):
            raise Refused(f"{head[:1]}")
        self.streams.append((process, asyncio.create_task(self._read(process))))

    async def _read(self, process):
        while line := await process.stdout.readline():
            if line.startswith(b"data:"):
                item = from_envelope(line[5:].decode())
                self.arrived(item.topic, item)


class Httpx(Requests, Follower):
    """One httpx client: requests, and one stream per followed topic (SSE, or NDJSON over h2c)."""

    accept = "text/event-stream"

    async def open(self):
        self.client, self.streams, self.tasks = self._client(), [], []

    def _client(self):
        return httpx.AsyncClient(
            base_url=base_url(self.gateway, self.version), http1=self.version in (H1, H1S),
            http2=self.version in (H2, H2C), verify=self.credential.tls(self.gateway.ca), headers=self.authorization(),
            timeout=httpx.Timeout(60.0), limits=httpx.Limits(max_connections=None, max_keepalive_connections=None))

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.client.aclose()
        for streams in self.streams:
            await streams.aclose()

    async def request(self, method, path, headers=(), body=None):
        try:
            answer = await self.client.request(method, path, headers=list(headers), content=body)
        except (httpx.TransportError, OSError) as error:
            if self.credential.certificate:
                raise Refused(f"handshake: {error!r}") from None
            raise
        return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.content

    async def follow(self, topic):
        await self.stream({"filter": topic}, lambda item: self.arrived(item.topic, item))

    async def stream(self, query, on_item, headers=(), on_event=None):
        opened = asyncio.get_running_loop().create_future()
        self.tasks.append(asyncio.create_task(self._stream(query, on_item, on_event, headers, opened)))
        await asyncio.wait_for(opened, PATIENCE)

    async def _stream(self, query, on_item, on_event, headers, opened):
        # Each stream has a connection of its own: among several on one, httpcore lets a waiting stream hold the lock
        # that another needs to see what has come for it. (Sharing a connection is a scenario.)
        client = self._client()
        self.streams.append(client)
        try:
            async with client.stream("GET", "/subscribe", params=query, headers={
                    "accept": self.accept, **dict(headers)}, timeout=None) as answer:
                if answer.status_code != 200 or self.accept not in answer.headers.get("content-type", ""):
                    opened.set_exception(Refused(f"{answer.status_code} {answer.headers.get('content-type')}"))
                    return
                opened.set_result(None)
                fields, rest = {}, ""
                async for chunk in answer.aiter_text():
                    # Not aiter_lines: that splits at U+2028 too, and what the grammar says is CR, LF or both.
                    *lines, rest = (rest + chunk).split("\n")
                    for line in lines:
                        if self.accept == "application/x-ndjson":
                            if line.strip():
                                on_item(from_envelope(line))
                        elif line.strip("\r"):
                            name, _, value = line.strip("\r").partition(":")
                            fields[name] = value.removeprefix(" ")
                        elif fields:
                            if on_event and "event" in fields:
                                on_event(fields)
                            elif "data" in fields:
                                on_item(from_envelope(fields["data"]))
                            fields = {}
        except Exception as error:
            if not opened.done():
                opened.set_exception(error)
            else:
                raise


class H3Protocol(QuicConnectionProtocol):
    """HTTP/3 requests on one aioquic connection."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.http = H3Connection(self._quic)
        self.streams, self.ended = {}, False

    def quic_event_received(self, event):
        if isinstance(event, ConnectionTerminated):
            self.ended = True
            for queue in self.streams.values():
                queue.put_nowait(("end", f"connection closed {event.error_code:#x} {event.reason_phrase}"))
        if isinstance(event, StreamReset) and event.stream_id in self.streams:
            self.streams[event.stream_id].put_nowait(("end", f"reset {event.error_code:#x}"))
        for item in self.http.handle_event(event):
            queue = self.streams.get(getattr(item, "stream_id", None))
            if queue is None:
                continue
            if isinstance(item, HeadersReceived):
                queue.put_nowait(("headers", {k.decode(): v.decode() for k, v in item.headers}))
            elif isinstance(item, DataReceived):
                queue.put_nowait(("data", item.data))
            if getattr(item, "stream_ended", False):
                queue.put_nowait(("end", None))

    def start(self, method, authority, path, headers, body):
        stream = self._quic.get_next_available_stream_id()
        self.streams[stream] = asyncio.Queue()
        fields = [(b":method", method.encode()), (b":scheme", b"https"), (b":authority", authority.encode()),
                  (b":path", path.encode())] + [(k.encode(), v.encode()) for k, v in headers]
        self.http.send_headers(stream, fields, end_stream=body is None)
        if body is not None:
            self.http.send_data(stream, body, end_stream=True)
        self.transmit()
        return self.streams[stream]


class Aioquic(Requests, Follower):
    """aioquic: every request and one event stream per topic on one QUIC connection."""

    name = "aioquic h3"
    version = H3

    async def open(self):
        host, port = self.gateway.http3_address()
        configuration = QuicConfiguration(
            is_client=True, alpn_protocols=H3_ALPN, server_name="localhost", idle_timeout=600.0,
            max_data=1 << 26, max_stream_data=1 << 24)
        configuration.load_verify_locations(cafile=self.gateway.ca)
        if self.credential.certificate:
            configuration.load_cert_chain(*self.credential.certificate)
        self.authority = f"localhost:{port}"
        self.context = quic_connect(host, port, configuration=configuration, create_protocol=H3Protocol)
        try:
            self.protocol = await asyncio.wait_for(self.context.__aenter__(), PATIENCE)
        except ConnectionError as error:
            raise Refused(f"handshake: {error}") from None
        self.tasks = []

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await self.context.__aexit__(None, None, None)

    async def _next(self, queue, patience=3 * PATIENCE):
        try:
            return await asyncio.wait_for(queue.get(), patience)
        except TimeoutError:
            raise Missing("no answer over QUIC") from None

    async def request(self, method, path, headers=(), body=None):
        if self.protocol.ended:
            # It was idle for longer than the gateway holds a QUIC connection; a browser opens the next one too.
            await self.open()
        queue = self.protocol.start(method, self.authority, path, [*headers, *self.authorization()], body)
        fields, data = None, bytearray()
        while True:
            kind, value = await self._next(queue)
            if kind == "headers" and fields is None:
                fields = value
            elif kind == "data":
                data += value
            elif kind == "end":
                if fields is None or value:
                    raise Missing(value or "stream ended without an answer")
                return int(fields[":status"]), fields, bytes(data)

    async def follow(self, topic):
        path = "/subscribe?" + urlencode({"filter": topic})
        queue = self.protocol.start("GET", self.authority, path, [("accept", "text/event-stream")], None)
        kind, fields = await self._next(queue, PATIENCE)
        if kind != "headers" or fields[":status"] != "200":
            raise Refused(f"{kind} {fields}")
        self.tasks.append(asyncio.create_task(self._read(queue)))

    async def _read(self, queue):
        rest = b""
        while True:
            kind, value = await queue.get()
            if kind == "end":
                return
            *lines, rest = (rest + value).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    item = from_envelope(line[5:].decode())
                    self.arrived(item.topic, item)


class CurlCffi(Requests, Follower):
    """libcurl with ngtcp2/nghttp3 or quiche inside: the second opinion on HTTP/3."""

    name = "curl_cffi h3"
    version = H3

    async def open(self):
        # By default it does ten things at once, and every followed topic is one.
        self.session = AsyncSession(
            max_clients=200, http_version=CurlHttpVersion.V3ONLY, verify=self.gateway.ca, timeout=60,
            cert=self.credential.certificate)
        self.base = self.gateway.http3_base()
        self.tasks = []

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.session.close()

    async def request(self, method, path, headers=(), body=None):
        extra = [] if any(name == "content-type" for name, _ in headers) or body is None else [("content-type", None)]
        try:
            answer = await self.session.request(
                method, self.base + path, headers=dict([*headers, *self.authorization(), *extra]), data=body,
                default_headers=False)
        except RequestException as error:
            if self.credential.certificate:
                raise Refused(f"handshake: {error}") from None
            raise
        if answer.http_version not in (CurlHttpVersion.V3, CurlHttpVersion.V3ONLY, 3):
            raise Refused(f"HTTP version {answer.http_version}")
        return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, answer.content

    async def follow(self, topic):
        url = self.base + "/subscribe?" + urlencode({"filter": topic})
        answer = await self.session.get(
            url, headers={"accept": "text/event-stream"}, stream=True, timeout=None, default_headers=False)
        if answer.status_code != 200:
            raise Refused(str(answer.status_code))
        self.tasks.append(asyncio.create_task(self._read(answer)))

    async def _read(self, answer):
        rest = b""
        async for chunk in answer.aiter_content():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"data:"):
                    item = from_envelope(line[5:].decode())
                    self.arrived(item.topic, item)


class WebSocket(Follower):
    """The websockets library on /subscribe: text frames of the envelope."""

    name = "websockets"
    door = "http"

    async def open(self):
        self.tasks, self.sockets = [], []

    async def close(self):
        for socket in self.sockets:
            await socket.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    async def follow(self, topic):
        base = self.gateway.http_base(secure=False).replace("http://", "ws://")
        socket = await websockets.connect(base + "/subscribe?" + urlencode({"filter": topic}), max_size=1 << 24)
        self.sockets.append(socket)
        self.tasks.append(asyncio.create_task(self._read(socket)))

    async def _read(self, socket):
        async for frame in socket:
            item = from_envelope(frame)
            self.arrived(item.topic, item)


def _curl(base, label, version, *flags):
    return type(f"Curl_{label}", (base,), {"name": f"curl {label}", "version": version, "flags": flags})


def _httpx(label, version, accept="text/event-stream"):
    return type(f"Httpx_{label}", (Httpx,), {"name": f"httpx {label}", "version": version, "accept": accept})


REQUESTS = [
    _curl(Curl, "h1", H1, "--http1.1"), _curl(Curl, "h2", H2, "--http2"),
    _curl(Curl, "h2c", H2C, "--http2-prior-knowledge"),
    _httpx("h1", H1), _httpx("h1s", H1S), _httpx("h2", H2), _httpx("h2c", H2C, "application/x-ndjson"),
    Aioquic, CurlCffi,
]
STREAMS = [_curl(CurlStream, "h2 sse", H2, "--http2"), WebSocket]
