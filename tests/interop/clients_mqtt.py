"""MQTT: paho-mqtt over TCP, TLS and WebSocket in 3.1.1 and 5, and mosquitto's command-line clients."""

import asyncio
import json
import ssl
import tempfile
import uuid

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from client import PATIENCE, Follower, Missing, Publisher, Received, Refused, run
from credential import NOBODY
from patience import first_of, within

TCP, TLS, WS, WSS = "tcp", "tls", "ws", "wss"


class Connection:
    """One paho client on its own network thread, its callbacks turned into futures of the test's loop."""

    def __init__(self, gateway, version, transport, client_id=None, clean=True, expiry=None, user=None, will=None,
                 credential=NOBODY, returns=False):
        """`returns` has the network thread connect again when the connection is lost."""
        self.gateway, self.version, self.transport = gateway, version, transport
        self.loop = asyncio.get_running_loop()
        self.client_id = client_id or f"paho-{uuid.uuid4().hex[:12]}"
        self.clean, self.expiry, self.user = clean, expiry, user
        self.on_message = lambda message: None
        self.acks: dict[int, asyncio.Future] = {}
        self.early: dict[int, object] = {}
        self.connected = self.loop.create_future()
        self.disconnected = self.loop.create_future()
        five = version == paho.MQTTv5
        extra = {} if five else {"clean_session": clean}
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, self.client_id, protocol=version,
            transport="websockets" if transport in (WS, WSS) else "tcp", reconnect_on_failure=returns, **extra)
        if transport in (WS, WSS):
            self.client.ws_set_options(path="/mqtt")
        if transport in (TLS, WSS):
            self.client.tls_set_context(credential.tls(gateway.ca))
        user = user or credential.login
        if user:
            self.client.username_pw_set(*user)
        if will:
            self.client.will_set(**will)
        self.client.on_connect = lambda c, u, flags, reason, properties: self._settle(
            self.connected, (flags, reason, properties))
        self.client.on_disconnect = lambda c, u, flags, reason, properties: self._settle(
            self.disconnected, (flags, reason))
        self.client.on_message = lambda c, u, message: self.loop.call_soon_threadsafe(self.on_message, message)
        self.client.on_publish = lambda c, u, mid, reason, properties: self._ack(mid, reason)
        self.client.on_subscribe = lambda c, u, mid, reasons, properties: self._ack(mid, reasons)
        self.client.on_unsubscribe = lambda c, u, mid, reasons, properties: self._ack(mid, reasons)

    def _settle(self, future, value):
        def settle():
            if not future.done():
                future.set_result(value)
        self.loop.call_soon_threadsafe(settle)

    def _ack(self, mid, reason):
        def ack():
            future = self.acks.pop(mid, None)
            if future is None:
                self.early[mid] = reason
            elif not future.done():
                future.set_result(reason)
        self.loop.call_soon_threadsafe(ack)

    async def acked(self, mid):
        if mid in self.early:
            return self.early.pop(mid)
        future = self.acks.setdefault(mid, self.loop.create_future())
        done = await first_of([future, self.disconnected], PATIENCE)
        if future in done:
            return future.result()
        if self.disconnected in done:
            raise Refused(f"{self.disconnected.result()[1]}")
        raise Missing("no acknowledgement")

    async def open(self):
        """The connect flags and properties; raises Refused with the reason code."""
        host, port = self.gateway.mqtt_address(self.transport)
        options = {}
        if self.version == paho.MQTTv5:
            properties = Properties(PacketTypes.CONNECT)
            if self.expiry is not None:
                properties.SessionExpiryInterval = self.expiry
            options = {"clean_start": self.clean, "properties": properties}
        try:
            await self.loop.run_in_executor(None, lambda: self.client.connect(host, port, 60, **options))
        except ssl.SSLError as error:
            raise Refused(f"handshake: {error.reason}") from None
        self.client.loop_start()
        # In TLS 1.3 a certificate is refused after the client's side of the handshake is done.
        done = await first_of([self.connected, self.disconnected], PATIENCE)
        if not done:
            raise Missing("no CONNACK")
        if self.connected not in done:
            raise Refused("handshake: closed without a CONNACK")
        flags, reason, properties = self.connected.result()
        if reason.is_failure:
            raise Refused(f"0x{reason.value:02x}")
        return flags, properties

    async def close(self):
        self.client.disconnect()
        await self.loop.run_in_executor(None, self.client.loop_stop)

    async def subscribe(self, topic, qos=1, **options):
        if self.version == paho.MQTTv5:
            _, mid = self.client.subscribe(topic, options=SubscribeOptions(qos=qos, **options))
        else:
            _, mid = self.client.subscribe(topic, qos)
        for reason in await self.acked(mid):
            if reason.is_failure:
                raise Refused(f"0x{reason.value:02x}")

    async def unsubscribe(self, topic):
        _, mid = self.client.unsubscribe(topic)
        for reason in await self.acked(mid):
            if reason.is_failure:
                raise Refused(f"0x{reason.value:02x}")

    async def publish(self, topic, data, qos=1, retain=False, **properties):
        bag = None
        if self.version == paho.MQTTv5:
            bag = Properties(PacketTypes.PUBLISH)
            for name, value in properties.items():
                setattr(bag, name, value)
        info = self.client.publish(topic, data, qos, retain, properties=bag)
        reason = await self.acked(info.mid)
        if reason.is_failure:
            raise Refused(f"0x{reason.value:02x}")
        return reason


def received(message) -> Received:
    properties = getattr(message, "properties", None)
    content_type = getattr(properties, "ContentType", None)
    return Received(message.payload, content_type, message.topic, bool(message.retain),
                    extra=properties.json() if properties else {})


