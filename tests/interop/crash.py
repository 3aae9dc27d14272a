"""Crashes: `kill -9` at a random moment while clients of every door write, again and again on one data directory.

Properties of all lives of the gateway, at its default durability (discard.py has others, and takes away what was not
synchronised):
- the kept value of a topic is the last that was acknowledged, or one whose acknowledgement the crash has cut off;
- a session that is away is delivered every acknowledged message in the order of its topic, once if it was sent once;
- a session that comes back in each life is delivered the same, of QoS 2 nothing twice and all in order;
- a session that was ended does not come back; every start works;
- what its witnesses say about subscriptions, wills, event streams and observers.
"""

import asyncio
import logging
import os
import random
import tempfile
from collections import defaultdict, deque

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from client import PATIENCE, Refused, run
from clients_coap import Aiocoap
from clients_mqtt import TCP, Connection
from clients_xmpp import Slixmpp
from crash_followers import Events, Observer
from crash_subscriptions import USER, Filters, Nodes
from crash_wills import Wills
from crash_witness import SESSION_SECONDS
from gateway import Gateway
from patience import rest, within
from scenarios import HttpDoor

KILLS = int(os.environ.get("FOGMUX_KILLS", "10"))
LIFE_SECONDS = (0.2, 1.2)
TOPICS = 8
"""Topics of each door; each has one writer."""
WINDOW = 20
"""Messages that a publisher of MQTT has under way."""
QUEUES = "[mqtt]\nqueue_messages_max = 10000000\nqueue_bytes_max = \"4GiB\"\n"
ROUTE = "crash/#"


class Topic:
    """What was written to a topic; the values count up, None clears."""

    qos = 1

    def __init__(self, name, ending):
        self.name, self.number, self.ending = name, 0, ending
        self.value: int | None = None
        self.unknown: list[int | None] = []
        self.acknowledged: set[int] = set()
        self.refused: set[int | None] = set()

    async def write(self, client):
        """Writes until it is cancelled."""
        while True:
            self.number += 1
            value = None if self.value is not None and self.number % 8 == 0 else self.number
            self.unknown.append(value)
            try:
                await self._write(client, value)
                self.value = value
                self.unknown.clear()
            except Refused as refused:
                if not self.ending.may_be_refused or refused.code == "stream closed":
                    raise
                if not self.ending.may_halve:
                    self.unknown.remove(value)
                    self.refused.add(value)

    async def _write(self, client, value):
        if value is None:
            await client.clear(self.name)
        else:
            await client.publish(self.name, str(value).encode(), "text/plain;charset=utf-8")
            self.acknowledged.add(value)

    def judge(self, kept: int | None) -> str | None:
        """What is wrong with the value after a crash; it is the last one from now on."""
        allowed = [self.value, *self.unknown]
        if kept not in allowed:
            return f"{self.name} has {kept}, and not one of {allowed}"
        self.value, self.unknown = kept, []
        return None


class Publisher:
    """A publisher of MQTT whose session outlives the gateway; its messages are not retained."""

    def __init__(self, qos, ending):
        self.qos, self.number, self.ending = qos, 0, ending
        self.name = f"crash/mqtt/{qos}"
        self.under_way: dict[int, int] = {}
        self.sent_before: set[int] = set()
        """Those that were under way at the end of a life: they may have been taken, and be refused when sent again."""
        self.acknowledged: set[int] = set()
        self.refused: set[int] = set()
        # Only 5.0 has a word for a refusal.
        self.client = persistent(f"publisher-{qos}", paho.MQTTv5 if ending.may_be_refused else paho.MQTTv311)
        self.client.max_inflight_messages_set(WINDOW)
        # Called by paho's thread, which holds its locks.
        self.published: deque[tuple[int, bool]] = deque()
        self.client.on_publish = lambda client, data, mid, reason, _: self.published.append((mid, reason.is_failure))

    def note(self):
        """Takes note of what has been acknowledged."""
        while self.published:
            mid, is_refused = self.published.popleft()
            number = self.under_way.pop(mid)
            if not is_refused:
                self.acknowledged.add(number)
            elif self.qos == 1 and number not in self.sent_before and not self.ending.may_return:
                # Paho answers a PUBREC that refuses with PUBREL, whose reason code says nothing about the message.
                self.refused.add(number)

    async def write(self):
        """Writes until it is cancelled."""
        while True:
            self.note()
            while len(self.under_way) < WINDOW:
                self.number += 1
                sent = self.client.publish(self.name, str(self.number), self.qos)
                self.under_way[sent.mid] = self.number
            await asyncio.sleep(0.001)


