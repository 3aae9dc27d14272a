"""Power cuts in a loop while OSCORE devices send and observe (RFC 8613 §7.2.1, §7.4, appendix B.1): `kill -9`, and what
was not synchronised is taken away (discard.py).

Properties of all lives of the gateway: no nonce of its own ever protects two different messages, no request is
carried out a second time, what it acknowledged it still has, and every device gets back in by Echo. The devices protect
with aiocoap; the datagrams are our own, so that every one is seen.
"""

import asyncio
import itertools
import random
from collections import defaultdict

from aiocoap import CON, Message, oscore
from aiocoap.numbers import codes
from aiocoap.numbers.optionnumbers import OptionNumber
from aiocoap.numbers.types import ACK, NON

from access import Warden
from client import PATIENCE
from clients_mqtt import TLS, Connection
from discard import SURVIVES, SYNC_TAKES
from disk.recorder import Recorder
from keyring import LockedGateway
from patience import within

import paho.mqtt.client as paho

CUTS = 12
DEVICES = 4
REPLAYS = 300
"""Of the newest requests, again after every cut."""
DURABLE = '[store]\ndurability = "group"'


class Nonces:
    """Every nonce under which the gateway was seen to protect something, and what."""

    def __init__(self):
        self.protected: dict[tuple, set[bytes]] = defaultdict(set)

    def note(self, device, message, request_number: bytes | None):
        option = message.opt.get_option(OptionNumber.OSCORE)
        if not option:
            return
        value = option[0].value
        length = value[0] & 7 if value else 0
        # Without a number of its own a response stands under the request's nonce (§5.2).
        number = ("own", value[1:1 + length]) if length else ("request", request_number)
        self.protected[device, number].add(message.payload)

    def twice(self):
        return [key for key, payloads in self.protected.items() if len(payloads) > 1]

    def own(self):
        return sum(1 for _, (kind, _) in self.protected if kind == "own")


class Wire(asyncio.DatagramProtocol):
    """One socket to one life of the gateway."""

    def __init__(self):
        self.waiting: dict[bytes, asyncio.Future] = {}
        self.on_unasked = lambda message: None

    @classmethod
    async def to(cls, address):
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(cls, remote_addr=address)
        return protocol

    def connection_made(self, transport):
        self.transport = transport

    def error_received(self, error):
        # Nobody listens: the gateway is dead just now.
        pass

    def datagram_received(self, data, address):
        message = Message.decode(data)
        if message.mtype == CON:
            self.transport.sendto(Message(mtype=ACK, mid=message.mid, code=codes.EMPTY).encode())
        future = self.waiting.get(message.token)
        if future is not None and not future.done() and message.code.is_response():
            future.set_result(message)
        elif message.code.is_response():
            self.on_unasked(message)

    async def ask(self, message, patience):
        """The response, or None; nothing is sent twice, so that every datagram is a request of its own."""
        future = self.waiting[message.token] = asyncio.get_running_loop().create_future()
        self.transport.sendto(message.encode())
        try:
            return await within(future, patience)
        except TimeoutError:
            return None
        finally:
            if message.opt.observe is None:
                del self.waiting[message.token]


class Device:
    """One identity, one context, one topic; its counter never goes back."""

    def __init__(self, number, directory, nonces):
        self.number, self.nonces, self.topic = number, nonces, f"open/power/{number}"
        self.context = oscore.FilesystemSecurityContext(directory + "/")
        self.counter, self.acknowledged = 0, 0
        self.sent: list[Message] = []
        self.ids = itertools.count(random.randrange(60_000))

    def protect(self, code, payload=b"", observe=None, echo=None):
        inner = Message(code=code, payload=payload, observe=observe)
        inner.opt.uri_path = ("ps", *self.topic.split("/"))
        inner.opt.echo = echo
        outer, request = self.context.protect(inner)
        outer.mtype, outer.mid = CON, next(self.ids) % 65_536
        outer.token = self.number.to_bytes(1) + self.context.sender_sequence_number.to_bytes(5)
        return outer, request

    async def request(self, wire, code, patience, **fields):
        """The inner response; one Echo is answered (appendix B.1.2)."""
        for echo in (None, "asked"):
            if echo:
                fields["echo"] = answer.opt.echo
            outer, request = self.protect(code, **fields)
            if code == codes.PUT:
                self.sent.append(outer)
            came = await wire.ask(outer, patience)
            if came is None:
                return None
            self.nonces.note(self.number, came, request.partial_iv)
            answer, _ = self.context.unprotect(came, request)
            if answer.code != codes.UNAUTHORIZED or answer.opt.echo is None:
                return answer
        return answer

    async def live(self, address, cut: asyncio.Event):
        """Observes its own topic and writes to it until the power is gone."""
        wire = await Wire.to(address)
        wire.on_unasked = lambda message: self.nonces.note(self.number, message, None)
        try:
            await self.request(wire, codes.GET, 1, observe=0)
            while not cut.is_set():
                self.counter += 1
                answer = await self.request(wire, codes.PUT, 0.3, payload=str(self.counter).encode())
                if answer is not None and answer.code.is_successful():
                    self.acknowledged = self.counter
        finally:
            wire.transport.close()


