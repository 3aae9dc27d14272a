"""Pebble, an ACME server that others wrote, with a certificate and a name server of its own."""

import asyncio
import contextlib
import json
import os
import socket
import ssl
import urllib.request
from pathlib import Path

import patience
from bridges import CLIENTS
from client import Missing, run

PROGRAM = CLIENTS / "bin/pebble"
LIFETIME_S = 90 * 86_400
"""That of Let's Encrypt."""


def free_port() -> int:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


async def name_server(reader, writer):
    """Every name is this machine's, and has no other records (RFC 1035 §4.1). Pebble asks over TCP (§4.2.2)."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            question = await reader.readexactly(int.from_bytes(await reader.readexactly(2)))
            end = question.index(b"\0", 12) + 5
            is_address = question[end - 4:end - 2] == b"\0\x01"
            # A response with recursion, of one question and at most one answer, which points to the question's name.
            head = question[:2] + b"\x81\x80\0\x01" + (b"\0\x01" if is_address else b"\0\0") + b"\0\0\0\0"
            record = b"\xc0\x0c\0\x01\0\x01\0\0\0\x3c\0\x04\x7f\0\0\x01" if is_address else b""
            answer = head + question[12:end] + record
            writer.write(len(answer).to_bytes(2) + answer)
            await writer.drain()
    writer.close()


class Pebble:
    """One server; `start` and `stop` it as often as need be. It forgets everything each time, its root included."""

    def __init__(self, place: str, http_port: int, tls_port: int, lifetime_s: int = LIFETIME_S):
        self.place = Path(place)
        self.port, self.management = free_port(), free_port()
        self.http_port, self.tls_port, self.lifetime_s = http_port, tls_port, lifetime_s
        self.ca, self.root, self.log = self.place / "server-ca.pem", self.place / "root.pem", self.place / "log"
        self.process = self.names = None
        self.nonces_refused_percent = 5
        """Pebble's own default."""
        self.external_accounts: dict[str, str] = {}
        """Keys in base64url by identifier (RFC 8555 §7.3.4). If there are some, it gives no account without one."""

    @property
    def directory(self) -> str:
        return f"https://localhost:{self.port}/dir"

    async def make_certificate(self):
        key = self.place / "server.key"
        code, _, err = await run(
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
            "-subj", "/CN=acme.test", "-addext", "subjectAltName=DNS:localhost", "-addext",
            "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(self.ca))
        if code:
            raise Missing(err.decode())
        return key

    async def start(self):
        key = self.place / "server.key"
        if not key.exists():
            await self.make_certificate()
        if self.names is None:
            self.names = await asyncio.start_server(name_server, "127.0.0.1", 0)
        config = self.place / "pebble.json"
        config.write_text(json.dumps({"pebble": {
            "listenAddress": f"127.0.0.1:{self.port}", "managementListenAddress": f"127.0.0.1:{self.management}",
            "certificate": str(self.ca), "privateKey": str(key),
            "httpPort": self.http_port, "tlsPort": self.tls_port, "ocspResponderURL": "",
            "externalAccountBindingRequired": bool(self.external_accounts),
            "externalAccountMACKeys": self.external_accounts, "retryAfter": {"authz": 1, "order": 1},
            "profiles": {"default": {"description": "", "validityPeriod": self.lifetime_s}}}}))
        names = "{}:{}".format(*self.names.sockets[0].getsockname())
        settings = {"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": str(self.nonces_refused_percent)}
        with open(self.log, "wb") as log:
            self.process = await asyncio.create_subprocess_exec(
                str(PROGRAM), "-config", str(config), "-dnsserver", names, stdout=log, stderr=log,
                env={**os.environ, **settings})
        deadline = patience.now() + 30
        while True:
            if root := await asyncio.to_thread(self._root):
                self.root.write_bytes(root)
                return
            if self.process.returncode is not None or patience.now() > deadline:
                raise Missing(f"Pebble does not answer: {self.log.read_text()[-1000:]}")
            await asyncio.sleep(0.1)

    def _root(self) -> bytes | None:
        trust = ssl.create_default_context(cafile=self.ca)
        try:
            url = f"https://localhost:{self.management}/roots/0"
            with urllib.request.urlopen(url, timeout=5, context=trust) as answer:
                return answer.read()
        except OSError:
            return None

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()

    def asked(self, path: str) -> int:
        """How many requests there were for a path."""
        return self.log.read_text(errors="replace").count(f"POST {path}")

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        await self.stop()
        if self.names is not None:
            self.names.close()
