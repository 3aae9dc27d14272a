"""MQTT sessions, wills and takeover, seen by the other doors where they can."""

import asyncio

import paho.mqtt.client as paho

from clients_mqtt import Connection, received
from patience import within
from scenarios import expect, fresh, require, scenario

TEXT = "text/plain;charset=utf-8"


def cut(connection: Connection):
    """Ends the TCP connection without DISCONNECT."""
    connection.client._sock_close()


@scenario
async def a_will_reaches_every_door_when_its_client_vanishes(gateway, doors):
    topic = fresh("will")
    await doors.http.publish(topic, b"alive", TEXT)
    for door in doors:
        await door.follow(topic)
        await door.next(topic)
    dying = Connection(gateway, paho.MQTTv5, "tcp", will={"topic": topic, "payload": b"gone", "qos": 1, "retain": True})
    await dying.open()
    cut(dying)
    for door in doors:
        expect(f"will at {door.name}", (await door.next(topic)).payload, b"gone")
    expect("kept", (await doors.http.get(topic)).payload, b"gone")


@scenario
async def a_will_is_dropped_by_a_proper_disconnect(gateway, doors):
    topic = fresh("will")
    await doors.mqtt.follow(topic)
    leaving = Connection(gateway, paho.MQTTv311, "ws", will={"topic": topic, "payload": b"gone", "qos": 1})
    await leaving.open()
    await leaving.close()
    await within(leaving.disconnected, 20)
    dying = Connection(gateway, paho.MQTTv311, "tcp", will={"topic": topic, "payload": b"the other", "qos": 1})
    await dying.open()
    cut(dying)
    expect("first will", (await doors.mqtt.next(topic)).payload, b"the other")


def _takeover(version, label):
    async def check(gateway):
        first = Connection(gateway, version, "tcp", client_id=f"takeover-{label}")
        await first.open()
        second = Connection(gateway, version, "ws", client_id=f"takeover-{label}")
        await second.open()
        _, reason = await within(first.disconnected, 20)
        if version == paho.MQTTv5:
            expect("reason of DISCONNECT", reason.value, 0x8E)
        require("the second stays", not second.disconnected.done())
        await second.close()
    check.__name__ = f"a_second_client_of_the_same_name_takes_over_{label}"
    return scenario(check)


def _session(version, label):
    async def check(gateway, doors):
        topic = fresh("session")
        expiry = 300 if version == paho.MQTTv5 else None

        def session(clean):
            return Connection(gateway, version, "tcp", client_id=f"session-{label}", clean=clean, expiry=expiry)
        if version == paho.MQTTv5:
            first = session(True)
        else:
            first = session(False)
        flags, _ = await first.open()
        require("no session at first", not flags.session_present)
        await first.subscribe(topic, 1)
        await first.close()
        await within(first.disconnected, 20)
        sent = [f"{number}".encode() for number in range(20)]
        for number, payload in enumerate(sent):
            publisher = (doors.http, doors.coap, doors.xmpp)[number % 3]
            if publisher is doors.http:
                status, _, _ = await doors.http.request("PUT", f"/topics/{topic}?qos=1", [], payload)
                require("PUT", status in (201, 204), status)
            else:
                await publisher.publish(topic, payload, TEXT)
        again, arrived = session(False), asyncio.Queue()
        again.on_message = lambda message: arrived.put_nowait(message.payload)
        flags, _ = await again.open()
        require("the session is there", flags.session_present)
        expect("while away", [await within(arrived.get(), 20) for _ in sent], sent)
        await again.close()
    check.__name__ = f"a_session_keeps_messages_for_an_absent_client_{label}"
    return scenario(check)


for _version, _label in ((paho.MQTTv311, "3.1.1"), (paho.MQTTv5, "5")):
    _takeover(_version, _label)
    _session(_version, _label)


@scenario
async def properties_of_mqtt_5_pass_unchanged(gateway, doors):
    topic = fresh("properties")
    seen, streamed = asyncio.Queue(), asyncio.Queue()
    reader = Connection(gateway, paho.MQTTv5, "tls")
    reader.on_message = lambda message: seen.put_nowait(received(message))
    await reader.open()
    await reader.subscribe(topic, 2)
    await doors.http.stream({"filter": topic}, streamed.put_nowait)
    await doors.mqtt.connection.publish(
        topic, b"{}", 2, False, ContentType="application/json", PayloadFormatIndicator=1, ResponseTopic="answers/here",
        CorrelationData=b"\x00\xff", UserProperty=[("a", "1"), ("a", "2"), ("ü", "é")])
    came = (await within(seen.get(), 20)).extra
    for name, wanted in (("ContentType", "application/json"), ("PayloadFormatIndicator", 1),
                         ("ResponseTopic", "answers/here"), ("CorrelationData", "00ff"),
                         ("UserProperty", [("a", "1"), ("a", "2"), ("ü", "é")])):
        value = came.get(name)
        expect(name, [tuple(pair) for pair in value] if name == "UserProperty" and value else value, wanted)
    envelope = (await within(streamed.get(), 20)).extra
    require("in the envelope of HTTP:", envelope.get("properties") and "answers/here" in str(envelope), envelope)
    await reader.close()


@scenario
async def subscription_options_of_mqtt_5_are_kept(gateway, doors):
    topic = fresh("options")
    await doors.http.publish(topic, b"kept", TEXT)
    own, seen = Connection(gateway, paho.MQTTv5, "tcp"), asyncio.Queue()
    own.on_message = lambda message: seen.put_nowait((message.payload, bool(message.retain)))
    await own.open()
    await own.subscribe(topic, 1, noLocal=True, retainAsPublished=True, retainHandling=2)
    await own.publish(topic, b"mine", 1)
    await doors.mqtt.publish(topic, b"theirs", TEXT, retain=True)
    expect("no local, no kept one, retain as published", await within(seen.get(), 20), (b"theirs", True))
    await own.subscribe(topic, 1, retainHandling=1)
    await own.publish(topic, b"now mine too", 1)
    again = await within(seen.get(), 20)
    expect("retain handling 1: not for one that was there", again, (b"now mine too", False))
    await own.close()


@scenario
async def the_server_names_clients_that_have_no_name(gateway):
    five = Connection(gateway, paho.MQTTv5, "tcp")
    five.client._client_id = b""
    _, properties = await five.open()
    require("assigned client identifier", getattr(properties, "AssignedClientIdentifier", ""))
    await five.close()
