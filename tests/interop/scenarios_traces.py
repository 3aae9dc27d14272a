"""Traces of messages: the context in user properties and header fields, and the spans that a collector gets."""

import asyncio
import contextlib
import re
import socket
import urllib.request

import paho.mqtt.client as paho

from client import PATIENCE
from clients_coap import Aiocoap
from clients_http import Httpx
from clients_mqtt import TCP, Connection
from clients_xmpp import Slixmpp
from collector import Collector
from gateway import Gateway
from patience import within
from requests_http import H1
from scenarios import expect, fresh, require, scenario, until

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SAMPLED, NOT_SAMPLED = f"00-{TRACE}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"
INVALID = [
    f"ff-{TRACE}-{PARENT}-01",
    f"00-{'0' * 32}-{PARENT}-01",
    f"00-{TRACE}-{'0' * 16}-01",
    f"00-{TRACE.upper()}-{PARENT}-01",
    f"{SAMPLED}-more",
    "nonsense",
]
CONTEXT = re.compile("00-([0-9a-f]{32})-([0-9a-f]{16})-01")


class Http(Httpx):
    name, version = "httpx h1", H1


def traces(endpoint: str, **keys) -> str:
    lines = {"endpoint": f'"{endpoint}"', "interval": '"100ms"', **keys}
    return "[telemetry.traces]\n" + "\n".join(f"{key} = {value}" for key, value in lines.items())


def request(gateway, method: str, topic: str, data: bytes | None = None, headers=()):
    """One HTTP request; the answer's headers."""
    url = f"{gateway.http_base(secure=False)}/topics/{topic}"
    with urllib.request.urlopen(urllib.request.Request(url, data, dict(headers), method=method), timeout=20) as answer:
        return answer.headers


def metric(gateway, name: str) -> int | None:
    with urllib.request.urlopen(gateway.http_base(secure=False) + "/metrics", timeout=20) as answer:
        lines = answer.read().decode().splitlines()
    values = [line.rsplit(" ", 1)[1] for line in lines if line.startswith(f"fogmux_{name}")]
    return int(float(values[0])) if values else None


class Reader:
    """A paho client that keeps the user properties of what it gets."""

    def __init__(self, connection):
        self.connection, self.came = connection, asyncio.Queue()
        connection.on_message = self.came.put_nowait

    async def next(self, topic: str):
        while True:
            message = await within(self.came.get(), PATIENCE)
            if message.topic == topic:
                properties = getattr(message, "properties", None)
                return message.payload, getattr(properties, "UserProperty", None)


@contextlib.asynccontextmanager
async def connected(gateway, version=paho.MQTTv5):
    connection = Connection(gateway, version, TCP)
    await connection.open()
    reader = Reader(connection)
    await connection.subscribe("scenario/#")
    try:
        yield reader
    finally:
        await connection.close()


def own_context(user, before: list, place: int) -> tuple[str, str]:
    """Only the value of `traceparent` differs from what was sent."""
    require("as many properties", user and len(user) == len(before), user)
    for index, (found, sent) in enumerate(zip(user, before)):
        if index != place:
            expect(f"property {index}", tuple(found), sent)
    expect("the name", user[place][0], "traceparent")
    match = CONTEXT.fullmatch(user[place][1])
    require("a context of version 00", match, user[place])
    return match.groups()


def is_child(child, parent, remote: bool):
    expect(f"the trace of {child}", child.trace, parent.trace)
    expect(f"the parent of {child}", child.parent, parent.id)
    expect(f"where the parent of {child} is", child.flags, 0x301 if remote else 0x101)


