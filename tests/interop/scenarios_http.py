"""HTTP as HTTP: conditions, streams that are resumed, batches, documents."""

import asyncio
import json

from h2.connection import H2Connection
from h2.events import ResponseReceived, StreamEnded

from clients_http import REQUESTS, Httpx
from patience import within
from requests_http import H2
from scenarios import expect, fresh, require, scenario

TEXT = "text/plain;charset=utf-8"


class Secure(Httpx):
    name, version = "httpx h2", H2


@scenario
async def conditional_requests_are_honoured(doors):
    path = f"/topics/{fresh('condition')}"
    ask = doors.http.request
    status, _, _ = await ask("PUT", path, [("content-type", TEXT), ("if-none-match", "*")], b"one")
    expect("PUT If-None-Match: * on nothing", status, 201)
    status, headers, body = await ask("GET", path)
    expect("GET", (status, body), (200, b"one"))
    tag = headers["etag"]
    status, headers, body = await ask("GET", path, [("if-none-match", tag)])
    expect("GET If-None-Match", (status, body, headers.get("etag")), (304, b"", tag))
    status, _, _ = await ask("PUT", path, [("if-none-match", "*")], b"two")
    expect("PUT If-None-Match: * on something", status, 412)
    status, _, _ = await ask("PUT", path, [("if-match", '"other"')], b"two")
    expect("PUT If-Match of another", status, 412)
    status, _, _ = await ask("PUT", path, [("if-match", tag), ("content-type", TEXT)], b"two")
    expect("PUT If-Match", status, 204)
    status, _, _ = await ask("DELETE", path, [("if-match", tag)])
    expect("DELETE If-Match of before", status, 412)
    status, _, body = await ask("GET", path)
    expect("GET at last", (status, body), (200, b"two"))


@scenario
async def head_and_options_say_what_get_would(doors):
    topic = fresh("head")
    path = f"/topics/{topic}"
    await doors.http.publish(topic, b"four", TEXT)
    _, got, _ = await doors.http.request("GET", path)
    status, head, body = await doors.http.request("HEAD", path)
    expect("HEAD", (status, body), (200, b""))
    for name in ("content-type", "content-length", "etag"):
        expect(name, head.get(name), got.get(name))
    status, headers, _ = await doors.http.request("OPTIONS", path)
    require("OPTIONS", status in (200, 204) and "PUT" in headers.get("allow", ""), headers)
    status, headers, _ = await doors.http.request("PATCH", path, [], b"x")
    expect("PATCH", status, 405)
    require("Allow", "GET" in headers.get("allow", ""), headers)


@scenario
async def an_event_stream_is_resumed_by_its_last_id(gateway, doors):
    topic = fresh("resume")
    reader, seen = Secure(gateway), asyncio.Queue()
    await reader.open()
    await reader.stream({"filter": topic}, seen.put_nowait)
    for number in range(3):
        await doors.mqtt.publish(topic, str(number).encode(), TEXT, retain=False)
    before = [await within(seen.get(), 20) for _ in range(3)]
    expect("before", [item.payload for item in before], [b"0", b"1", b"2"])
    await reader.close()
    for number in range(3, 6):
        await doors.mqtt.publish(topic, str(number).encode(), TEXT, retain=False)
    again, gaps = Secure(gateway), asyncio.Queue()
    await again.open()
    last = [("last-event-id", str(before[1].extra["id"]))]
    await again.stream({"filter": topic}, seen.put_nowait, last, gaps.put_nowait)
    await doors.mqtt.publish(topic, b"6", TEXT, retain=False)
    came = []
    while b"6" not in came:
        came.append((await within(seen.get(), 20)).payload)
    # The missed ones are sent again, or their loss is said by an event of its own.
    require("resumed", came == [b"2", b"3", b"4", b"5", b"6"] or not gaps.empty(), came)
    await again.close()


@scenario
async def a_long_poll_answers_when_something_comes(doors):
    topic = fresh("poll")
    await doors.http.publish(topic, b"old", TEXT)
    _, headers, _ = await doors.http.request("GET", f"/topics/{topic}")
    waiting = asyncio.create_task(
        doors.http.request("GET", f"/topics/{topic}?wait=30", [("if-none-match", headers["etag"])]))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    require("it waits", not done, waiting.result() if done else "")
    await doors.coap.publish(topic, b"new", TEXT)
    status, _, body = await within(waiting, 20)
    expect("answer", (status, body), (200, b"new"))


