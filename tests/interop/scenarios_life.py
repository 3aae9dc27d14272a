"""The life of the process: users and rules, restarts, signals, the command line."""

import asyncio
import json
import os
import signal
import tempfile
from pathlib import Path

import paho.mqtt.client as paho

import keyring
from client import Refused, run
from clients_coap import Libcoap
from patience import within
from requests_http import topic_path
from clients_mqtt import Connection
from clients_xmpp import Slixmpp
from gateway import LISTENERS, Gateway
from scenarios import Doors, HttpDoor, Unmet, expect, require, scenario, until

TEXT = "text/plain;charset=utf-8"

DURABLE = '[store]\ndurability = "group"'
"""Acknowledged only once it is on disk."""

RULES = keyring.RULES + """
[[allow]]
user = "alice"
both = ["only/%u/#"]
"""


class GatewayWithUsers(Gateway):
    """alice may write, bob only read, nobody comes in without a name."""

    def config_text(self):
        doors = "\n".join(f'[listeners.{name}]\naddress = "127.0.0.1:0"\nanonymous = false' for name in LISTENERS)
        return f"{doors}\n{self.config}\n"

    async def __aenter__(self):
        os.makedirs(self.data, exist_ok=True)
        for user in ("alice", "bob"):
            code, out, err = await run(
                self.binary, "passwd", "--data", self.data, user, stdin=f"{user}'s password\n".encode())
            require("fogmux passwd", code == 0, (out + err).decode())
        Path(self.data, "acl.toml").write_text(RULES)
        return await super().__aenter__()


ALICE, BOB, MALLORY = ("alice", "alice's password"), ("bob", "bob's password"), ("alice", "wrong")


@scenario
async def users_and_rules_hold_at_every_door(binary):
    async with GatewayWithUsers(binary) as gateway:
        await _mqtt_access(gateway)
        await _http_access(gateway)
        await _xmpp_access(gateway)
        # CoAP has no names yet: who comes by it is nobody, and nobody is let in.
        try:
            await Libcoap(gateway).get("open/a")
        except Refused as refusal:
            expect("CoAP without a name", refusal.code, "4.01")
        else:
            require("CoAP lets nobody in", False)


async def _mqtt_access(gateway):
    for version, refused in ((paho.MQTTv311, ("0x87", "0x05", "0x86")), (paho.MQTTv5, ("0x86", "0x87"))):
        for user in (MALLORY, ("nobody", "x"), None):
            try:
                await Connection(gateway, version, "tls", user=user).open()
            except Refused as refusal:
                require("reason", refusal.code in refused, refusal.code)
            else:
                require(f"MQTT lets {user} in", False)
    alice = Connection(gateway, paho.MQTTv5, "tls", user=ALICE)
    await alice.open()
    for topic in ("open/a", "only/alice/a"):
        await alice.publish(topic, b"by mqtt", 1, True)
    for topic in ("open/secret/a", "only/bob/a", "elsewhere"):
        try:
            await alice.publish(topic, b"x", 1)
        except Refused as refusal:
            require("reason", refusal.code == "0x87" or "Not authorized" in refusal.code, refusal.code)
        else:
            require(f"alice may write {topic}", False)
    try:
        await alice.subscribe("elsewhere")
    except Refused as refusal:
        expect("SUBACK", refusal.code, "0x87")
    else:
        require("alice may read elsewhere", False)
    # Per delivery: a wildcard wider than the rules is granted, what they do not allow is left out.
    seen = asyncio.Queue()
    alice.on_message = lambda message: seen.put_nowait(message.topic)
    await alice.subscribe("open/#")
    expect("kept", await within(seen.get(), 20), "open/a")
    await alice.close()


