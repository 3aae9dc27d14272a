"""DTLS 1.3, and identifiers that outlive an address: wolfSSL, driven by `wolfssl/client.c`; its server for our
client is `wolfssl/server.c`."""

import asyncio
import os
from pathlib import Path

from aiocoap.message import Message
from aiocoap.numbers import codes
from aiocoap.numbers.types import CON

from client import PATIENCE, Missing, Refused
from credential import NOBODY

WAIT = 3000
"""Milliseconds for an answer; a datagram that is lost on loopback is a mistake of somebody's."""


class WolfSession:
    """One session with the gateway's CoAPS door; `async with` makes it."""

    def __init__(self, gateway, credential=NOBODY, version="1.3", *flags):
        self.gateway, self.credential, self.version, self.flags = gateway, credential, version, flags
        self.number = 0

    def _keys(self):
        keys = self.credential
        if keys.psk:
            return ["--psk", keys.psk[0], keys.psk[1].decode()]
        own = ["--cert", *keys.certificate] if keys.certificate else []
        return ["--ca", self.gateway.ca, *own]

    async def __aenter__(self):
        host, port = self.gateway.coap_address("coaps")
        program = Path(os.environ["FOGMUX_CLIENTS"], "bin", "wolfssl-client")
        self.process = await asyncio.create_subprocess_exec(
            str(program), host, str(port), self.version, *self._keys(), *self.flags,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        try:
            word, *rest = (await self._line()).split()
            if word != "established":
                raise Refused(" ".join([word, *rest]))
        except BaseException:
            await self.__aexit__()
            raise
        *_, self.protocol, self.suite, self.cid, self.group = rest
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _line(self):
        line = (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode().strip()
        if line.startswith("failed"):
            raise Refused(line)
        return line

    async def tell(self, command):
        """One line in; where one comes out for it, that."""
        self.process.stdin.write(f"{command}\n".encode())
        await self.process.stdin.drain()
        return None if command.startswith(("send", "close")) else await self._line()

    async def request(self, code, path, payload=b"", **options):
        """Asks, and gives the answer (RFC 7252 §4.2: once more when nothing comes)."""
        self.number += 1
        message = Message(code=code, payload=payload, **options)
        message.mtype, message.mid, message.token = CON, self.number, self.number.to_bytes(2, "big")
        message.opt.uri_path = path.split("/")
        for _ in range(2):
            await self.tell(f"send {message.encode().hex()}")
            word, *data = (await self.tell(f"receive {WAIT}")).split()
            if word == "data":
                return Message.decode(bytes.fromhex(data[0]))
        raise Missing(f"{word} instead of an answer")

    async def put(self, topic, payload):
        answer = await self.request(codes.PUT, f"ps/{topic}", payload)
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)

    async def get(self, topic):
        answer = await self.request(codes.GET, f"ps/{topic}")
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)
        return answer.payload


class WolfServer:
    """wolfSSL as the server of one session, which answers every CoAP request with what was agreed on."""

    def __init__(self, version, *flags):
        self.version, self.flags = version, flags

    async def __aenter__(self):
        program = Path(os.environ["FOGMUX_CLIENTS"], "bin", "wolfssl-server")
        self.process = await asyncio.create_subprocess_exec(
            str(program), self.version, *map(str, self.flags), stdout=asyncio.subprocess.PIPE)
        word, port = (await self.line()).split()
        if word != "port":
            await self.__aexit__()
            raise Refused(f"{word} {port}")
        self.port = int(port)
        return self

    async def __aexit__(self, *_):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def line(self):
        return (await asyncio.wait_for(self.process.stdout.readline(), PATIENCE)).decode().strip()
