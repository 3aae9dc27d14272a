"""Disks that become read-only or stall below a running gateway, as the recorder (disk/recorder.c) shows them to it."""

import asyncio
import tempfile

import paho.mqtt.client as paho

from client import PATIENCE, Refused
from clients_coap import Aiocoap
from clients_http import Httpx
from clients_mqtt import TCP, Connection
from clients_xmpp import Slixmpp
from disk.recorder import Recorder
from gateway import Gateway
from patience import within
from requests_http import H2C
from scenarios import Doors, HttpDoor, MqttDoor, expect, require, scenario, until

TEXT = "text/plain;charset=utf-8"
REFUSALS = {"mqtt": "0x97", "coap": "5.03", "http": "507", "xmpp": "resource-constraint"}
SESSION_SECONDS = 1_000_000


async def refused(what, request):
    """The code with which it is refused."""
    try:
        await request
    except Refused as refusal:
        return refusal.code
    require(f"{what} is refused", False)


async def every_refusal(doors, what, request):
    """Each door says it in its own word."""
    for door in doors:
        expect(f"{door.name}: {what}", await refused(what, request(door)), REFUSALS[door.door])


def session(gateway, client, version=paho.MQTTv5):
    """A client whose session outlives its connection and the process."""
    return Connection(gateway, version, TCP, client_id=client, clean=False, expiry=SESSION_SECONDS)


async def heard(what, reader, topic, payload):
    """The next message that a reader gets is this one."""
    came = (await reader.next(topic)).payload
    # Notifications of CoAP come where nothing is kept.
    expect(what, came or (await reader.next(topic)).payload, payload)


async def ready(doors):
    status, _, body = await doors.http.request("GET", "/readyz")
    return status, body.decode()