async def _http_access(gateway):
    async def status(user, method, topic, body=None):
        client = HttpDoor(gateway)
        await client.open()
        client.client.auth = user
        answer, headers, _ = await client.request(method, topic_path(topic), [], body)
        await client.close()
        if answer == 401:
            require("WWW-Authenticate", "basic" in headers.get("www-authenticate", "").lower(), headers)
        return answer
    expect("alice writes", await status(ALICE, "PUT", "open/h", b"x"), 201)
    expect("bob reads", await status(BOB, "GET", "open/h"), 200)
    expect("bob writes", await status(BOB, "PUT", "open/h", b"x"), 403)
    expect("alice and the secret", await status(ALICE, "PUT", "open/secret/h", b"x"), 403)
    expect("wrong password", await status(MALLORY, "GET", "open/h"), 401)
    expect("nobody", await status(None, "GET", "open/h"), 401)


async def _xmpp_access(gateway):
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-1", "PLAIN"):
        client = Slixmpp(gateway)
        client.user, client.mechanism = ALICE, mechanism
        await client.open()
        topic = f"open/x/{mechanism}"
        await client.publish(topic, b"by xmpp", TEXT)
        for denied in ("open/secret/x", "elsewhere"):
            try:
                await client.publish(denied, b"x", TEXT)
            except Refused as refusal:
                expect("condition", refusal.code, "forbidden")
            else:
                require(f"alice may write {denied} by XMPP", False)
        await client.close()
    for user, mechanism in ((MALLORY, "SCRAM-SHA-256"), (("nobody", "x"), "SCRAM-SHA-256"), (MALLORY, "PLAIN"),
                            (None, "ANONYMOUS")):
        client = Slixmpp(gateway)
        client.user, client.mechanism = user, mechanism
        try:
            await client.open()
        except Refused:
            continue
        require(f"XMPP lets {user} in with {mechanism}", False)


@scenario
async def what_was_acknowledged_survives_kill(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data:
        async with Gateway(binary, DURABLE, data) as gateway, Doors(gateway) as doors:
            for door in doors:
                await door.publish(f"durable/{door.door}", door.name.encode(), TEXT)
            await doors.http.publish("durable/cleared", b"x", TEXT)
            await doors.coap.clear("durable/cleared")
            await gateway.kill()
        async with Gateway(binary, DURABLE, data) as gateway, Doors(gateway) as doors:
            for door in doors:
                value = await doors.http.get(f"durable/{door.door}")
                require(f"kept from {door.name}", value is not None and value.payload == door.name.encode(), value)
            expect("cleared", await doors.http.get("durable/cleared"), None)


async def soon(what: str, awaitable):
    """Publications during a drain are there when the process has ended, or were lost with it."""
    try:
        return await within(awaitable, 5)
    except TimeoutError:
        raise Unmet(f"{what} never came") from None


@scenario
async def sigterm_drains(binary):
    async with Gateway(binary) as gateway, Doors(gateway) as doors:
        topic, seen = "drain/will", asyncio.Queue()
        await doors.http.stream({"filter": topic}, lambda item: seen.put_nowait(item.payload))
        await doors.mqtt.follow(topic)
        leaving = Connection(gateway, paho.MQTTv5, "tcp", will={"topic": topic, "payload": b"last words", "qos": 1})
        await leaving.open()
        ended = doors.xmpp.ended
        expect("exit code", await gateway.terminate(), 0)
        expect("the will by MQTT", (await soon("the will by MQTT", doors.mqtt.next(topic))).payload, b"last words")
        expect("the will by HTTP", await soon("the will by HTTP", seen.get()), b"last words")
        _, reason = await soon("DISCONNECT", leaving.disconnected)
        expect("DISCONNECT", reason.value, 0x8B)
        await soon("the end of the XMPP stream", ended)


@scenario
async def sighup_keeps_the_old_configuration_on_an_error(binary):
    async with Gateway(binary) as gateway, Doors(gateway) as doors:
        file = Path(gateway.home.name, "fogmux.toml")
        good = file.read_text()
        file.write_text(good + "\n[nonsense]\nkey = 1\n")
        gateway.process.send_signal(signal.SIGHUP)

        async def said():
            return "nonsense" in gateway.log_tail(50)
        await until("the problem is logged", said)
        await doors.mqtt.publish("reload/a", b"still here", TEXT)
        expect("still serving", (await doors.http.get("reload/a")).payload, b"still here")


@scenario
async def check_reports_every_problem_at_once(binary):
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "bad.toml")
        file.write_text('[workers]\ncount = "many"\n\n[listeners.mqtt]\nport = 1\naddress = "nowhere"\n\n[nothing]\n')
        code, out, err = await run(binary, "check", str(file))
        text = (out + err).decode()
        expect("exit code", code, 78)
        for line, word in ((2, "count"), (5, "port"), (6, "address"), (8, "nothing")):
            require(f"line {line} and {word} are named in", f"bad.toml:{line}" in text and word in text, text)