@scenario
async def traces_from_mqtt_to_every_reader(binary):
    with Collector() as collector:
        async with Gateway(binary, traces(collector.endpoint, service_name='"kitchen"')) as gateway:
            async with connected(gateway) as five, connected(gateway, paho.MQTTv311) as three:
                topic, state = fresh("traces"), "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"
                user = [("a", "1"), ("traceparent", SAMPLED), ("a", "2"), ("tracestate", state), ("b", "ü")]
                events, stream = asyncio.Queue(), Http(gateway)
                await stream.open()
                await stream.follow(topic)
                stream.arrived = lambda name, message: events.put_nowait(message)
                await five.connection.publish(topic, b"21.5", retain=True, UserProperty=user)
                payload, found = await five.next(topic)
                expect("the payload", payload, b"21.5")
                trace, parent = own_context(found, user, 1)
                expect("the trace", trace, TRACE)
                require("another parent", parent != PARENT)
                expect("MQTT 3.1.1", await three.next(topic), (b"21.5", None))
                await within(events.get(), PATIENCE)
                await stream.close()
                headers = request(gateway, "GET", topic)
                expect("traceparent of GET", headers["traceparent"], f"00-{TRACE}-{parent}-01")
                expect("tracestate of GET", headers["tracestate"], state)
                names = ["publish mqtt", "deliver mqtt", "deliver mqtt", "deliver http", "read http"]
                publish, *readers = await collector.named(topic, *names)
                expect("the publication", (publish.trace, publish.id, publish.parent), (TRACE, parent, PARENT))
                expect("its kind", publish.kind, "PRODUCER")
                expect("where its parent is", publish.flags, 0x301)
                expect("its state", publish.state, state)
                expect("its resource", publish.resource["service.name"], "kitchen")
                wanted = {"messaging.system": "fogmux", "messaging.operation.name": "publish",
                          "messaging.operation.type": "send", "messaging.destination.name": topic,
                          "messaging.client.id": five.connection.client_id, "messaging.message.body.size": 4,
                          "network.protocol.name": "mqtt"}
                expect("its attributes", publish.attributes, wanted)
                for reader in readers:
                    is_child(reader, publish, remote=False)
                    expect("the kind of a reader", reader.kind, "CONSUMER")
                    require("a time", publish.start <= reader.end and reader.start <= reader.end, reader)
                clients = {span.attributes["messaging.client.id"] for span in readers if span.name == "deliver mqtt"}
                expect("who read", clients, {five.connection.client_id, three.connection.client_id})
                expect("one span a hop", len(collector.of(topic)), len(names))
                require("no payload", all("21.5" not in str(span.attributes) for span in collector.spans))


@scenario
async def traces_from_http_coap_and_xmpp_to_mqtt(binary):
    with Collector() as collector:
        async with Gateway(binary, traces(collector.endpoint)) as gateway, connected(gateway) as reader:
            topic = fresh("traces")
            headers = {"traceparent": SAMPLED, "tracestate": "a=1"}
            request(gateway, "PUT", topic, b"1", headers)
            _, found = await reader.next(topic)
            trace, parent = own_context(found, [("traceparent", SAMPLED), ("tracestate", "a=1")], 0)
            require("the trace, another parent", trace == TRACE and parent != PARENT, found)
            publish, deliver = await collector.named(topic, "publish http", "deliver mqtt")
            expect("the publication", (publish.id, publish.parent, publish.kind), (parent, PARENT, "SERVER"))
            is_child(deliver, publish, remote=False)
            # Nobody has put a context into these: each is a trace of its own.
            for door, client in [("coap", Aiocoap(gateway)), ("xmpp", Slixmpp(gateway))]:
                topic = fresh("traces")
                await client.open()
                await client.publish(topic, b"2", "text/plain")
                _, found = await reader.next(topic)
                await client.close()
                own = [pair for pair in found if pair[0] == "traceparent"]
                trace, parent = CONTEXT.fullmatch(own[0][1]).groups()
                publish, deliver = await collector.named(topic, f"publish {door}", "deliver mqtt")
                expect(f"the publication by {door}", (publish.trace, publish.id, publish.parent), (trace, parent, ""))
                is_child(deliver, publish, remote=False)
            # A context that is none is as good as absent.
            for text in INVALID:
                topic = fresh("traces")
                user = [("a", "1"), ("traceparent", text), ("b", "2")]
                await reader.connection.publish(topic, b"3", UserProperty=user)
                _, found = await reader.next(topic)
                trace, _ = own_context(found, user, 1)
                publish, = await collector.named(topic, "publish mqtt")
                expect("a trace of its own", (publish.trace, publish.parent), (trace, ""))
            refused = fresh("traces")
            with contextlib.suppress(urllib.error.HTTPError):
                request(gateway, "PUT", refused, b"4", {"If-Match": '"none"', "traceparent": SAMPLED})
            publish, = await collector.named(refused, "publish http")
            require("a refusal", publish.failed and publish.attributes["error.type"] == "refused", publish)
            dropped = await until("all are exported", lambda: asyncio.to_thread(
                lambda: metric(gateway, "trace_spans_exported_total") == len(collector.spans)))
            require("counted", dropped)
            expect("dropped", metric(gateway, 'trace_spans_dropped_total{reason="queue"}'), 0)


