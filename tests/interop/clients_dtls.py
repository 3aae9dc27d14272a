"""DTLS spoken by others: wolfSSL (1.2, 1.3, identifiers that outlive an address), mbedTLS, GnuTLS and tinydtls (1.2),
tokio-dtls (1.3).

Each is a program with the same line protocol, in both roles: `wolfssl/peer.c`, `tinydtls/peer.c`, `mbedtls_peer.py`,
`gnutls_peer.py` and `rust/src/bin/dtls.rs`. libcoap's server, over OpenSSL and over GnuTLS, is asked by our client.
"""

import asyncio
import re
import socket
import subprocess
import sys
from pathlib import Path

from aiocoap.message import Message
from aiocoap.numbers import codes
from aiocoap.numbers.types import ACK, CON

from bridges import CLIENTS
from client import PATIENCE, Missing, Refused
from credential import NOBODY
from patience import within

WAIT = 3000
"""Milliseconds for an answer; a datagram that is lost on loopback is a mistake of somebody's."""
WOLFSSL = [str(CLIENTS / "bin/wolfssl-peer")]
TINYDTLS = [str(CLIENTS / "bin/tinydtls-peer")]
MBEDTLS = [sys.executable, str(Path(__file__).parent / "mbedtls_peer.py")]
GNUTLS = [sys.executable, str(Path(__file__).parent / "gnutls_peer.py")]
TOKIO_DTLS = [str(CLIENTS / "rust/debug/fogmux-interop-dtls")]


class Session:
    """One DTLS session of a program with the line protocol; `async with` makes it, or waits for it as a server."""

    def __init__(self, *command):
        self.command = command
        self.number = 0

    async def __aenter__(self):
        await self._start()
        try:
            await self._establish()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _start(self):
        self.process = await asyncio.create_subprocess_exec(
            *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)

    async def _establish(self):
        word, *rest = (await self._line()).split()
        if word != "established":
            raise Refused(" ".join([word, *rest]))
        *_, self.protocol, self.suite, self.cid, self.group = rest

    async def _line(self):
        line = (await within(self.process.stdout.readline(), PATIENCE)).decode().strip()
        if line.startswith("failed"):
            raise Refused(line)
        return line

    async def tell(self, command):
        """One line in; where one comes out for it, that."""
        self.process.stdin.write(f"{command}\n".encode())
        await self.process.stdin.drain()
        return None if command.startswith(("send", "close")) else await self._line()

    async def receive(self):
        """The next message, or None."""
        word, *data = (await self.tell(f"receive {WAIT}")).split()
        return Message.decode(bytes.fromhex(data[0])) if word == "data" else None

    async def request(self, code, path, payload=b"", **options):
        """Asks, and gives the answer (RFC 7252 §4.2: once more when nothing comes)."""
        self.number += 1
        message = Message(code=code, payload=payload, **options)
        message.mtype, message.mid, message.token = CON, self.number, self.number.to_bytes(2, "big")
        message.opt.uri_path = path.split("/")
        for _ in range(2):
            await self.tell(f"send {message.encode().hex()}")
            answer = await self.receive()
            if answer is not None:
                return answer
        raise Missing("silence instead of an answer")

    async def empty(self, kind, number):
        """An Empty message: a ping, an acknowledgement or a Reset (RFC 7252 §4.1)."""
        message = Message(code=codes.EMPTY)
        message.mtype, message.mid, message.token = kind, number, b""
        await self.tell(f"send {message.encode().hex()}")

    async def put(self, topic, payload):
        answer = await self.request(codes.PUT, f"ps/{topic}", payload)
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)

    async def get(self, topic):
        answer = await self.request(codes.GET, f"ps/{topic}")
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)
        return answer.payload


    async def get_blocks(self, topic):
        """The payloads of a value, block by block as the gateway cuts it (RFC 7959 §2.4)."""
        blocks, options = [], {}
        while True:
            answer = await self.request(codes.GET, f"ps/{topic}", **options)
            if not answer.code.is_successful():
                raise Refused(answer.code.dotted)
            blocks.append(answer.payload)
            block = answer.opt.block2
            if block is None or not block.more:
                return blocks
            options["block2"] = (block.block_number + 1, False, block.size_exponent)


