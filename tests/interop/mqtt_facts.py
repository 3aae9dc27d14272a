"""Eight clients of MQTT by others, and for each the same facts: one check, and one line, of each."""

import asyncio
import json
import tempfile
import time
import urllib.request

import paho.mqtt.client as paho

from client import PATIENCE, Refused
from clients_coap import Aiocoap
from clients_mqtt import TCP, Connection
from gateway import Gateway
from mqtt_peer import PAUSE_SECONDS
from mqtt_programs import PROGRAMS
from patience import within
from relay import Relay
from scenarios import HttpDoor, Unmet, expect, require, until

MESSAGES = 40
SESSION_SECONDS = 3600
END = "end"
"""The payload of the message behind all others: until it comes, one that is sent twice has come twice."""


def numbered(word) -> list[str]:
    return [f"{word} {number}" for number in range(MESSAGES)]


def labelled(program) -> str:
    return f"{program.name} {program.version}"


class Table:
    """All programs against two gateways: one is restarted, and so has an authority that the other's clients refuse."""

    def __init__(self, binary, data, report):
        self.binary, self.data, self.report = binary, data, report
        self.other = asyncio.get_running_loop().create_future()

    async def check(self, program, fact, awaitable):
        problem, began = None, time.monotonic()
        try:
            await within(awaitable, 2 * PATIENCE)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        if self.report.check(f"{labelled(program)}: {fact}", problem):
            print(f"  {labelled(program)}: {fact}: ok in {time.monotonic() - began:.1f} s", flush=True)

    async def run(self, kinds):
        programs = [kind() for kind in kinds]
        await asyncio.gather(*(self.start(program) for program in programs))
        programs = [program for program in programs if program.version]
        try:
            async with Gateway(self.binary) as gateway:
                self.http, self.coap = HttpDoor(gateway), Aiocoap(gateway)
                await asyncio.gather(self.http.open(), self.coap.open())
                await asyncio.gather(self.restarts(programs), *(self.facts(one, gateway) for one in programs))
                # The process ends with it.
                await asyncio.gather(*(self.check(one, "its will is at other doors when it is killed",
                                                  self.will(one, gateway)) for one in programs))
                await asyncio.gather(self.http.close(), self.coap.close())
        finally:
            await asyncio.gather(*(program.__aexit__(None, None, None) for program in programs))

    async def start(self, program):
        try:
            await program.__aenter__()
        except Exception as error:
            self.report.check(f"{program.name} starts", f"{type(error).__name__}: {error}")

    async def facts(self, program, gateway):
        await self.check(program, "QoS 2 both ways, once each", exactly_once(program, gateway))
        await self.check(program, "a shared subscription of two", shared(program, gateway))
        if program.has_websocket:
            await self.check(program, "WebSocket", echo(program, gateway, "ws"))
        else:
            print(f"  {labelled(program)}: WebSocket: it has none", flush=True)
        await self.check(program, "TLS, and no other authority's certificate", self.authority(program, gateway))

    async def authority(self, program, gateway):
        await echo(program, gateway, "tls")
        try:
            await program.open("stranger", gateway, f"{program.name}-stranger", "tls", ca=await self.other)
        except Refused as refused:
            words = ("certificate", "certification path", "unknownissuer")
            require("refused for the certificate:", any(word in str(refused).lower() for word in words), refused)
        else:
            raise Unmet("it connects to a gateway whose authority it does not know")

    async def restarts(self, programs):
        """All sessions live through the same two restarts."""
        async with Gateway(self.binary, data=self.data) as gateway:
            self.other.set_result(gateway.ca)
            await asyncio.gather(*(self.check(program, "a session that is to stay begins", begin(program, gateway))
                                   for program in programs))
            await absent(programs, gateway, "before SIGTERM")
            await gateway.terminate()
        async with Gateway(self.binary, data=self.data) as gateway:
            await asyncio.gather(*(self.check(program, "its session resumes after SIGTERM", resume(
                program, gateway, "before SIGTERM")) for program in programs))
            await absent(programs, gateway, "before kill -9")
            returning = [program for program in programs if program.returns_amid_qos2]
            for program in programs:
                if program not in returning:
                    print(f"  {labelled(program)}: it connects again: not amid QoS 2", flush=True)
            flow = await Flow.begin(returning, gateway)
            flow.relay.hold()
            await gateway.kill()
        async with Gateway(self.binary, data=self.data) as gateway:
            await flow.go_on(gateway)
            await asyncio.gather(*(self.check(program, "its session resumes after kill -9", resume(
                program, gateway, "before kill -9")) for program in programs))
            await asyncio.gather(*(self.check(program, "it connects again, and lacks nothing of QoS 2",
                                              flow.judge(program)) for program in returning))
            await flow.end()

    async def will(self, program, gateway):
        topic = f"will/{program.name}"
        await program.open("dying", gateway, f"{program.name}-dying", will={"topic": topic, "data": "gone"})
        expect("before", await self.http.get(topic), None)
        await program.kill()
        for door in (self.http, self.coap):
            async def there(door=door):
                return await door.get(topic)
            expect(f"at {door.name}", (await until(f"the will at {door.name}", there)).payload, b"gone")