@scenario
async def traces_that_nobody_samples_change_nothing(binary):
    with Collector() as collector:
        config = traces(collector.endpoint, sample_one_in=0)
        async with Gateway(binary, config) as gateway, connected(gateway) as reader:
            topics = []
            for text in [NOT_SAMPLED, None, *INVALID]:
                topics.append(fresh("traces"))
                user = [("a", "1"), ("traceparent", text), ("a", "2")] if text else [("a", "1"), ("tracestate", "=")]
                await reader.connection.publish(topics[-1], b"1", retain=True, UserProperty=user)
                expect(f"the properties beside {text}", (await reader.next(topics[-1]))[1], user)
            topics.append(fresh("traces"))
            request(gateway, "PUT", topics[-1], b"1", {"traceparent": NOT_SAMPLED})
            expect("a context that is sent on", (await reader.next(topics[-1]))[1], [("traceparent", NOT_SAMPLED)])
            topics.append(fresh("traces"))
            request(gateway, "PUT", topics[-1], b"1", {"traceparent": INVALID[0], "tracestate": "a=1"})
            expect("a context that is none", (await reader.next(topics[-1]))[1], None)
            sampled = fresh("traces")
            await reader.connection.publish(sampled, b"1", UserProperty=[("traceparent", SAMPLED)])
            await collector.named(sampled, "publish mqtt", "deliver mqtt")
            expect("other spans", [span for span in collector.spans if span.topic in topics], [])


@scenario
async def traces_are_off_unless_configured(binary):
    async with Gateway(binary) as gateway, connected(gateway) as reader:
        topic = fresh("traces")
        user = [("a", "1"), ("traceparent", SAMPLED), ("a", "2"), ("tracestate", "a=1"), ("traceparent", SAMPLED)]
        await reader.connection.publish(topic, b"1", retain=True, UserProperty=user)
        expect("the properties", (await reader.next(topic))[1], user)
        expect("traceparent of GET", request(gateway, "GET", topic)["traceparent"], None)
        request(gateway, "PUT", topic, b"2", {"traceparent": SAMPLED})
        expect("no properties", (await reader.next(topic))[1], None)
        expect("metrics", metric(gateway, "trace_spans"), None)


@scenario
async def traces_are_exported_before_the_gateway_ends(binary):
    with Collector() as collector:
        async with Gateway(binary, traces(collector.endpoint, interval='"600s"')) as gateway:
            async with connected(gateway) as reader:
                topic = fresh("traces")
                await reader.connection.publish(topic, b"1")
                await reader.next(topic)
            expect("spans before the end", collector.spans, [])
            expect("exit code", await gateway.terminate(), 0)
            await collector.named(topic, "publish mqtt", "deliver mqtt")


@scenario
async def traces_whose_collector_is_down_hold_up_nobody(binary):
    with Collector() as collector:
        collector.status = 503
        config = traces(collector.endpoint, queue_spans_max=64, batch_spans_max=32)
        async with Gateway(binary, config) as gateway, connected(gateway) as reader:
            topic = fresh("traces")
            for number in range(200):
                await reader.connection.publish(topic, b"%d" % number)
            for number in range(200):
                expect("the message", (await reader.next(topic))[0], b"%d" % number)
            # A span for each publication and each delivery; the queue and one batch have 96 of them.
            dropped = metric(gateway, 'trace_spans_dropped_total{reason="queue"}')
            require("dropped and counted", 400 - 64 - 32 <= dropped <= 400, dropped)
            said = gateway.log_tail(10_000).count("telemetry.traces.endpoint")
            expect("lines in the log", said, 1)
            collector.status = 200
            await until("spans come again", lambda: asyncio.to_thread(
                lambda: metric(gateway, "trace_spans_exported_total") >= 64))
            expect("all are counted", dropped + len(collector.spans), 400)
            expect("exit code", await gateway.terminate(), 0)


@scenario
async def traces_whose_collector_is_silent_end_with_the_gateway(binary):
    with socket.create_server(("127.0.0.1", 0), backlog=64) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}/v1/traces"
        async with Gateway(binary, traces(endpoint, timeout='"500ms"')) as gateway:
            async with connected(gateway) as reader:
                topic = fresh("traces")
                await reader.connection.publish(topic, b"1")
                await reader.next(topic)
            expect("exit code", await gateway.terminate(), 0)
            require("a line about it", "not exported" in gateway.log_tail(10_000), gateway.log_tail())
