"""Subscriptions over crashes: what SUBACK and the result of XEP-0060's subscribe have granted is there afterwards, and
what UNSUBACK and the result of unsubscribe have ended is not."""

import asyncio
import json
import random

import paho.mqtt.client as paho

from client import PATIENCE, Missing, Refused
from clients_mqtt import TCP, Connection
from clients_xmpp import Slixmpp
from crash_witness import SESSION_SECONDS, Membership, Witness
from patience import within
from scenarios import HttpDoor

COUNT = 8
"""Filters, and nodes."""
USER = ("ada", "ada's password")
"""The subscriptions of anonymous accounts of XMPP end with their stream."""
PAUSE = 0.01
"""Seconds after an answer before the next change."""


async def publish_all(gateway, topics, payload):
    """Publishes to all of them in this order, with QoS 2."""
    http = HttpDoor(gateway)
    await http.open()
    lines = "".join(json.dumps({"topic": topic, "payload": payload, "qos": 2}) + "\n" for topic in topics)
    status, _, body = await http.request(
        "POST", "/publish", [("content-type", "application/x-ndjson")], lines.encode())
    await http.close()
    answers = [json.loads(line)["status"] for line in body.splitlines()]
    if status != 200 or any(answer != 202 for answer in answers):
        raise AssertionError(f"POST /publish: {status} {answers}")


class Filters(Witness):
    """A session of MQTT that subscribes and unsubscribes all the time."""

    name = "filters of MQTT are there when SUBACK came, and gone when UNSUBACK came"
    fence = "crash-filters/fence"

    def __init__(self, ending):
        super().__init__(ending)
        self.filters = Membership(f"crash-filters/{number}" for number in range(COUNT))
        self.qos: dict[str, int] = {}
        self.rounds = 0

    async def _connect(self, gateway, is_new=False):
        connection = Connection(
            gateway, paho.MQTTv5, TCP, client_id="filters", clean=False, expiry=SESSION_SECONDS)
        flags, _ = await connection.open()
        if flags.session_present == is_new:
            raise AssertionError(f"filters: session present {flags.session_present}")
        return connection

    async def begin(self, gateway):
        connection = await self._connect(gateway, is_new=True)
        await connection.subscribe(self.fence, 2)
        await connection.close()

    async def open(self, gateway):
        self.gateway, self.connection = gateway, await self._connect(gateway)

    async def write(self):
        while True:
            name = random.choice(list(self.filters.present))
            self.filters.begin(name)
            try:
                await self._change(name)
            except Refused as refused:
                if not self.ending.may_be_refused:
                    raise
                await self._refused(name, refused)
            await asyncio.sleep(PAUSE)

    async def _change(self, name):
        # A second SUBSCRIBE changes the granted QoS.
        if self.filters.present[name] and random.random() < 0.7:
            await self.connection.unsubscribe(name)
            self.filters.done(name, False)
        else:
            qos = random.choice((1, 2))
            self.qos.pop(name, None)
            await self.connection.subscribe(name, qos)
            self.filters.done(name, True)
            self.qos[name] = qos

    async def _refused(self, name, refused):
        if refused.code == "0x97" and not self.ending.may_halve:
            self.filters.refused(name)
        if not refused.code.startswith("0x"):
            # An UNSUBACK that the disk does not allow ends the connection.
            await self.close()
            self.connection = await self._connect(self.gateway)

    async def close(self):
        await asyncio.to_thread(self.connection.client.loop_stop)

    async def judge(self, gateway):
        connection, came, fence = await self._connect(gateway), {}, asyncio.get_running_loop().create_future()
        self.rounds += 1
        mark = str(self.rounds)

        def arrived(message):
            # Those of a round before may come again, whatever has become of their filter.
            if message.payload.decode() != mark:
                return
            came.setdefault(message.topic, []).append(message.qos)
            if message.topic == self.fence and not fence.done():
                fence.set_result(None)
        connection.on_message = arrived
        await publish_all(gateway, [*self.filters.present, self.fence], mark)
        try:
            await within(fence, PATIENCE)
        except TimeoutError:
            return f"no message by {self.fence}, which was subscribed before the first life"
        finally:
            await connection.close()
        for name, qos in self.qos.items():
            if name in came and name not in self.filters.doubtful and came[name] != [qos]:
                return f"{name} was granted QoS {qos}, and messages came with {came[name]}"
        self.qos.clear()
        return self.filters.judge(set(came) - {self.fence})


class Nodes(Witness):
    """An account of XMPP that subscribes and unsubscribes all the time, by its bare address."""

    name = "subscriptions of XMPP are there when they were granted, and gone when they were ended"
    fence = "crash-nodes/fence"

    def __init__(self, ending):
        super().__init__(ending)
        self.nodes = Membership(f"crash-nodes/{number}" for number in range(COUNT))

    async def _connect(self, gateway):
        client = Slixmpp(gateway)
        client.user, client.mechanism = USER, "SCRAM-SHA-256"
        await client.open()
        return client

    async def begin(self, gateway):
        client = await self._connect(gateway)
        await client.follow(self.fence)
        await client.close()

    async def open(self, gateway):
        self.client = await self._connect(gateway)

    async def write(self):
        while True:
            name = random.choice(list(self.nodes.present))
            wanted = not self.nodes.present[name]
            pubsub, service = self.client.pubsub, self.client.service
            change = pubsub.subscribe if wanted else pubsub.unsubscribe
            self.nodes.begin(name)
            try:
                await self.client.ask(change(service, name, timeout=PATIENCE))
                self.nodes.done(name, wanted)
            except Refused:
                if not self.ending.may_be_refused:
                    raise
                if not self.ending.may_return:
                    self.nodes.refused(name)
            await asyncio.sleep(PAUSE)

    async def close(self):
        self.client.client.abort()

    async def judge(self, gateway):
        client = await self._connect(gateway)
        try:
            answer = await client.ask(client.pubsub.get_subscriptions(client.service, timeout=PATIENCE))
            listed = {one["node"] for one in answer["pubsub"]["subscriptions"]}
            await publish_all(gateway, [*self.nodes.present, self.fence], "here")
            await client.next(self.fence)
            came = {name for name in [*self.nodes.present, self.fence] if not client._inbox[name].empty()}
        except Missing as missing:
            return str(missing)
        finally:
            await client.close()
        if listed - {self.fence} != came:
            return f"{listed} are listed, and notifications came from {came}"
        return self.nodes.judge(came)
