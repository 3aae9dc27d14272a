"""Clients in other languages, each a process that speaks JSON lines: mqtt.js, xmpp.js, HiveMQ, Californium, Smack,
tokio-xmpp."""

import asyncio
import base64
import itertools
import json
import os
import tempfile
from pathlib import Path

from client import PATIENCE, Follower, Missing, Publisher, Received, Refused
from patience import within


CLIENTS = Path(os.environ.get("FOGMUX_CLIENTS", Path(__file__).parents[2] / "target" / "clients"))
"""Where `cargo xtask test` put the npm and Maven clients."""


HANDSHAKE_FAILED = ("HandshakeException", "SSLException", "fatal alert", "Connection reset", "Server closed connection",
                    "Broken pipe", "Connection or outbound has closed")


def plain(error: str) -> str:
    """A handshake that failed, as such; Java's libraries have many words for it."""
    return f"handshake: {error}" if any(words in error for words in HANDSHAKE_FAILED) else error


class Bridge(Publisher, Follower):
    def command(self) -> list[str]:
        raise NotImplementedError

    async def open(self):
        self.numbers, self.pending = itertools.count(), {}
        environment = {**os.environ, "FOGMUX_CLIENTS": str(CLIENTS), "NODE_EXTRA_CA_CERTS": self.gateway.ca,
                       "SSL_CERT_FILE": self.gateway.ca}
        # Libraries print stack traces of what a test does on purpose; they are shown when the process ends by itself.
        self.complaints = tempfile.TemporaryFile()
        self.process = await asyncio.create_subprocess_exec(
            *self.command(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self.complaints,
            limit=1 << 26, env=environment)
        self.ready = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(self._read())
        self.greet()
        # Two dozen virtual machines of Java start at once on a machine that may have other work.
        self.said = await within(asyncio.shield(self.ready), 3 * PATIENCE)

    def greet(self):
        """Says what has to be said before the client is ready."""

    async def close(self):
        if self.process.returncode is None:
            await self.ask({"do": "close"})
            self.process.stdin.close()
            await within(self.process.wait(), PATIENCE)
        await self.task
        self.complaints.close()

    async def _read(self):
        while line := await self.process.stdout.readline():
            item = json.loads(line)
            if "topic" in item:
                self.arrived(item["topic"], Received(
                    base64.b64decode(item["data"]), item.get("content_type"), item["topic"], item.get("retain"),
                    item.get("as_xml", False)))
            elif "done" in item:
                self.pending.pop(item["done"]).set_result(item.get("error"))
            elif not self.ready.done():
                if "fatal" in item:
                    self.ready.set_exception(Refused(plain(item["fatal"])))
                else:
                    self.ready.set_result(item)
        for future in self.pending.values():
            if not future.done():
                future.set_result(f"process ended: {self.last_words()}")
        if not self.ready.done():
            self.ready.set_exception(Missing(f"the bridge ended: {self.last_words()}"))

    def last_words(self) -> str:
        """The end of what the process has written to its standard error."""
        size = self.complaints.seek(0, os.SEEK_END)
        self.complaints.seek(max(0, size - 1000))
        return self.complaints.read().decode(errors="replace")

    async def ask(self, request):
        number = next(self.numbers)
        future = self.pending[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, **request}).encode() + b"\n")
        await self.process.stdin.drain()
        try:
            error = await within(future, 2 * PATIENCE)
        except TimeoutError:
            raise Missing("no answer") from None
        if error is not None and error.endswith(": no response"):
            raise Missing(error)
        if error is not None:
            raise Refused(plain(error))

    async def publish(self, topic, data, content_type, retain=True):
        await self.ask({"do": "publish", "topic": topic, "data": base64.b64encode(data).decode(),
                        "content_type": content_type, "retain": retain})

    async def clear(self, topic):
        await self.ask({"do": "clear", "topic": topic})

    async def follow(self, topic):
        await self.ask({"do": "follow", "topic": topic})

    async def next(self, topic, patience=PATIENCE):
        try:
            return await super().next(topic, patience)
        except Missing as missing:
            words = self.last_words()
            raise Missing(f"{missing}; its last words: {words}" if words else str(missing)) from None


class Node(Bridge):
    kind = "?"

    def url(self) -> str:
        raise NotImplementedError

    def command(self):
        return ["node", str(Path(__file__).with_name("bridge.mjs")), self.kind, self.url()]


class MqttJs(Node):
    name, door, kind = "mqtt.js 5/tls", "mqtt", "mqtt"

    def url(self):
        host, port = self.gateway.mqtt_address("tls")
        return f"mqtts://{host}:{port}"


class MqttJsWs(Node):
    name, door, kind = "mqtt.js 5/ws", "mqtt", "mqtt"

    def url(self):
        host, port = self.gateway.mqtt_address("ws")
        return f"ws://{host}:{port}/mqtt"


class XmppJs(Node):
    name, door, kind = "xmpp.js", "xmpp", "xmpp"

    def url(self):
        host, port = self.gateway.xmpp_address(direct=False)
        return f"xmpp://{host}:{port}"


class Java(Bridge):
    kind = "?"
    mechanism = None
    """Of SASL, where there is a choice."""

    def address(self) -> tuple[str, int]:
        raise NotImplementedError

    def command(self):
        place = CLIENTS / "java"
        host, port = self.address()
        return ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{place}/classes:{place}/dependency/*", "Bridge",
                self.kind, host, str(port), self.gateway.ca, json.dumps(self.keys())]

    def keys(self):
        """The credential in JSON, as Keys.java reads it."""
        keys = self.credential
        return {
            "user": keys.user, "password": keys.password, "token": keys.token, "mechanism": self.mechanism,
            "certificate": keys.certificate and keys.certificate[0], "key": keys.certificate and keys.certificate[1],
            "identity": keys.psk and keys.psk[0], "secret": keys.psk and keys.psk[1].hex(), "context": keys.context}


class Hivemq(Java):
    name, door, kind = "hivemq 5/wss", "mqtt", "mqtt"

    def address(self):
        return self.gateway.mqtt_address("wss")


class Californium(Java):
    name, door, kind = "californium", "coap", "coap"

    def address(self):
        return self.gateway.coap_address(self.kind)


class CaliforniumTcp(Californium):
    name, kind = "californium tcp", "coap+tcp"


class Smack(Java):
    name, door, kind = "smack", "xmpp", "xmpp"

    def address(self):
        return self.gateway.xmpp_address(direct=False)


class TokioXmpp(Bridge):
    """It takes the strongest mechanism that is offered, and has to: the binding (RFC 9266) is what it is here for."""

    name, door, how = "tokio-xmpp", "xmpp", "starttls"
    mechanism = "SCRAM-SHA-256-PLUS"

    def command(self):
        host, port = self.gateway.xmpp_address(direct=self.how == "direct")
        return [str(CLIENTS / "rust/debug/fogmux-interop-xmpp"), f"{host}:{port}",
                f"{self.credential.user}@localhost", self.how]

    def greet(self):
        # Not on the command line, where everybody on this machine could read it.
        self.process.stdin.write(f"{self.credential.password}\n".encode())

    async def open(self):
        await super().open()
        if self.said["mechanism"] != self.mechanism:
            await self.close()
            raise Missing(f"it logged in by {self.said['mechanism']}")


BRIDGES = [MqttJs, MqttJsWs, XmppJs, Hivemq, Californium, CaliforniumTcp, Smack]