class Paho(Publisher, Follower):
    """Publishes with QoS 1, follows exact topics with QoS 2."""

    door = "mqtt"
    version, transport = paho.MQTTv5, TCP
    qos = 1

    async def open(self):
        self.connection = Connection(self.gateway, self.version, self.transport, credential=self.credential)
        self.connection.on_message = lambda message: self.arrived(message.topic, received(message))
        await self.connection.open()

    async def close(self):
        await self.connection.close()

    async def publish(self, topic, data, content_type, retain=True):
        extra = {}
        if self.content_types and content_type is not None:
            extra["ContentType"] = content_type
        await self.connection.publish(topic, data, self.qos, retain, **extra)

    async def clear(self, topic):
        await self.connection.publish(topic, b"", self.qos, True)

    async def follow(self, topic):
        await self.connection.subscribe(topic, 2)


def paho_variant(label, version, transport, qos):
    return type(f"Paho_{label}", (Paho,), {
        "name": f"paho {label}", "version": version, "transport": transport, "qos": qos,
        "content_types": version == paho.MQTTv5})


PAHO = [paho_variant(f"{number}/{transport}", version, transport, qos)
        for number, version in (("3.1.1", paho.MQTTv311), ("5", paho.MQTTv5))
        for transport, qos in ((TCP, 1), (TLS, 2), (WS, 1))]
PAHO.append(paho_variant("3.1/tcp", paho.MQTTv31, TCP, 1))
PAHO.append(paho_variant("5/wss", paho.MQTTv5, WSS, 2))


class Mosquitto(Publisher, Follower):
    """mosquitto_pub once per message, mosquitto_sub kept running."""

    door = "mqtt"
    protocol = "mqttv5"
    tls = False

    def _address(self):
        host, port = self.gateway.mqtt_address(TLS if self.tls else TCP)
        extra = ["--cafile", self.gateway.ca] if self.tls and not self.credential.psk else []
        return ["-h", "localhost" if self.tls else host, "-p", str(port), "-V", self.protocol, *extra, *self._keys()]

    def _keys(self):
        keys = self.credential
        if keys.psk:
            return ["--psk-identity", keys.psk[0], "--psk", keys.psk[1].hex()]
        if keys.certificate:
            return ["--cert", keys.certificate[0], "--key", keys.certificate[1]]
        return ["-u", keys.login[0], "-P", keys.login[1]] if keys.login else []

    async def open(self):
        self.readers = []

    async def close(self):
        for process, task in self.readers:
            if process.returncode is None:
                process.terminate()
            await process.wait()
            task.cancel()

    async def publish(self, topic, data, content_type, retain=True):
        extra = ["-r"] if retain else []
        if self.content_types and content_type is not None:
            extra += ["-D", "publish", "content-type", content_type]
        with tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as file:
            file.write(data)
            file.flush()
            code, _, err = await run("mosquitto_pub", *self._address(), "-q", "1", "-t", topic, *extra, "-f", file.name)
        if code != 0 or err:
            raise Refused(reason(err.decode()) or f"exit {code}")

    async def clear(self, topic):
        code, _, err = await run("mosquitto_pub", *self._address(), "-q", "1", "-t", topic, "-r", "-n")
        if code != 0:
            raise Refused(reason(err.decode()))

    async def follow(self, topic):
        # %x: the payload in hexadecimal; -d says on the same stream when the SUBACK is there.
        form = {"t": "%t", "r": "%r", "c": "%C", "x": "%x"} if self.content_types else {"t": "%t", "r": "%r", "x": "%x"}
        process = await asyncio.create_subprocess_exec(
            "mosquitto_sub", *self._address(), "-q", "2", "-t", topic, "-d", "-F", "\x1e" + json.dumps(form),
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, limit=1 << 26)
        confirmed = asyncio.get_running_loop().create_future()
        self.readers.append((process, asyncio.create_task(self._read(process, confirmed))))
        try:
            await within(confirmed, PATIENCE)
        except TimeoutError:
            raise Missing("no SUBACK") from None

    async def _read(self, process, confirmed):
        said = ""
        while line := await process.stdout.readline():
            if line.startswith(b"\x1e"):
                item = json.loads(line[1:])
                self.arrived(item["t"], Received(
                    bytes.fromhex(item["x"]), item.get("c") or None, item["t"], item["r"] == "1"))
            elif line.startswith(b"Subscribed") and not confirmed.done():
                code = int(line.rpartition(b":")[2])
                if code < 0x80:
                    confirmed.set_result(None)
                else:
                    confirmed.set_exception(Refused(f"0x{code:02x}"))
            else:
                said += line.decode(errors="replace")
        if not confirmed.done():
            confirmed.set_exception(Refused(reason(said) or "mosquitto_sub ended"))


REASONS = {
    "not authorized": "0x87", "not authorised": "0x87", "bad user name or password": "0x86", "a tls error occurred": "handshake",
    "protocol error": "handshake", "the connection was lost": "handshake"}


def reason(text: str) -> str:
    """Translates the output of mosquitto's programs into the reason code that they received."""
    return next((code for words, code in REASONS.items() if words in text.lower()), text.strip())


def mosquitto_variant(label, protocol, tls):
    return type(f"Mosquitto_{label}", (Mosquitto,), {
        "name": f"mosquitto {label}", "protocol": protocol, "tls": tls, "content_types": protocol == "mqttv5"})


MOSQUITTO = [mosquitto_variant("3.1.1", "mqttv311", False), mosquitto_variant("5/tls", "mqttv5", True)]
