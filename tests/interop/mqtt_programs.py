"""Eight clients of MQTT by others, each a process that holds connections and can be killed.

All but mosquitto's speak JSON lines. In: `{"id": N, "do": "open", "name": NAME, "transport": "tcp" | "tls" | "ws",
"host", "port", "ca", "client": IDENTIFIER, "expiry": SECONDS, "will": {"topic", "data"} | null, "returns": BOOLEAN}` (a
clean start where nothing is to expire; with `returns` it connects again by itself), `"do": "subscribe"` with `filter`
and `qos`, `"do": "publish"` with `topic`, `qos` and a list of payloads `data`, `"do": "close"`. Out: `{"ready": true,
"version"}` at first, `{"done": N, "error", "session"}` once the gateway has acknowledged, `{"name", "data", "qos"}` for
a message."""

import asyncio
import itertools
import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from bridges import CLIENTS
from client import PATIENCE, Missing, Refused, run
from patience import within

HERE = Path(__file__).parent


class Program:
    """A process of one client, as a context; `got` has what came, by connection, with its QoS."""

    name = "?"
    has_websocket = True
    shows_session = True
    """Whether the client says what CONNACK says of the session."""
    keeps_identifiers = True
    """Whether the client knows in its next connection which messages of QoS 2 it has had ([MQTT-4.3.3-10])."""
    returns_amid_qos2 = True
    """Whether the client can go on with messages of QoS 2 that were under way in its last connection."""
    argv: tuple[str, ...] = ()

    def __init__(self):
        self.version = ""
        self.got: dict[str, list[tuple[str, int]]] = defaultdict(list)

    async def __aenter__(self):
        self.numbers, self.pending = itertools.count(), {}
        self.complaints = tempfile.TemporaryFile()
        self.process = await asyncio.create_subprocess_exec(
            *self.argv, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=self.complaints,
            limit=1 << 20, env={**os.environ, "FOGMUX_CLIENTS": str(CLIENTS)})
        self.ready = asyncio.get_running_loop().create_future()
        self.reader = asyncio.create_task(self._read())
        self.version = await within(self.ready, PATIENCE)
        return self

    async def __aexit__(self, *_):
        await self.kill()
        await self.reader
        self.complaints.close()

    async def kill(self):
        """SIGKILL; the kernel closes its connections."""
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def _read(self):
        while line := await self.process.stdout.readline():
            item = json.loads(line)
            if "done" in item:
                self.pending.pop(item["done"]).set_result(item)
            elif "data" in item:
                self.got[item["name"]].append((item["data"], item["qos"]))
            else:
                self.ready.set_result(item["version"])
        self.complaints.seek(0)
        ended = Missing(f"{self.name} ended: {self.complaints.read()[-1000:].decode(errors='replace')}")
        for future in [self.ready, *self.pending.values()]:
            if not future.done():
                future.set_exception(ended)

    async def _ask(self, do, name, **request):
        number = next(self.numbers)
        future = self.pending[number] = asyncio.get_running_loop().create_future()
        self.process.stdin.write(json.dumps({"id": number, "do": do, "name": name, **request}).encode() + b"\n")
        answer = await within(future, PATIENCE)
        if answer["error"] is not None:
            raise Refused(f"{do}: {answer['error']}")
        return answer["session"]

    async def open(self, name, gateway, client, transport="tcp", ca=None, expiry=0, will=None,
                   returns=False) -> bool | None:
        """Whether there was a session."""
        host, port = gateway.mqtt_address(transport)
        return await self._ask("open", name, transport=transport, host=host, port=port, ca=ca or gateway.ca,
                               client=client, expiry=expiry, will=will, returns=returns)

    async def subscribe(self, name, topic_filter, qos):
        await self._ask("subscribe", name, filter=topic_filter, qos=qos)

    async def publish(self, name, topic, data, qos):
        await self._ask("publish", name, topic=topic, data=data, qos=qos)

    async def close(self, name):
        await self._ask("close", name)


class PahoPython(Program):
    name, argv = "paho-mqtt", (sys.executable, str(HERE / "paho_peer.py"))


class Aiomqtt(Program):
    name, argv = "aiomqtt", (sys.executable, str(HERE / "aiomqtt_peer.py"))


class Gmqtt(Program):
    name, argv, has_websocket = "gmqtt", (sys.executable, str(HERE / "gmqtt_peer.py")), False
    keeps_identifiers = False