@scenario
async def a_batch_has_a_result_for_each_line(doors):
    topic = fresh("batch")
    lines = [{"topic": f"{topic}/1", "payload": "eins", "retain": True},
             {"topic": f"{topic}/2", "payload": "AP8=", "encoding": "base64", "content_type": "application/x",
              "retain": True},
             {"topic": "no/+/wildcards", "payload": "x"}]
    body = "\n".join(json.dumps(line) for line in lines) + "\n{ not json\n"
    status, _, answer = await doors.http.request(
        "POST", "/publish", [("content-type", "application/x-ndjson")], body.encode())
    require("status", status in (200, 207), status)
    results = [json.loads(line) for line in answer.splitlines() if line.strip()]
    expect("results", len(results), 4)
    expect("first", (await doors.coap.get(f"{topic}/1")).payload, b"eins")
    second = await doors.http.get(f"{topic}/2")
    expect("second", (second.payload, second.content_type), (b"\x00\xff", "application/x"))
    require("third and fourth are refused", all("40" in json.dumps(result) for result in results[2:]), results)


@scenario
async def a_request_with_the_same_idempotency_key_is_done_once(doors):
    topic = fresh("once")
    await doors.mqtt.follow(topic)
    for _ in range(3):
        status, _, _ = await doors.http.request(
            "POST", f"/topics/{topic}", [("idempotency-key", '"8e03978e-40d5-43dd-bc93-6894a57f9324"')], b"once")
        expect("POST", status, 202)
    await doors.http.publish(topic, b"end", TEXT, retain=False)
    came = [(await doors.mqtt.next(topic)).payload for _ in range(2)]
    expect("delivered", came, [b"once", b"end"])


@scenario
async def documents_are_what_they_say(gateway, doors):
    status, headers, body = await doors.http.request("GET", "/openapi.json")
    require("OpenAPI", status == 200 and json.loads(body)["openapi"].startswith("3."), (status, headers))
    paths = json.loads(body)["paths"]
    require("its paths", "/subscribe" in paths and any(path.startswith("/topics/") for path in paths), list(paths))
    status, headers, body = await doors.http.request("GET", "/metrics")
    require("metrics", status == 200 and b"# TYPE " in body, status)
    for path in ("/healthz", "/readyz"):
        status, _, _ = await doors.http.request("GET", path)
        expect(path, status, 200)
    status, headers, body = await doors.http.request("GET", "/topics/no/such/topic")
    expect("RFC 9457", (status, headers.get("content-type")), (404, "application/problem+json"))
    expect("its status", json.loads(body)["status"], 404)


@scenario
async def a_request_beside_an_open_stream_shares_its_connection(gateway, doors):
    topic = fresh("multiplexed")
    await doors.mqtt.publish(topic, b"value", TEXT)
    reader, writer = await asyncio.open_connection(*gateway.addresses["http"])
    connection = H2Connection()
    connection.initiate_connection()

    def ask(path, accept):
        stream = connection.get_next_available_stream_id()
        connection.send_headers(stream, [
            (":method", "GET"), (":scheme", "http"), (":authority", "localhost"), (":path", path),
            ("accept", accept)], True)
        writer.write(connection.data_to_send())
        return stream

    async def until_event(kind, stream):
        while True:
            events = connection.receive_data(await within(reader.read(65536), 5))
            writer.write(connection.data_to_send())
            if any(isinstance(event, kind) and event.stream_id == stream for event in events):
                return
    await until_event(ResponseReceived, ask("/subscribe?filter=nothing", "text/event-stream"))
    for _ in range(20):
        await until_event(StreamEnded, ask(f"/topics/{topic}", "*/*"))
    writer.close()


@scenario
async def https_tells_of_http_3(gateway):
    secure = Secure(gateway)
    await secure.open()
    _, headers, _ = await secure.request("GET", "/healthz")
    port = gateway.http3_address()[1]
    require("Alt-Svc", "h3=" in headers.get("alt-svc", "") and f":{port}" in headers["alt-svc"], headers.get("alt-svc"))
    await secure.close()


@scenario
async def a_body_too_large_is_413_in_every_version(gateway, doors):
    # More than a message may have, less than the gateway reads on for an answer not to be lost by a reset.
    body = bytes(3 << 19)
    clients = [kind(gateway) for kind in REQUESTS if kind.name in ("httpx h1", "curl h2", "curl h2c", "aioquic h3")]
    for client in clients:
        await client.open()
        status, _, _ = await client.request("PUT", "/topics/too/large", [("content-type", "application/x")], body)
        expect(client.name, status, 413)
        # Only the stream ends, not what shares its connection.
        status, _, _ = await client.request("GET", "/healthz")
        expect(client.name, status, 200)
        await client.close()
    expect("not kept", await doors.http.get("too/large"), None)
