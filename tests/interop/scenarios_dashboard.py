"""The administration API and the page at `/`: curl for the one, Chromium for the other."""

import asyncio
import json
import os
from pathlib import Path

from client import run
from clients_coap import Aiocoap
from clients_xmpp import Slixmpp
from gateway import LISTENERS, Gateway
from patience import within
from scenarios import expect, require, scenario, until
from typist import Typist
from worn_machine import GatewayOfWornMachine

HERE = Path(__file__).parent
CLIENTS = Path(os.environ.get("FOGMUX_CLIENTS", HERE.parents[1] / "target" / "clients"))
PICTURES = Path(os.environ.get("FOGMUX_PICTURES", HERE.parents[1] / "target" / "dashboard"))
DOCUMENTED = os.environ.get("FOGMUX_DOCUMENTED_PICTURES")
"""Where the pictures of the documentation are written, if they are to be: docs/images."""
ROOMS = {"room/temperature": "21.5", "room/humidity": "48", "room/door": "closed", "plant/line-1/state": "running"}
OPEN_FOR = 5
"""Times that the overview asks for the state of the gateway, every three seconds, before its memory is looked at."""
RETAINED = 100
RELEASE_MB, ANONYMOUS_MB = 20, 8
"""Bounds with the dashboard open, in 10^6 bytes: of all pages of a release build, of a debug build, whose code is
larger, and of those of either that are no files."""
UNSEEN = "un\u200bseen\u00ad\u2028\u2069\ufeff\u2060"
HOSTILE = ["<img src=x onerror=alert(1)>", "__proto__/constructor", "\u202egnp.exe", "a\u0007b", "//", UNSEEN, "x" * 8000]


async def curl(base, path, *arguments):
    code, out, _ = await run("curl", "-sk", "-m", "20", "-w", "\n%{http_code}", *arguments, base + path)
    expect("curl", code, 0)
    body, _, status = out.decode().rpartition("\n")
    return int(status), body


async def listed(base, name):
    """The numbers of the clients with this identifier."""
    _, body = await curl(base, "/api/v1/clients?limit=1000")
    return [client["id"] for client in json.loads(body)["clients"] if client.get("client") == name]


