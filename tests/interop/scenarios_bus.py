"""The bus as seen from all doors at once."""

import asyncio

from client import Missing, Publisher, Refused
from clients_mqtt import Connection, received
from patience import within
from scenarios import Unmet, expect, fresh, require, scenario, until

TEXT = "text/plain;charset=utf-8"


async def nothing_kept(gateway, doors, topic):
    """Every door says that the topic has no value; a late MQTT subscriber is sent something else first."""
    expect("HTTP GET", await doors.http.get(topic), None)
    expect("CoAP GET", await doors.coap.get(topic), None)
    expect("XMPP items", await doors.xmpp.get(topic), None)
    late = Connection(gateway, doors.mqtt.version, "tcp")
    arrived = asyncio.Queue()
    late.on_message = lambda message: arrived.put_nowait(received(message))
    await late.open()
    await late.subscribe(topic)
    await late.publish(topic, b"sentinel")
    first = await within(arrived.get(), 20)
    await late.close()
    expect("first to a late subscriber", first.payload, b"sentinel")


async def follow_all(doors, topic, first: bytes):
    """All four follow, and each is shown the kept message first."""
    for door in doors:
        await door.follow(topic)
        expect(f"kept, seen by {door.name}", (await door.next(topic)).payload, first)


@scenario
async def a_late_mqtt_subscriber_gets_the_kept_message_marked_as_such(doors):
    topic = fresh("late")
    await doors.coap.publish(topic, b"kept", TEXT)
    await doors.mqtt.follow(topic)
    late = await doors.mqtt.next(topic)
    expect("payload and retain flag", (late.payload, late.retain), (b"kept", True))
    await doors.http.publish(topic, b"new", TEXT)
    new = await doors.mqtt.next(topic)
    expect("payload and retain flag", (new.payload, new.retain), (b"new", False))


def _clear(door: str):
    async def check(gateway, doors):
        topic = fresh("clear")
        await doors.http.publish(topic, b"kept", TEXT)
        await doors.coap.follow(topic)
        await doors.coap.next(topic)
        await getattr(doors, door).clear(topic)
        await nothing_kept(gateway, doors, topic)
        # RFC 7641 §4.2: the last notification of a resource that is gone is an error.
        while (last := await doors.coap.next(topic)).extra.get("code") is None:
            expect("before the end", last.payload, b"kept")
        expect("last notification", last.extra["code"], "4.04")
    check.__name__ = f"cleared_by_{door}_means_cleared_at_every_door"
    return scenario(check)


def _transient(door: str):
    async def check(gateway, doors):
        topic = fresh("transient")
        publisher: Publisher = getattr(doors, door)
        followers = [doors.mqtt, doors.http, doors.xmpp]
        await doors.http.publish(topic, b"kept", TEXT)
        for follower in followers:
            await follower.follow(topic)
            expect(f"kept, seen by {follower.name}", (await follower.next(topic)).payload, b"kept")
        await publisher.publish(topic, b"passing", TEXT, retain=False)
        for follower in followers:
            expect(f"passing, seen by {follower.name}", (await follower.next(topic)).payload, b"passing")
        expect("HTTP GET", (await doors.http.get(topic)).payload, b"kept")
        expect("CoAP GET", (await doors.coap.get(topic)).payload, b"kept")
        empty = fresh("transient")
        await publisher.publish(empty, b"passing", TEXT, retain=False)
        await nothing_kept(gateway, doors, empty)
    check.__name__ = f"transient_from_{door}_is_followed_but_not_kept"
    return scenario(check)


for _door in ("mqtt", "coap", "http", "xmpp"):
    _clear(_door)
    _transient(_door)


@scenario
async def wildcards_of_mqtt_and_http_see_what_coap_and_xmpp_publish(gateway, doors):
    root = fresh("wild")
    wild = Connection(gateway, doors.mqtt.version, "tcp")
    plus, hashed = asyncio.Queue(), asyncio.Queue()
    wild.on_message = lambda message: plus.put_nowait(message.topic)
    await wild.open()
    await wild.subscribe(f"{root}/+/end")
    await doors.http.stream({"filter": f"{root}/#"}, lambda item: hashed.put_nowait(item.topic))
    topics = [f"{root}/{name}/end" for name in ("one", "two", "", "ü")] + [f"{root}/one/other", f"{root}/deep/er/end"]
    for number, topic in enumerate(topics):
        await (doors.coap, doors.xmpp)[number % 2].publish(topic, b"x", TEXT)
    expect("by +", [await within(plus.get(), 20) for _ in range(4)], topics[:4])
    expect("by #", [await within(hashed.get(), 20) for _ in topics], topics)
    require("+ is one level", plus.empty())
    await wild.close()


@scenario
async def dollar_topics_belong_to_the_gateway(doors):
    """[MQTT-4.7.2-1] and the sentence after it: clients should not use them to talk to each other."""
    for door, wanted in zip(doors, ("0x87", "4.03", "403", "forbidden")):
        try:
            await door.publish("$SYS/forged", b"x", TEXT)
        except Refused as refused:
            expect(f"at {door.name}", refused.code, wanted)
        else:
            raise Unmet(f"{door.name} may write below $SYS")