class Reference:
    """A client whose messages and inbox the facts are measured by, as a context."""

    def __init__(self, gateway):
        self.connection, self.got = Connection(gateway, paho.MQTTv5, TCP), []
        self.connection.on_message = lambda message: self.got.append((message.payload.decode(), message.qos))

    async def __aenter__(self):
        await self.connection.open()
        return self

    async def __aexit__(self, *_):
        await self.connection.close()

    async def publish(self, topic, payloads, qos):
        await asyncio.gather(*(self.connection.publish(topic, payload.encode(), qos) for payload in payloads))


async def holds(what, condition, got):
    """Waits for a condition on what comes, and says what came where it never holds."""
    async def asked():
        return condition()
    try:
        await until(what, asked)
    except Unmet as unmet:
        raise Unmet(f"{unmet}; of {len(got)} messages the last are {got[-3:]}") from None


async def exactly_once(program, gateway):
    there, back = f"once/{program.name}/there", f"once/{program.name}/back"
    async with Reference(gateway) as reference:
        await program.open("once", gateway, f"{program.name}-once")
        await program.subscribe("once", there, 2)
        await reference.connection.subscribe(back, 2)
        await asyncio.gather(program.publish("once", back, numbered("back"), 2),
                             reference.publish(there, numbered("there"), 2))
        await program.publish("once", back, [END], 2)
        await reference.publish(there, [END], 2)
        for what, got, word in (("from it", reference.got, "back"), ("to it", program.got["once"], "there")):
            await holds(f"the last {what}", lambda got=got: (END, 2) in got, got)
            expect(what, got, [(payload, 2) for payload in [*numbered(word), END]])
    await program.close("once")


async def shared(program, gateway):
    topic, members = f"shared/{program.name}", ("first", "second")
    inboxes = [program.got[member] for member in members]
    for member in members:
        await program.open(member, gateway, f"{program.name}-{member}")
        await program.subscribe(member, f"$share/{program.name}/{topic}", 1)
    async with Reference(gateway) as reference:
        await reference.publish(topic, numbered("shared"), 1)
        # One for each member: the members take turns.
        await reference.publish(topic, [END, END], 1)
    await holds("all of them", lambda: sum(map(len, inboxes)) >= MESSAGES + 2, sum(inboxes, []))
    came = sorted(payload for inbox in inboxes for payload, _ in inbox)
    expect("each to one", came, sorted([*numbered("shared"), END, END]))
    require("both have their share:", all(inboxes), [len(inbox) for inbox in inboxes])
    for member in members:
        await program.close(member)


async def echo(program, gateway, transport):
    """Its own messages come back to it."""
    topic, got = f"{transport}/{program.name}", program.got[transport]
    await program.open(transport, gateway, f"{program.name}-{transport}", transport)
    await program.subscribe(transport, topic, 1)
    await program.publish(transport, topic, numbered("echo"), 1)
    await holds("all of them", lambda: len(got) >= MESSAGES, got)
    expect("in order", [payload for payload, _ in got], numbered("echo"))
    await program.close(transport)