class Session:
    """A subscriber of MQTT with QoS 2 whose session outlives the gateway."""

    def __init__(self, name, is_away):
        self.name, self.is_away, self.client = name, is_away, persistent(name)
        self.got: dict[str, list[int]] = defaultdict(list)
        self.client.on_message = lambda client, data, message: self._arrived(message)

    def _arrived(self, message):
        if message.payload:
            self.got[message.topic].append(int(message.payload))

    def lacks(self, written) -> str | None:
        """What of the acknowledged messages has not come."""
        for one in written:
            missing = one.acknowledged - set(self.got[one.name])
            if missing:
                return f"{len(missing)} messages of {one.name} for {self.name}, the first is {min(missing)}"
        return None

    def judge(self, written) -> str | None:
        """What is wrong with that which came."""
        for one in written:
            got = self.got[one.name]
            if got and max(got) > one.number:
                return f"{self.name} got {max(got)} of {one.name}, which nobody sent"
            # A connected one is sent a message before the disk has answered.
            if self.is_away and one.refused & set(got):
                return f"{self.name} got {min(one.refused & set(got))} of {one.name}, which was refused"
            # Of QoS 1, which the other doors have as well, what a crash cuts off is sent again.
            is_once = one.qos == 2 or self.is_away and not isinstance(one, Publisher)
            # A refusal of which its publisher does not hear is one that it repeats, behind what was taken since.
            is_ordered = one.ending.may_be_refused or got == sorted(got)
            if is_once and not (is_ordered and len(got) == len(set(got))):
                first = next(at for at, number in enumerate(got) if at and number <= got[at - 1])
                about = got[max(0, first - 3):first + 3]
                return f"{self.name} got messages of {one.name} twice or out of order: {about}"
        return self.lacks(written)


def persistent(name, version=paho.MQTTv311):
    """A client whose session stays."""
    clean = {"clean_session": False} if version == paho.MQTTv311 else {}
    return paho.Client(paho.CallbackAPIVersion.VERSION2, name, protocol=version, reconnect_on_failure=False, **clean)


async def join(client, gateway, is_new, subscribe=False):
    """Connects a client with the session that it had."""
    loop = asyncio.get_running_loop()
    connected, granted = loop.create_future(), loop.create_future()

    def settle(future, value):
        loop.call_soon_threadsafe(lambda: future.done() or future.set_result(value))
    client.on_connect = lambda c, data, flags, reason, properties: settle(connected, (flags, reason))
    client.on_subscribe = lambda c, data, mid, reasons, properties: settle(granted, reasons)
    host, port = gateway.mqtt_address(TCP)
    stays = {}
    if client.protocol == paho.MQTTv5:
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = SESSION_SECONDS
        stays = {"clean_start": False, "properties": properties}
    await asyncio.to_thread(client.connect, host, port, 60, **stays)
    client.loop_start()
    flags, reason = await within(connected, PATIENCE)
    if reason.is_failure or flags.session_present == is_new:
        raise AssertionError(f"{client._client_id}: {reason}, session present {flags.session_present}")
    if subscribe:
        client.subscribe(ROUTE, 2)
        await within(granted, PATIENCE)


async def leave(client):
    client.disconnect()
    await asyncio.to_thread(client.loop_stop)


class Kill:
    """The end of each life: `kill -9`."""

    name, kills, config = "crashes", KILLS, ""
    may_be_refused = may_return = may_halve = False
    """Whether writes may be refused, whether what was refused may be there after the end, and whether a part of it may:
    the kept value of a topic, its copies for sessions and a subscription are records of different commits, of which the
    disk may take one and not the other (docs/store.md)."""

    def __init__(self, binary, data):
        self.binary, self.data = binary, data

    async def prepare(self):
        """Before the first life."""
        name, password = USER
        code, out, err = await run(
            self.binary, "passwd", "--data", self.data, name, stdin=f"{password}\n".encode())
        if code != 0:
            raise AssertionError(f"fogmux passwd: {out} {err}")

    async def start(self):
        """The next life, not entered yet."""
        return Gateway(self.binary, f"{QUEUES}{self.config}", self.data)

    def meanwhile(self):
        """Called when all clients write."""

    async def end(self, gateway):
        """Called at a random moment."""
        await gateway.kill()

    def check(self, report):
        """Called after the last life."""


