"""HTTP: curl (h1, h2, h2c), httpx (h1, h2, h2c), websockets, and the clients of HTTP/3."""

import asyncio
import tempfile
from urllib.parse import urlencode

import httpx
import websockets

from client import PATIENCE, Follower, Missing, Refused, run
from clients_http3 import Aioquic, CurlCffi
from patience import within
from requests_http import H1, H1S, H2, H2C, HANDSHAKE_FAILED, Requests, base_url, from_envelope


def keys(credential):
    """curl's arguments for a credential."""
    if credential.certificate:
        return ["--cert", credential.certificate[0], "--key", credential.certificate[1]]
    if credential.token is not None:
        return ["--oauth2-bearer", credential.token]
    return [] if credential.password is None else ["--user", f"{credential.user}:{credential.password}"]


class Curl(Requests):
    """curl once per request."""

    flags = ()

    async def request(self, method, path, headers=(), body=None):
        with tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as sent, \
                tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as came:
            argv = ["curl", "-sS", *self.flags, "--cacert", self.gateway.ca, "-X", method, "-D", "-", "-o", came.name]
            argv += keys(self.credential)
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
            "curl", "-sSNi", *self.flags, "--cacert", self.gateway.ca, *keys(self.credential),
            "-H", "accept: text/event-stream", url, stdout=asyncio.subprocess.PIPE,
            limit=1 << 26)
        head = []
        while (line := await within(process.stdout.readline(), PATIENCE)).strip():
            head.append(line.decode().strip().lower())
        if not head:
            raise Missing("no response")
        status = head[0].split()[1]
        if status != "200" or "content-type: text/event-stream" not in ";".join(head):
            raise Refused(status)
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
        await within(opened, PATIENCE)

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