@scenario
async def the_demonstration_succeeds(binary):
    code, out, err = await run(binary, "demo", patience=90)
    require("exit code 0:", code == 0, f"{code}\n{(out + err).decode()[-2000:]}")


@scenario
async def the_command_line_speaks_at_every_door(binary):
    async with Gateway(binary) as gateway:
        a = {name: f"{host}:{port}" for name, (host, port) in gateway.addresses.items()}
        local = {name: f"localhost:{port}" for name, (_, port) in gateway.addresses.items()}
        urls = [f"mqtt://{a['mqtt']}", f"mqtts://{local['mqtts']}", f"ws://{a['http']}", f"wss://{local['https']}",
                f"coap://{a['coap']}", f"http://{a['http']}", f"https://{local['https']}",
                f"xmpp://{local['xmpp']}", f"xmpps://{local['xmpps']}"]
        variants = [(url, []) for url in urls] + [(f"https://{local['https']}", ["--http", v]) for v in ("2", "3")] \
            + [(f"http://{a['http']}", ["--http", "2"]), (f"mqtt://{a['mqtt']}", ["--mqtt", "3.1.1"])]
        reader, flags = f"http://{a['http']}", ["--ca", gateway.ca]
        problems = []
        for number, (url, extra) in enumerate(variants):
            topic, payload = f"cli/{number}", f"said by {url} {extra}"
            code, out, err = await run(
                binary, "pub", *flags, *extra, "--retain", f"{url}/{topic}", payload)
            if code != 0:
                problems.append(f"pub {url} {extra}: exit {code} {(out + err).decode().strip()}")
                continue
            for door, door_extra in ((reader, []), (url, extra)):
                code, out, err = await run(binary, "get", *flags, *door_extra, f"{door}/{topic}")
                if (code, out) != (0, payload.encode()):
                    problems.append(f"get {door} {door_extra}: exit {code} {out!r} {err.decode().strip()}")
            code, out, err = await run(
                binary, "sub", *flags, *extra, "--count", "1", "--format", "json", f"{url}/{topic}")
            try:
                good = code == 0 and json.loads(out)["payload"] == payload
            except (ValueError, KeyError):
                good = False
            if not good:
                problems.append(f"sub {url} {extra}: exit {code} {out!r} {err.decode().strip()}")
        require("all of them:", not problems, "\n    ".join(problems))
        code, _, _ = await run(binary, "get", f"{reader}/cli/none")
        require("nothing there is no success", code != 0)


@scenario
async def acl_test_names_the_rule(binary):
    async with GatewayWithUsers(binary) as gateway:
        for action, topic, wanted in (
                ("write", "open/a", 0), ("write", "open/secret/a", 77), ("read", "elsewhere", 77)):
            code, out, err = await run(binary, "acl", "test", "--data", gateway.data, "alice", action, topic)
            require(f"{action} {topic}", code == wanted, f"exit {code} {(out + err).decode()}")
            if topic != "elsewhere":
                require("names the file:", b"acl.toml" in out, out)