async def begin(program, gateway):
    session = await program.open("stays", gateway, f"{program.name}-stays", expiry=SESSION_SECONDS)
    require("it is new:", not session)
    await program.subscribe("stays", f"stays/{program.name}/+", 2)
    await program.close("stays")


async def absent(programs, gateway, word):
    """Messages for sessions whose clients are away."""
    async with Reference(gateway) as reference:
        await asyncio.gather(*(reference.publish(f"stays/{program.name}/{qos}", numbered(word), qos)
                               for program in programs for qos in (1, 2)))


async def resume(program, gateway, word):
    got = program.got["stays"]
    got.clear()
    session = await program.open("stays", gateway, f"{program.name}-stays", expiry=SESSION_SECONDS)
    require("session present:", session or not program.shows_session, session)

    def of(qos):
        return [payload for payload, granted in got if granted == qos]
    await holds("all that was queued", lambda: set(numbered(word)) <= set(of(1)) & set(of(2)), got)
    async with Reference(gateway) as reference:
        await reference.publish(f"stays/{program.name}/2", [END], 2)
    await holds("what comes after", lambda: END in of(2), got)
    expect("of QoS 2, once each", of(2), [*numbered(word), END])
    # Some clients cannot connect again amid an exchange of QoS 2.
    await until("PUBCOMP of the last", lambda: is_over(gateway, f"{program.name}-stays"))
    await program.close("stays")


async def is_over(gateway, client) -> bool:
    """Whether the session has no message in flight."""
    def asked():
        with urllib.request.urlopen(f"{gateway.http_base(secure=False)}/api/v1/sessions?limit=1000") as answer:
            return json.load(answer)["sessions"]
    return any(one["client"] == client and one["inflight"] == 0 for one in await asyncio.to_thread(asked))


class Flow:
    """Messages of QoS 2 that are under way to clients when the gateway is killed; they connect again by themselves."""

    @classmethod
    async def begin(cls, programs, gateway):
        """Returns in the midst of it."""
        self = cls()
        self.relay = await Relay(gateway).__aenter__()
        for program in programs:
            await program.open("returns", self.relay, f"{program.name}-returns", expiry=SESSION_SECONDS, returns=True)
            await program.subscribe("returns", f"returns/{program.name}", 2)
        publisher = Connection(self.relay, paho.MQTTv5, TCP, client_id="flow", clean=False, expiry=SESSION_SECONDS,
                               returns=True)
        publisher.client.reconnect_delay_set(PAUSE_SECONDS, PAUSE_SECONDS)
        await publisher.open()
        self.publisher, self.programs, self.sent = publisher, programs, []
        self.send(numbered("flow"))

        async def half():
            return len(publisher.early) > len(self.sent) // 2
        await until("half of the flow", half)
        return self

    def send(self, payloads):
        self.sent += [self.publisher.client.publish(f"returns/{program.name}", payload, 2)
                      for payload in payloads for program in self.programs]

    async def go_on(self, gateway):
        self.relay.gateway.set_result(gateway)

        async def every():
            return all(one.mid in self.publisher.early for one in self.sent)
        await until("the publisher has every acknowledgement", every)
        # Only now: a message that paho is given while it has no connection overtakes others.
        self.send([END])
        await until("the publisher has the last acknowledgement", every)

    async def judge(self, program):
        got = program.got["returns"]
        await holds("all of them", lambda: {END, *numbered("flow")} <= {payload for payload, _ in got}, got)
        if program.keeps_identifiers:
            expect("once each", got, [(payload, 2) for payload in [*numbered("flow"), END]])

    async def end(self):
        await self.publisher.close()
        await asyncio.gather(*(program.close("returns") for program in self.programs))
        await self.relay.__aexit__()


async def run_clients(arguments, report):
    kinds = [kind for kind in PROGRAMS if not arguments.client or any(word in kind.name for word in arguments.client)]
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data:
        try:
            await Table(arguments.bin, data, report).run(kinds)
        except Exception as error:
            report.check("clients of MQTT", f"{type(error).__name__}: {error}")