class MqttJs(Program):
    name, argv = "mqtt.js", ("node", str(HERE / "mqttjs_peer.mjs"))


class PahoGo(Program):
    name, argv = "paho.golang", (str(CLIENTS / "bin/paho-golang-peer"),)


class Hivemq(Program):
    name = "hivemq-mqtt-client"
    argv = ("java", "-XX:TieredStopAtLevel=1", "-cp", f"{CLIENTS}/java/classes:{CLIENTS}/java/dependency/*",
            "HivemqPeer")


class Rumqttc(Program):
    """It forgets with a connection which messages of QoS 2 it has had, closes the next one for a PUBREL of one of
    them ("Unsolicited"), and so on."""

    name, argv = "rumqttc", (str(CLIENTS / "rust/debug/fogmux-interop-mqtt"),)
    returns_amid_qos2 = False


class Mosquitto(Program):
    """mosquitto_sub for each connection that subscribes, mosquitto_pub for each that publishes. A new connection's
    Receive Maximum is full for it with what it had of the one before (§4.9), and it ends with "network protocol error".
    """

    name, has_websocket, shows_session, returns_amid_qos2 = "mosquitto-clients", False, False, False

    async def __aenter__(self):
        _, out, _ = await run("mosquitto_sub", "--version")
        self.version = out.split()[2].decode()
        self.addresses, self.sessions, self.filters, self.readers = {}, {}, {}, {}
        return self

    async def __aexit__(self, *_):
        await self.kill()

    async def kill(self):
        for name in list(self.readers):
            await self._end(name, signal.SIGKILL)

    async def open(self, name, gateway, client, transport="tcp", ca=None, expiry=0, will=None,
                   returns=False):
        host, port = gateway.mqtt_address(transport)
        authority = ["--cafile", ca or gateway.ca] if transport == "tls" else []
        self.addresses[name] = ["-h", host, "-p", str(port), "-V", "mqttv5", *authority]
        self.sessions[name] = ["-i", client]
        if expiry:
            self.sessions[name] += ["-c", "-x", str(expiry)]
        if will:
            self.sessions[name] += ["--will-topic", will["topic"], "--will-payload", will["data"], "--will-qos", "1",
                                    "--will-retain"]
        # It connects only to subscribe, and one that comes back has to do it again.
        await self.subscribe(name, *self.filters.get(name, (f"{client}/nothing", 0)))

    async def subscribe(self, name, topic_filter, qos):
        await self.close(name)
        self.filters[name] = topic_filter, qos
        # Its grant would stay in a buffer until there is a message.
        process = await asyncio.create_subprocess_exec(
            "stdbuf", "-oL", "mosquitto_sub", *self.addresses[name], *self.sessions[name], "-q", str(qos),
            "-t", topic_filter, "-d", "-F", "\x1e%q %p",
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
        granted = asyncio.get_running_loop().create_future()
        self.readers[name] = process, asyncio.create_task(self._listen(name, process, granted))
        await within(granted, PATIENCE)

    async def _listen(self, name, process, granted):
        said = ""
        while line := (await process.stdout.readline()).decode(errors="replace"):
            if line.startswith("\x1e"):
                qos, data = line[1:].rstrip("\n").split(" ", 1)
                self.got[name].append((data, int(qos)))
                continue
            said += line
            if line.startswith("Subscribed") and not granted.done() and int(line.rpartition(":")[2]) < 0x80:
                granted.set_result(None)
        if not granted.done():
            granted.set_exception(Refused(said.strip()))
        elif said.count("sending CONNECT") > 1:
            raise Missing(f"a connection that lasts: {said}")

    async def publish(self, name, topic, data, qos):
        lines = "".join(f"{one}\n" for one in data).encode()
        code, _, err = await run("mosquitto_pub", *self.addresses[name], "-q", str(qos), "-t", topic, "-l", stdin=lines)
        if code:
            raise Refused(err.decode())

    async def close(self, name):
        if name in self.readers:
            # It sends DISCONNECT.
            await self._end(name, signal.SIGTERM)

    async def _end(self, name, how):
        process, task = self.readers.pop(name)
        if process.returncode is None:
            process.send_signal(how)
        await process.wait()
        await task


PROGRAMS = [PahoPython, Aiomqtt, Gmqtt, MqttJs, PahoGo, Hivemq, Rumqttc, Mosquitto]