def _expiry(door: str):
    async def check(doors):
        topic = fresh("expiry")
        loop = asyncio.get_running_loop()
        began = loop.time()
        if door == "mqtt":
            await doors.mqtt.connection.publish(topic, b"soon gone", 1, True, MessageExpiryInterval=2)
        else:
            status, _, _ = await doors.http.request("PUT", f"/topics/{topic}?expiry=2", [], b"soon gone")
            require("PUT", status in (201, 204), status)
        expect("at first", (await doors.coap.get(topic)).payload, b"soon gone")
        await doors.mqtt.follow(topic)
        late = await doors.mqtt.next(topic)
        left = late.extra.get("MessageExpiryInterval")
        require("[MQTT-3.3.2-6] what is left goes out:", left is not None and left <= 2, left)

        async def gone():
            return await doors.http.get(topic) is None
        await until("expired", gone, 10)
        require("not before its time:", loop.time() - began >= 1.0, loop.time() - began)
        expect("CoAP GET", await doors.coap.get(topic), None)
        expect("XMPP items", await doors.xmpp.get(topic), None)
    check.__name__ = f"a_message_from_{door}_expires_at_every_door"
    return scenario(check)


_expiry("mqtt")
_expiry("http")


@scenario
async def a_shared_subscription_gives_each_message_to_one_member(gateway, doors):
    topic, members, seen = fresh("shared"), [], asyncio.Queue()
    for number in range(3):
        member = Connection(gateway, doors.mqtt.version, "tcp")
        member.on_message = lambda message, number=number: seen.put_nowait((number, message.payload))
        await member.open()
        await member.subscribe(f"$share/group/{topic}")
        members.append(member)
    sent = [str(number).encode() for number in range(60)]
    for number, payload in enumerate(sent):
        await (doors.http, doors.coap, doors.mqtt)[number % 3].publish(topic, payload, TEXT)
    came = [await within(seen.get(), 20) for _ in sent]
    expect("once each", sorted(payload for _, payload in came), sorted(sent))
    expect("members served", {number for number, _ in came}, {0, 1, 2})
    require("nothing twice", seen.empty())
    for member in members:
        await member.close()


@scenario
async def one_publishers_messages_arrive_in_order_at_every_door(doors):
    topic, count = fresh("order"), 300
    await doors.mqtt.publish(topic, b"first", TEXT)
    for follower in (doors.mqtt, doors.http, doors.xmpp):
        await follower.follow(topic)
        await follower.next(topic)
    for number in range(count):
        doors.mqtt.connection.client.publish(topic, str(number), 1)
    for follower in (doors.mqtt, doors.http, doors.xmpp):
        came = [int((await follower.next(topic)).payload) for _ in range(count)]
        expect(f"order at {follower.name}", came, list(range(count)))


@scenario
async def an_observer_may_miss_samples_but_never_the_newest(doors):
    topic, count = fresh("newest"), 300
    await doors.mqtt.publish(topic, b"-1", TEXT)
    await doors.coap.follow(topic)
    for number in range(count):
        doors.mqtt.connection.client.publish(topic, str(number), 1, True)
    newest = -1
    while newest != count - 1:
        came = int((await doors.coap.next(topic)).payload)
        require("never older than before:", came >= newest, f"{came} after {newest}")
        newest = came


@scenario
async def bytes_of_a_topic_are_the_same_at_every_door(doors):
    for name in ("with space", "per%cent", "per%2Fcent", "ünï/çødé", "a//b", "trailing/", "q?x=1&y", "semi;colon",
                 "'quote\"<&>"):
        topic = f"{fresh('names')}/{name}"
        for publisher in doors:
            payload = f"{publisher.name} {name}".encode()
            await publisher.publish(topic, payload, TEXT)
            for reader in (doors.http, doors.coap, doors.xmpp):
                value = await reader.get(topic)
                require(f"{publisher.name} -> {reader.name}: {name!r}", value and value.payload == payload, value)


@scenario
async def a_message_without_a_type_keeps_having_none(doors):
    topic = fresh("untyped")
    await doors.mqtt.connection.publish(topic, b"plain", 1, True)
    expect("HTTP", (await doors.http.get(topic)).content_type, "application/octet-stream")
    expect("CoAP", (await doors.coap.get(topic)).content_type, None)
    expect("XMPP", (await doors.xmpp.get(topic)).content_type, None)
    await doors.mqtt.follow(topic)
    expect("MQTT", (await doors.mqtt.next(topic)).content_type, None)
    await doors.http.publish(topic, b"x", "application/vnd.example.unknown+json; v=2")
    expect("CoAP", (await doors.coap.get(topic)).content_type, None)
    expect("MQTT", (await doors.mqtt.next(topic)).content_type, "application/vnd.example.unknown+json; v=2")
    expect("XMPP", (await doors.xmpp.get(topic)).content_type, "application/vnd.example.unknown+json; v=2")


@scenario
async def a_reader_that_left_gets_nothing_more(doors):
    topic = fresh("left")
    await doors.mqtt.follow(topic)
    _, mid = doors.mqtt.connection.client.unsubscribe(topic)
    await doors.mqtt.connection.acked(mid)
    await doors.http.publish(topic, b"unheard", TEXT)
    other = fresh("left")
    await doors.mqtt.follow(other)
    await doors.http.publish(other, b"heard", TEXT)
    expect("the other topic", (await doors.mqtt.next(other)).payload, b"heard")
    try:
        await doors.mqtt.next(topic, 0.1)
    except Missing:
        return
    raise Unmet("a message after UNSUBACK")