def wolf(gateway, credential=NOBODY, version="1.3", *flags):
    """wolfSSL as a client of the gateway's CoAPS door."""
    host, port = gateway.coap_address("coaps")
    return Session(*WOLFSSL, host, str(port), version, *_keys(gateway.ca, credential), *flags)


def mbed(gateway, credential, suite):
    """mbedTLS as a client of the gateway's CoAPS door."""
    host, port = gateway.coap_address("coaps")
    return Session(*MBEDTLS, "client", f"{host}:{port}", "--suite", suite, *_keys(gateway.ca, credential))


def gnutls(gateway, credential, *flags):
    """GnuTLS as a client of the gateway's CoAPS door."""
    host, port = gateway.coap_address("coaps")
    return Session(*GNUTLS, "client", f"{host}:{port}", *_keys(gateway.ca, credential), *flags)


def tiny(gateway, credential):
    """tinydtls as a client of the gateway's CoAPS door."""
    host, port = gateway.coap_address("coaps")
    return Session(*TINYDTLS, "client", host, str(port), *_keys(gateway.ca, credential))


def tokio_dtls(gateway, credential, *flags):
    """tokio-dtls as a client of the gateway's CoAPS door."""
    host, port = gateway.coap_address("coaps")
    return Session(*TOKIO_DTLS, "client", f"{host}:{port}", gateway.ca, *credential.certificate, *flags)


def _keys(ca, credential):
    if credential.psk:
        return ["--psk", credential.psk[0], credential.psk[1].decode()]
    own = ["--cert", *credential.certificate] if credential.certificate else []
    return ["--ca", ca, *own]


class Server(Session):
    """The other role: a program that waits for one client, at `port`, and answers what it asks."""

    async def __aenter__(self):
        await self._start()
        try:
            word, port = (await self._line()).split()
            if word != "listening":
                raise Refused(word)
        except BaseException:
            await self.__aexit__()
            raise
        self.port = int(port)
        return self

    async def answer(self, payload, update=False):
        """Waits for the session and for a request, and answers 2.05 with this, by new keys if told to; gives the path
        that was asked for."""
        await self._establish()
        request = await self.receive()
        if request is None:
            raise Missing("a request")
        if update:
            await self.tell("update")
        message = Message(code=codes.CONTENT, payload=payload)
        message.mtype, message.mid, message.token = ACK, request.mid, request.token
        await self.tell(f"send {message.encode().hex()}")
        return "/".join(request.opt.uri_path)


class Libcoap:
    """libcoap's server over one of its TLS libraries, with resources that a PUT makes; `port` is that of DTLS."""

    def __init__(self, library, *keys):
        self.program, self.keys = f"coap-server-{library}", keys

    async def __aenter__(self):
        for _ in range(20):
            plain = free_pair()
            self.process = await asyncio.create_subprocess_exec(
                self.program, "-A", "127.0.0.1", "-p", str(plain), "-d", "10", *self.keys,
                stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL)
            self.port = plain + 1
            # Somebody may have taken a port between the choice and the start: then it ends by itself.
            try:
                await asyncio.wait_for(self.process.wait(), 0.5)
            except TimeoutError:
                return self
        raise Missing(f"{self.program} does not start")

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    def version(self):
        """libcoap's and that of the library below it."""
        told = subprocess.run([self.program, "-?"], capture_output=True, text=True, check=False)
        found = re.search(r"Build: (.*)\nTLS Library: (\S+) - runtime ([^,]*)", told.stdout + told.stderr)
        return f"libcoap {found[1]}, {found[2]} {found[3]}" if found else "of no known version"


def free_pair():
    """A port, and the one after it, that nobody has."""
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as first:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as second:
                    second.bind(("127.0.0.1", port + 1))
                    return port
            except OSError:
                continue