class Cuts:
    """All lives of one data directory."""

    def __init__(self, arguments, report):
        self.binary, self.report, self.nonces = arguments.bin, report, Nonces()
        self.replayed = 0
        self.differs: str | None = None

    async def run(self):
        contexts = [("alice", f"power{number}") for number in range(DEVICES)]
        first = LockedGateway(self.binary, DURABLE, contexts=contexts)
        await first.furnish()
        with Recorder(first.data) as self.recorder:
            self.recorder.set(sync_takes=SYNC_TAKES)
            await self.lives(first, contexts)
        self.report.check("power cuts: the recorder saw everything", self.differs)
        print(f"    {self.recorder.seen}")

    def recorded(self, gateway):
        self.recorder.begin()
        gateway.environment = self.recorder.environment
        return gateway

    async def lives(self, first, contexts):
        async with self.recorded(first) as gateway:
            directories = [str(gateway.ring.contexts[key] / "client") for key in contexts]
            devices = [Device(number, directory, self.nonces) for number, directory in enumerate(directories)]
            await self.life(gateway, devices)
            for _ in range(CUTS - 1):
                again = LockedGateway(self.binary, DURABLE, data=first.data)
                again.ring = first.ring
                async with self.recorded(again) as gateway:
                    await self.replay(gateway, devices)
                    await self.life(gateway, devices)
            again = LockedGateway(self.binary, DURABLE, data=first.data)
            again.ring = first.ring
            async with self.recorded(again) as gateway:
                await self.replay(gateway, devices)
        sent = sum(len(device.sent) for device in devices)
        self.report.check("power cuts: no nonce protects two messages", self._said(self.nonces.twice()))
        self.report.check("power cuts: the gateway used numbers of its own", None if self.nonces.own() else "none seen")
        print(f"  {CUTS} power cuts: {sent} requests, {self.nonces.own()} numbers of the gateway's own, "
              f"{len(self.nonces.protected)} nonces, {self.replayed} replays")

    @staticmethod
    def _said(keys):
        return f"{len(keys)} nonces, such as {keys[:3]}" if keys else None

    async def life(self, gateway, devices):
        cut = asyncio.Event()
        lives = [asyncio.create_task(device.live(gateway.coap_address(), cut)) for device in devices]
        await asyncio.sleep(random.uniform(0.1, 0.6))
        await gateway.kill()
        self.differs = self.recorder.cut(random.choice(SURVIVES)) or self.differs
        cut.set()
        await asyncio.gather(*lives)

    async def replay(self, gateway, devices):
        """Before anything else is said, everything that was said."""
        warden = Warden(gateway, gateway.ring.right("password", "warden", ""))
        await warden.open()
        keys = gateway.ring.right("password", "warden", "")
        follower, seen = Connection(gateway, paho.MQTTv5, TLS, credential=keys), []
        follower.on_message = lambda message: seen.append(message) if not message.retain else None
        await follower.open()
        await follower.subscribe("open/power/#")
        wire = await Wire.to(gateway.coap_address())
        before = [await warden.get(device.topic) for device in devices]
        for device, value in zip(devices, before):
            kept = int(value.payload) if value else 0
            self.report.check(f"power cuts: what device {device.number} was told is kept", None if
                              device.acknowledged <= kept <= device.counter else
                              f"{kept} of {device.acknowledged} to {device.counter}")
        old = [(device, message) for device in devices for message in device.sent[-REPLAYS // DEVICES:]]
        for kind in (CON, NON):
            for device, message in old:
                again = message.copy(mtype=kind, mid=random.randrange(65_536), token=random.randbytes(6))
                wire.transport.sendto(again.encode())
                self.replayed += 1
        after_replay = []
        for device in devices:
            device.counter += 1
            payload = str(device.counter).encode()
            answer = None
            for _ in range(20):
                answer = await device.request(wire, codes.PUT, 2.0, payload=payload)
                if answer is not None and answer.code.is_successful():
                    break
            came = answer is not None and answer.code.is_successful()
            device.acknowledged = device.counter if came else device.acknowledged
            self.report.check(f"power cuts: device {device.number} gets back in", None if came else f"{answer}")
            after_replay.append((device.topic, payload))
        wire.transport.close()

        async def all_seen():
            while {(message.topic, message.payload) for message in seen} < set(after_replay):
                await asyncio.sleep(0.02)
        try:
            await within(all_seen(), PATIENCE)
        except TimeoutError:
            pass
        came = sorted({(message.topic, message.payload) for message in seen})
        self.report.check("power cuts: no replay is carried out", None if came == sorted(set(after_replay)) else
                          f"{came} came, {after_replay} was sent anew")
        await follower.close()
        await warden.close()


async def run_powercut(arguments, report):
    try:
        await Cuts(arguments, report).run()
    except Exception as error:
        report.check("power cuts", f"{type(error).__name__}: {error}")
