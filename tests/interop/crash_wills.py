"""Wills over crashes (MQTT 5.0 §3.1.2.5, §3.1.3.2.2): that of a client whose connection the crash has ended, or whose
delay was not over, is published once, in this life or a later one; that of a client that said DISCONNECT, or that came
back before the delay was over, is never published."""

import asyncio
import random

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from client import PATIENCE, Refused
from clients_mqtt import TCP, Connection
from crash_witness import SESSION_SECONDS, Witness
from patience import within

TOPIC = "crash-wills"
DELAYS = (0, 1, 2)
"""Seconds; a life is shorter or longer than these."""
LONG_DELAY = 100_000


class Wills(Witness):
    """Clients with a will each, and a session that is away and gets all wills."""

    name = "a will is published once after the crash, and never after DISCONNECT or a return"

    def __init__(self, ending):
        super().__init__(ending)
        self.number = 0
        self.due: set[str] = set()
        """Wills that have to come."""
        self.void: set[str] = set()
        """Wills that must not come."""
        self.missed: list[str] = []
        """Clients that may come back before the delay of their will is over."""
        self.came: list[str] = []
        self.connections: list[Connection] = []

    def _heir(self, gateway):
        connection = Connection(gateway, paho.MQTTv5, TCP, client_id="heir", clean=False, expiry=SESSION_SECONDS)
        connection.on_message = lambda message: self.came.append(message.payload.decode())
        return connection

    async def begin(self, gateway):
        heir = self._heir(gateway)
        await heir.open()
        await heir.subscribe(TOPIC, 2)
        await heir.close()

    async def _connect(self, gateway, client, delay_s=None):
        """Connects, with a will that names the client if there is a delay."""
        will = None
        if delay_s is not None:
            properties = Properties(PacketTypes.WILLMESSAGE)
            properties.WillDelayInterval = delay_s
            will = {"topic": TOPIC, "payload": client, "qos": 2, "properties": properties}
        connection = Connection(
            gateway, paho.MQTTv5, TCP, client_id=client, clean=False, expiry=SESSION_SECONDS, will=will)
        await connection.open()
        self.connections.append(connection)
        return connection

    async def open(self, gateway):
        self.number += 1
        self.connections = []
        ways = (self._mourned, self._lost, self._excused, self._returning)
        for outcome in await asyncio.gather(*(way(gateway) for way in ways), return_exceptions=True):
            is_refused = isinstance(outcome, Refused) and self.ending.may_be_refused
            if isinstance(outcome, BaseException) and not is_refused:
                raise outcome

    async def _mourned(self, gateway):
        """It is connected when the gateway is killed."""
        client = f"mourned-{self.number}"
        await self._connect(gateway, client, random.choice(DELAYS))
        self.due.add(client)

    async def _lost(self, gateway):
        """It is gone without DISCONNECT when the gateway is killed, and the delay is over or not."""
        client = f"lost-{self.number}"
        connection = await self._connect(gateway, client, random.choice(DELAYS))
        self.due.add(client)
        await asyncio.to_thread(connection.client.loop_stop)
        connection.client.socket().close()

    async def _excused(self, gateway):
        """It has said DISCONNECT, which the gateway has heard before it lets the client in again."""
        client = f"excused-{self.number}"
        connection = await self._connect(gateway, client, 0)
        await connection.close()
        self.void.add(client)
        await (await self._connect(gateway, client)).close()

    async def _returning(self, gateway):
        """It is connected when the gateway is killed, and comes back in the next life."""
        client = f"returning-{self.number}"
        await self._connect(gateway, client, LONG_DELAY)
        self.missed.append(client)

    async def close(self):
        for connection in self.connections:
            await asyncio.to_thread(connection.client.loop_stop)

    async def judge(self, gateway):
        for client in self.missed:
            await (await self._connect(gateway, client)).close()
            self.void.add(client)
        self.missed.clear()

    async def last(self, gateway):
        heir = self._heir(gateway)
        flags, _ = await heir.open()
        if not flags.session_present:
            return "the session that is to get the wills is gone"

        async def all_came():
            # A disk that refuses a will's deliveries costs it (ADR 0042).
            while not self.due <= set(self.came) and not self.ending.may_be_refused:
                await asyncio.sleep(0.05)
        try:
            await within(all_came(), PATIENCE)
        except TimeoutError:
            return f"{sorted(self.due - set(self.came))} did not come"
        # Behind all that were published before.
        came = asyncio.get_running_loop().create_future()
        heir.on_message = lambda message: (self.came.append(message.payload.decode()), came.done() or
                                           message.payload != b"fence" or came.set_result(None))
        await heir.publish(TOPIC, b"fence", 1)
        await within(came, PATIENCE)
        await heir.close()
        self.came.remove("fence")
        twice = sorted(client for client in set(self.came) if self.came.count(client) > 1)
        if twice:
            return f"{twice} came twice"
        if self.void & set(self.came):
            return f"{sorted(self.void & set(self.came))} came, though the client had said DISCONNECT or was back"
        return None
