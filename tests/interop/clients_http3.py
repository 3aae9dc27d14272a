"""HTTP/3: aioquic and curl_cffi."""

import asyncio
from urllib.parse import urlencode

from curl_cffi import AsyncSession, CurlHttpVersion
from curl_cffi.aio import CURL_POLL_NONE, CURL_SOCKET_TIMEOUT
from curl_cffi.requests.exceptions import RequestException
from aioquic.asyncio.client import connect as quic_connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3_ALPN, H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import ConnectionTerminated, StreamReset

from client import PATIENCE, Follower, Missing, Refused
from patience import within
from requests_http import H3, Requests, from_envelope


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
            self.protocol = await within(self.context.__aenter__(), PATIENCE)
        except ConnectionError as error:
            raise Refused(f"handshake: {error}") from None
        self.tasks = []

    async def close(self):
        for task in self.tasks:
            task.cancel()
        await self.context.__aexit__(None, None, None)

    async def _next(self, queue, patience=3 * PATIENCE):
        try:
            return await within(queue.get(), patience)
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
        headers = [("accept", "text/event-stream"), *self.authorization()]
        queue = self.protocol.start("GET", self.authority, path, headers, None)
        kind, fields = await self._next(queue, PATIENCE)
        if kind != "headers" or fields[":status"] != "200":
            raise Refused(fields[":status"] if kind == "headers" else f"{kind} {fields}")
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
        self.tasks = [asyncio.create_task(self._collect())]

    async def _collect(self):
        """Collects transfers that have ended. What ends while curl_cffi 0.16 looks after its timers is reported with
        the next datagram only, and on a quiet connection that is the comment on an event stream fifteen seconds later."""
        while True:
            self.session.acurl.process_data(CURL_SOCKET_TIMEOUT, CURL_POLL_NONE)
            await asyncio.sleep(0.1)

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