async def subscribed(gateway, name):
    """mosquitto_sub, once the gateway lists it."""
    host, port = gateway.addresses["mqtt"]
    process = await asyncio.create_subprocess_exec(
        "mosquitto_sub", "-V", "5", "-h", host, "-p", str(port), "-i", name, "-t", "nothing", "-d",
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
    await until("the client", lambda: listed(gateway.http_base(secure=False), name))
    return process


async def told(process):
    said, _ = await within(process.communicate(), 30)
    require("mosquitto_sub is told", b"DISCONNECT (152)" in said, said)


@scenario
async def curl_pages_through_topics_and_disconnects_a_client(binary):
    async with Gateway(binary) as gateway:
        base = gateway.http_base(secure=False)
        coap = Aiocoap(gateway)
        await coap.open()
        for number in range(97):
            await coap.publish(f"page/{number:03}", b"1", "text/plain")
        await coap.close()
        seen, after = [], None
        while True:
            query = f"/api/v1/topics?prefix=page/&limit=10{f'&after={after}' if after else ''}"
            status, body = await curl(base, query)
            expect("a page", status, 200)
            page = json.loads(body)
            require("its size", len(page["topics"]) <= 10)
            seen += [entry["topic"] for entry in page["topics"]]
            expect("the door", {entry["door"] for entry in page["topics"]} - {"coap"}, set())
            after = page.get("next")
            if after is None:
                break
        expect("the topics", seen, [f"page/{number:03}" for number in range(97)])
        victim = await subscribed(gateway, "victim")
        number, = await listed(base, "victim")
        status, _ = await curl(base, f"/api/v1/clients/{number}", "-X", "DELETE", "-H", "Origin: http://evil.example")
        expect("of another origin", status, 403)
        status, _ = await curl(base, f"/api/v1/clients/{number}", "-X", "DELETE")
        expect("the end", status, 204)
        await told(victim)
        gone = await until("it is gone", lambda: absent(base, "victim"))
        require("it is gone", gone)


async def absent(base, name):
    return not await listed(base, name)


async def ruled(gateway):
    """What mosquitto_sub, which shows no credential, may read: the one topic and not the other."""
    host, port = gateway.addresses["mqtt"]
    for topic, granted in [("open/x", b"Subscribed (mid: 1): 0"), ("closed/x", b"Subscribed (mid: 1): 135")]:
        process = await asyncio.create_subprocess_exec(
            "mosquitto_sub", "-V", "5", "-h", host, "-p", str(port), "-t", topic, "-d", "-W", "2",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        said, _ = await within(process.communicate(), 30)
        require(f"mosquitto_sub of {topic}", granted in said, said)


@scenario
async def the_dashboard_works_in_chromium(binary):
    modules = CLIENTS / "npm/node_modules"
    # No broker is at the end of the link.
    configuration = "[auth]\napi_changes = true\n[links.away]\nurl = 'mqtt://127.0.0.1:9'\nout = [{ filter = '#' }]"
    async with Gateway(binary, configuration) as gateway:
        bases = [gateway.http_base(secure=secure) for secure in (False, True)]
        for topic in HOSTILE:
            message = json.dumps({"topic": topic, "payload": "<b>x</b>", "retain": True})
            await run("curl", "-s", "-H", "content-type: application/json", "-d", message, bases[0] + "/publish")
        for name, value in ROOMS.items():
            await put(bases[0], name, value)
        await curl(bases[0], "/topics/room/temperature", "-u", "mallory:guess")
        host, port = gateway.addresses["mqtt"]
        await run("mosquitto_pub", "-h", host, "-p", str(port), "-t", "$SYS/x", "-m", "1")
        names = ("victim", "keyed", "meter-3", "pump-7", UNSEEN)
        subscribers = [await subscribed(gateway, name) for name in names]

        async def open_():
            value, media_type = b'{"celsius":21.5}', "application/json"
            await put(bases[0], "from/program", value.decode(), media_type)
            for client, topic in [(Aiocoap(gateway), "from/device"), (Slixmpp(gateway), "from/person")]:
                async with client:
                    await client.publish(topic, value, media_type)

        answers = {"open": open_, "ruled": lambda: ruled(gateway), "run": Typist(gateway).run}
        arguments = [PICTURES, modules, admin_password(gateway), *([DOCUMENTED] if DOCUMENTED else [])]
        try:
            await browsed("dashboard.mjs", arguments, bases, answers)
            for process in subscribers[:3]:
                await told(process)
        finally:
            await ended(*subscribers)


@scenario
async def the_dashboard_asks_for_a_login(binary):
    async with GatewayWithLogin(binary, "[auth]\napi_changes = true") as gateway:
        password = admin_password(gateway)
        arguments = [gateway.http_base(secure=True), "admin", password]
        await browsed("dashboard_login.mjs", arguments, None, {"run": Typist(gateway, password).run})


@scenario
async def the_dashboard_shows_the_wear_of_a_machine(binary):
    async with GatewayOfWornMachine(binary) as gateway:
        async def advance():
            return gateway.advance()

        await browsed("dashboard_machine.mjs", [gateway.http_base(secure=False)], gateway.expected, {"on": advance})


class GatewayWithLogin(Gateway):
    """Nobody comes in without a name."""

    def config_text(self):
        doors = "\n".join(f'[listeners.{name}]\naddress = "127.0.0.1:0"\nanonymous = false' for name in LISTENERS)
        return f"{doors}\n{self.config}\n"


def admin_password(gateway):
    return Path(gateway.data, "admin-password").read_text().strip()


async def put(base, topic, value, media_type="text/plain"):
    await run("curl", "-s", "-X", "PUT", "-H", f"content-type: {media_type}", "-d", value, f"{base}/topics/{topic}")


async def ended(*processes):
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def browsed(program, arguments, first, answers):
    """Runs a program that looks at the page, and does what it asks for by `answers`. It finds no fault."""
    page = await asyncio.create_subprocess_exec(
        "node", str(HERE / program), *map(str, arguments),
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
    try:
        if first is not None:
            page.stdin.write(f"{json.dumps(first)}\n".encode())
        while True:
            line = (await within(page.stdout.readline(), 400)).decode().strip()
            said = json.loads(line or '["it ended"]')
            if not said or said[0] not in answers:
                break
            answer = await answers[said[0]](*said[1:])
            page.stdin.write(f"{json.dumps(answer)}\n".encode())
        expect("the faults of the page", said, [])
    finally:
        await ended(page)


def memory_mb(process) -> dict[str, float]:
    """The memory of a process in 10^6 bytes; in PSS each page that it shares counts by its share."""
    rows = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()[1:]
    kib = {name: int(value.split()[0]) for name, _, value in (row.partition(":") for row in rows)}
    return {name: kib[name] * 1024 / 1e6 for name in ("Rss", "Pss", "Pss_Anon", "Pss_File")}


@scenario
async def the_gateway_is_small_with_the_dashboard_open(binary):
    async with Gateway(binary) as gateway:
        base = gateway.http_base(secure=False)
        lines = [json.dumps({"topic": f"room/{n}", "payload": "21.5", "retain": True}) for n in range(RETAINED)]
        status, _ = await curl(base, "/publish", "-H", "content-type: application/x-ndjson", "--data-binary",
                               "\n".join(lines))
        expect("the messages", status // 100, 2)
        others = [await subscribed(gateway, name) for name in ("pump-7", "meter-3")]
        page = await asyncio.create_subprocess_exec(
            "node", str(HERE / "dashboard_open.mjs"), base, str(OPEN_FOR),
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE)
        try:
            expect("the page", await within(page.stdout.readline(), 120), b"open\n")
            memory = memory_mb(gateway.process)
            page.stdin.close()
            await page.wait()
        finally:
            await ended(page, *others)
        build = "release" if "release" in Path(binary).resolve().parts else "debug"
        told = ", ".join(f"{name} {value:.1f} MB" for name, value in memory.items())
        print(f"  dashboard open, {RETAINED} retained messages, {len(others)} MQTT clients, {build} build: {told}",
              flush=True)
        # Not the PSS as a whole: other gateways of this program would make it smaller. Of a debug build most is its
        # file, of which the system maps more or less at a time (28 to 46 MB of the same build).
        require("its memory", build != "release" or memory["Rss"] <= RELEASE_MB, told)
        require("its memory without files", memory["Pss_Anon"] <= ANONYMOUS_MB, told)