@scenario
async def a_disk_that_becomes_read_only_is_said_at_every_door_until_it_can_be_written(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data, Recorder(data) as recorder:
        recorder.begin()
        async with Gateway(binary, "", data, recorder.environment) as gateway, Doors(gateway) as doors:
            away = session(gateway, "away")
            await away.open()
            await away.subscribe("disk/away", 1)
            await away.close()
            for door in doors:
                await door.publish(f"disk/{door.door}", b"before", TEXT)
            await doors.http.publish("disk/away", b"before", TEXT, retain=False)
            recorder.set(is_read_only=True)
            await _nothing_is_kept(gateway, doors)
            await _all_else_flows(gateway, doors)
            recorder.set()

            async def is_ready():
                return (await ready(doors))[0] == 200
            await until("/readyz", is_ready)
            for door in doors:
                await door.publish(f"disk/{door.door}", b"after", TEXT)
            await doors.http.publish("disk/away", b"after", TEXT, retain=False)
            await gateway.kill()
        expect("written past the recorder", recorder.cut(0.0), None)
        async with Gateway(binary, "", data) as gateway, Doors(gateway) as doors:
            for door in doors:
                kept = await doors.http.get(f"disk/{door.door}")
                require(f"{door.name} has its value:", kept is not None and kept.payload == b"after", kept)
                expect(f"{door.name}: a refused value", await doors.http.get(f"disk/new/{door.door}"), None)
            await _away_has_what_was_taken(gateway)


async def _nothing_is_kept(gateway, doors):
    await every_refusal(doors, "a new value", lambda door: door.publish(f"disk/new/{door.door}", b"no", TEXT))
    await every_refusal(doors, "another value", lambda door: door.publish(f"disk/{door.door}", b"no", TEXT))
    await every_refusal(doors, "a removal", lambda door: door.clear(f"disk/{door.door}"))
    await every_refusal(doors, "a message for a session that is away",
                        lambda door: door.publish("disk/away", b"no", TEXT, retain=False))
    create = doors.xmpp.ask(doors.xmpp.pubsub.create_node(doors.xmpp.service, "disk/node"))
    expect("XMPP: a node", await refused("a node", create), REFUSALS["xmpp"])
    expect("MQTT: a session", await refused("a session", session(gateway, "new").open()), "0x97")
    old = Connection(gateway, paho.MQTTv311, TCP)
    await old.open()
    await refused("3.1.1", old.publish("disk/new/mqtt", b"no", 1, True))
    require("3.1.1 has its connection ended", old.disconnected.done())
    status, body = await ready(doors)
    require("/readyz says why:", status == 503 and "read-only" in body, f"{status} {body}")
    _, _, metrics = await doors.http.request("GET", "/metrics")
    require("the state in /metrics", b'fogmux_store_state{state="read-only"} 1' in metrics)


async def _all_else_flows(gateway, doors):
    for door in doors:
        for reader in (doors.http, doors.coap, doors.xmpp):
            kept = await reader.get(f"disk/{door.door}")
            require(f"{reader.name} reads:", kept is not None and kept.payload == b"before", kept)
            expect(f"{reader.name}: a refused value", await reader.get(f"disk/new/{door.door}"), None)
    # The session goes on, and takes what waits for it.
    away, came = session(gateway, "away"), asyncio.Queue()
    away.on_message = lambda message: came.put_nowait(message.payload)
    flags, _ = await away.open()
    expect("the session and its message", (flags.session_present, await came.get()), (True, b"before"))
    await away.close()
    for reader in doors:
        await reader.follow("disk/flow")
    for writer in doors:
        said = writer.name.encode()
        await writer.publish("disk/flow", said, TEXT, retain=False)
        for reader in doors:
            await heard(f"{writer.name} to {reader.name}", reader, "disk/flow", said)
    await doors.mqtt.connection.publish("disk/flow", b"QoS 0", 0, True, ContentType=TEXT)
    for reader in doors:
        await heard(f"QoS 0 to {reader.name}", reader, "disk/flow", b"QoS 0")


async def _away_has_what_was_taken(gateway):
    away, came = session(gateway, "away"), []
    away.on_message = lambda message: came.append(message.payload)
    flags, _ = await away.open()
    require("the session is there", flags.session_present)

    async def all_came():
        return b"after" in came
    await until("what was taken comes", all_came)
    # Its acknowledgement of the first may have been refused.
    require("and nothing else:", [one for one in came if one != b"before"] == [b"after"], came)
    await away.close()


@scenario
async def a_disk_that_stalls_holds_up_nobody_but_those_who_wait_for_it(binary):
    # One worker, which nothing may block.
    one = "[workers]\ncount = 1"
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data, Recorder(data) as recorder:
        recorder.begin()
        async with Gateway(binary, one, data, recorder.environment) as gateway, \
                Doors(gateway) as writers, Doors(gateway) as others:
            for door in others:
                await door.publish(f"stall/{door.door}", b"before", TEXT)
                await door.follow("stall/flow")
            durable = session(gateway, "durable")
            await durable.open()
            await durable.subscribe("stall/durable", 1)
            http2 = SharedConnection(gateway)
            await http2.open()
            recorder.set(is_stalled=True)
            waiting = [asyncio.ensure_future(door.publish(f"stall/new/{door.door}", b"late", TEXT))
                       for door in [*writers, http2]]

            async def is_stalled():
                return recorder.is_stalled()
            await until("a synchronisation has begun", is_stalled)
            await _others_go_on(gateway, others, http2)
            early = [door.name for door, task in zip([*writers, http2], waiting) if task.done()]
            require("nobody is told before the disk has it:", not early, early)
            recorder.set()
            await asyncio.gather(*waiting)
            await durable.close()
            await http2.close()


class SharedConnection(Httpx):
    """Requests that share one connection."""

    name, version = "httpx h2c", H2C


async def _others_go_on(gateway, others, http2):
    """What needs no disk is answered while a synchronisation is under way; each round sees the next one of the turn."""
    for _ in range(3):
        for reader in (others.http, others.coap, others.xmpp, http2):
            kept = await reader.get("stall/http")
            expect(f"{reader.name} reads", kept and kept.payload, b"before")
        for writer in others:
            said = writer.name.encode()
            await writer.publish("stall/flow", said, TEXT, retain=False)
            for reader in others:
                await heard(f"{writer.name} to {reader.name}", reader, "stall/flow", said)
        await others.mqtt.connection.publish("stall/flow", b"QoS 0", 0, ContentType=TEXT)
        for reader in others:
            await heard(f"QoS 0 to {reader.name}", reader, "stall/flow", b"QoS 0")
        # PUBACK comes when the session has acknowledged, before the disk has it (ADR 0063).
        await others.mqtt.connection.publish("stall/durable", b"taken", 1)
        await others.xmpp.client.plugin["xep_0199"].ping("localhost", timeout=60)
        # Those who come now.
        for kind in (MqttDoor, Aiocoap, HttpDoor, Slixmpp):
            newcomer = kind(gateway)
            await newcomer.open()
            if kind is not HttpDoor:
                await newcomer.follow("stall/http")
                expect(f"{kind.name} is sent what is kept", (await newcomer.next("stall/http")).payload, b"before")
            await newcomer.close()
        await _pinged(others.mqtt.connection.client)


async def _pinged(client):
    """A client of MQTT has its PINGREQ answered."""
    loop, answered = asyncio.get_running_loop(), asyncio.Event()
    client.on_log = lambda client, data, level, line: (
        line == "Received PINGRESP" and loop.call_soon_threadsafe(answered.set))
    client._send_pingreq()
    await within(answered.wait(), PATIENCE)
    client.on_log = None