class Crashes:
    """All lives of one data directory."""

    def __init__(self, ending, report):
        self.ending, self.report = ending, report
        self.doors = [Aiocoap, HttpDoor, Slixmpp]
        self.topics = [[Topic(f"crash/{kind.door}/{n}", ending) for n in range(TOPICS)] for kind in self.doors]
        self.publishers = [Publisher(1, ending), Publisher(2, ending)]
        self.live, self.away = Session("live", is_away=False), Session("away", is_away=True)
        http_topics = [topic.name for topic in self.topics[self.doors.index(HttpDoor)]]
        self.witnesses = [Filters(ending), Nodes(ending), Wills(ending), Events(ending, http_topics), Observer(ending)]
        self.ended = 0

    def check(self, what, problem):
        return self.report.check(f"{self.ending.name}: {what}", problem)

    def written(self):
        return [*(topic for topics in self.topics for topic in topics), *self.publishers]

    async def run(self):
        await self.ending.prepare()
        async with await self.ending.start() as gateway:
            await join(self.away.client, gateway, is_new=True, subscribe=True)
            await leave(self.away.client)
            for witness in self.witnesses:
                await witness.begin(gateway)
            await self.life(gateway, is_first=True)
        for _ in range(self.ending.kills - 1):
            async with await self.ending.start() as gateway:
                await self.judge(gateway)
                await self.life(gateway, is_first=False)
        async with await self.ending.start() as gateway:
            await self.judge(gateway)
            await self.last(gateway)
        self.ending.check(self.report)
        count = sum(len(one.acknowledged) for one in self.written())
        refused = sum(len(one.refused) for one in self.written())
        clears = sum(topic.number // 8 for topics in self.topics for topic in topics)
        print(f"  {self.ending.kills} {self.ending.name}: {count} messages acknowledged, {refused} refused, about "
              f"{clears} topics cleared, {self.ended} sessions ended", flush=True)

    async def life(self, gateway, is_first):
        """Everybody writes until the gateway is killed."""
        clients = [kind(gateway) for kind in self.doors]
        for client in clients:
            await client.open()
        for publisher in self.publishers:
            await join(publisher.client, gateway, is_new=is_first)
        await join(self.live.client, gateway, is_new=is_first, subscribe=is_first)
        await self.end_a_session(gateway)
        await asyncio.gather(*(witness.open(gateway) for witness in self.witnesses))
        writers = [topic.write(client) for client, topics in zip(clients, self.topics) for topic in topics]
        writers += [publisher.write() for publisher in self.publishers]
        writers += [witness.write() for witness in self.witnesses]
        tasks = [asyncio.create_task(writer) for writer in writers]
        self.ending.meanwhile()
        await rest(random.uniform(*LIFE_SECONDS))
        failed = [error for task in tasks if task.done() and (error := task.exception())]
        self.check("every write is taken", None if not failed else f"{failed}")
        await self.ending.end(gateway)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in [*(publisher.client for publisher in self.publishers), self.live.client]:
            await asyncio.to_thread(client.loop_stop)
        for publisher in self.publishers:
            publisher.note()
            publisher.sent_before.update(publisher.under_way.values())
        for client in [*clients, *self.witnesses]:
            try:
                await within(client.close(), 5)
            except Exception:
                # Its peer is dead.
                pass

    async def end_a_session(self, gateway):
        """One that is there, and is ended by a clean start."""
        for clean in (False, True):
            connection = Connection(gateway, paho.MQTTv311, TCP, client_id=f"ended-{self.ended}", clean=clean)
            await connection.open()
            if not clean:
                await connection.subscribe(ROUTE)
            await connection.close()
        self.ended += 1

    async def judge(self, gateway):
        """Looks at everything that is kept."""
        http = HttpDoor(gateway)
        await http.open()
        for topics in self.topics:
            for topic in topics:
                kept = await http.get(topic.name)
                self.check("what was acknowledged is kept",
                                  topic.judge(None if kept is None else int(kept.payload)))
        await http.close()
        connection = Connection(gateway, paho.MQTTv311, TCP, client_id=f"ended-{self.ended - 1}", clean=False)
        flags, _ = await connection.open()
        self.check("a session that was ended is gone",
                          "it is there" if flags.session_present else None)
        await connection.close()
        for witness, problem in zip(self.witnesses, await asyncio.gather(
                *(witness.judge(gateway) for witness in self.witnesses))):
            self.check(witness.name, problem)

    async def last(self, gateway):
        """What is owed is delivered."""
        for publisher in self.publishers:
            await join(publisher.client, gateway, is_new=False)
        for session in (self.live, self.away):
            await join(session.client, gateway, is_new=False)

        async def all_there():
            while any(publisher.under_way for publisher in self.publishers) or any(
                    session.lacks(self.written()) for session in (self.live, self.away)):
                await asyncio.sleep(0.2)
                for publisher in self.publishers:
                    publisher.note()
        try:
            await within(all_there(), PATIENCE + 5 * self.ending.kills)
        except TimeoutError:
            pass
        for publisher in self.publishers:
            self.check("every message of MQTT is acknowledged at last",
                              f"{len(publisher.under_way)} are not" if publisher.under_way else None)
        for session in (self.live, self.away):
            self.check(f"the session that is {session.name}", session.judge(self.written()))
        for witness in self.witnesses:
            self.check(witness.name, await witness.last(gateway))
        for client in [*(publisher.client for publisher in self.publishers), self.live.client, self.away.client]:
            await leave(client)


def silence_clients():
    """They log each message that they cannot send because their peer is dead."""
    for name in ("slixmpp", "coap"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


async def run_crash(arguments, report):
    silence_clients()
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data:
        try:
            await Crashes(Kill(arguments.bin, data), report).run()
        except Exception as error:
            report.check("crashes", f"{type(error).__name__}: {error}")
