"""CoAP as CoAP: discovery, validation, observation by libcoap, preconditions."""

import asyncio
import re

import aiocoap
from aiocoap.numbers import codes

from patience import within
from scenarios import expect, fresh, require, scenario

TEXT = "text/plain;charset=utf-8"


@scenario
async def discovery_lists_the_topics(doors):
    answer = await doors.coap.request(doors.coap.message(codes.GET, [".well-known", "core"]))
    expect("code and format", (answer.code.dotted, int(answer.opt.content_format)), ("2.05", 40))
    require("</ps>", b"</ps" in answer.payload, answer.payload[:200])
    answer = await doors.coap.request(doors.coap.message(codes.GET, [".well-known", "core"], ["rt=no.such.type"]))
    expect("RFC 6690 §4.1 filter", answer.payload, b"")


@scenario
async def an_etag_is_validated(doors):
    topic = fresh("etag")
    await doors.http.publish(topic, b"value", TEXT)
    path = ["ps", *topic.split("/")]
    first = await doors.coap.request(doors.coap.message(codes.GET, path))
    require("ETag", first.opt.etag)
    again = doors.coap.message(codes.GET, path)
    again.opt.etags = (first.opt.etag,)
    answer = await doors.coap.request(again)
    expect("valid", (answer.code.dotted, answer.payload), ("2.03", b""))
    await doors.mqtt.publish(topic, b"other", TEXT)
    again = doors.coap.message(codes.GET, path)
    again.opt.etags = (first.opt.etag,)
    answer = await doors.coap.request(again)
    expect("changed", (answer.code.dotted, answer.payload), ("2.05", b"other"))


@scenario
async def put_tells_created_from_changed(doors):
    path = ["ps", *fresh("created").split("/")]
    for wanted in ("2.01", "2.04"):
        answer = await doors.coap.request(doors.coap.message(codes.PUT, path, payload=b"x"))
        expect("PUT", answer.code.dotted, wanted)
    answer = await doors.coap.request(doors.coap.message(codes.DELETE, path))
    expect("DELETE", answer.code.dotted, "2.02")


@scenario
async def libcoap_observes_what_the_others_publish(gateway, doors):
    topic = fresh("libcoap")
    await doors.http.publish(topic, b"value 0;", TEXT)
    host, port = gateway.coap_address()
    process = await asyncio.create_subprocess_exec(
        "coap-client-notls", "-s", "60", "-m", "get", f"coap://{host}:{port}/ps/{topic}",
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    try:
        for number in range(5):
            expect("observed", await within(process.stdout.readuntil(b";"), 20), f"value {number};".encode())
            publisher = (doors.mqtt, doors.xmpp, doors.http)[number % 3]
            await publisher.publish(topic, f"value {number + 1};".encode(), TEXT)
    finally:
        process.terminate()
        await process.wait()


@scenario
async def a_wildcard_observation_names_the_topic_of_each_notification(doors):
    root, seen = fresh("filter"), asyncio.Queue()
    for query in ([f"filter={root}/+"],):
        message = doors.coap.message(codes.FETCH, ["ps"], query)
        first = await doors.coap.observe(message, seen.put_nowait)
        require("registered", first.code.is_successful(), first.code.dotted)
    topics = [f"{root}/{name}" for name in ("a", "b", "c")]
    for topic in topics:
        await doors.mqtt.publish(topic, topic.encode(), TEXT)
    named = set()
    while len(named) < len(topics):
        answer = await within(seen.get(), 20)
        if not answer.payload:
            continue
        where = "/".join(answer.opt.location_path) + "?" + "&".join(answer.opt.location_query)
        named |= {topic for topic in topics if topic in where or topic.encode() in answer.payload}
        require("the topic is named", any(topic in where for topic in topics) or b"topic" in answer.payload,
                f"{where} {answer.payload[:80]}")


@scenario
async def block_wise_transfer_works_with_small_blocks(doors):
    topic = fresh("blocks")
    payload = bytes(range(256)) * 20
    await doors.mqtt.publish(topic, payload, "application/octet-stream")
    got = bytearray()
    number, more = 0, True
    while more:
        message = doors.coap.message(codes.GET, ["ps", *topic.split("/")])
        message.opt.block2 = aiocoap.optiontypes.BlockOption.BlockwiseTuple(number, False, 2)
        answer = await within(doors.coap.context.request(message, handle_blockwise=False).response, 20)
        expect("code", answer.code.dotted, "2.05")
        expect("block", (answer.opt.block2.block_number, answer.opt.block2.size), (number, 64))
        got += answer.payload
        number, more = number + 1, answer.opt.block2.more
    expect("whole", bytes(got), payload)


@scenario
async def a_query_keeps_what_post_would_let_pass(doors):
    topic = fresh("query")
    answer = await doors.coap.request(
        doors.coap.message(codes.POST, ["ps", *topic.split("/")], ["retain=true"], payload=b"kept"))
    require("POST", re.match(r"2\.0[14]", answer.code.dotted), answer.code.dotted)
    expect("kept", (await doors.http.get(topic)).payload, b"kept")


@scenario
async def a_body_too_large_is_4_13_and_says_how_large_it_may_be(doors):
    topic = fresh("large")
    message = doors.coap.message(codes.PUT, ["ps", *topic.split("/")], payload=bytes(3 << 20))
    answer = await doors.coap.request(message)
    expect("code", answer.code.dotted, "4.13")
    require("RFC 7959 §2.9.3 Size1", answer.opt.size1 and answer.opt.size1 >= 1 << 20, answer.opt.size1)
    expect("not kept", await doors.http.get(topic), None)


@scenario
async def a_wildcard_observer_gets_every_retained_message(doors):
    for count in (0, 1, 2, 97, 1000):
        root, seen, arrived = fresh("retained"), set(), asyncio.Event()

        def note(message, seen=seen, arrived=arrived, count=count):
            if message.payload:
                seen.add(message.opt.location_path)
            if len(seen) >= count:
                arrived.set()

        for number in range(count):
            path = ["ps", *root.split("/"), str(number)]
            answer = await doors.coap.request(doors.coap.message(codes.PUT, path, payload=b"x"))
            expect("PUT", answer.code.dotted, "2.01")
        message = doors.coap.message(codes.FETCH, ["ps"], [f"filter={root}/#"])
        first = await doors.coap.observe(message, note)
        require("registered", first.code.is_successful(), first.code.dotted)
        if count:
            try:
                await within(arrived.wait(), 30)
            except TimeoutError:
                pass
        expect("retained messages", len(seen), count)
