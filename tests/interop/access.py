"""Each credential at each door that takes it: what the rules allow, what they refuse, and what is no credential.

One row per client and credential; the rules are the same for all (`keyring.RULES`), so that what alice may do does not
depend on how she shows that she is alice.
"""

import asyncio
import itertools
from dataclasses import dataclass

import paho.mqtt.client as paho

import bridges
from client import PATIENCE, Getter, Missing, Refused
from clients_coap import Aiocoap, AiocoapWs, Libcoap
from clients_http import REQUESTS, Httpx
from clients_mqtt import MOSQUITTO, PAHO
from clients_xmpp import Slixmpp, SlixmppDirect
from clients_xmpp_raw import RawXmpp
from keyring import LockedGateway
from patience import within
from requests_http import H1S

TEXT = "text/plain;charset=utf-8"
DENIED = {"mqtt": ("0x87", "[NOT_AUTHORIZED]", "NOT_AUTHORIZED"), "http": ("403",), "coap": ("4.03",),
          "xmpp": ("forbidden", "not-authorized")}
"""The answer of each standard to a known user who may not."""
UNKNOWN = {"mqtt": ("0x86", "0x87"), "http": ("401",), "coap": ("4.01",), "xmpp": ("not-authorized",)}
"""The answer to a user who failed to authenticate; a handshake ends before any of these can be sent."""
BUSY = {"mqtt": ("0x88", "0x89"), "http": ("503",), "coap": ("5.03",), "xmpp": ("temporary-auth-failure",)}
"""And to somebody whom it cannot judge now: verifying passwords costs what a busy machine may not have in time."""
MQTT_311 = paho.MQTTv311
PROTECTION = ("unprotected 4.00", "unprotected 4.01", "4.00", "4.01")
"""RFC 8613 §8.2: decryption failed, and no such context."""
_numbers = itertools.count()


@dataclass(frozen=True)
class Row:
    """A client of a door with a kind of credential."""

    kind: str
    client: type

    @property
    def label(self) -> str:
        return self.client.name.replace(" ", "-").replace("/", "-")

    @property
    def name(self) -> str:
        return f"{self.client.door} {self.kind}: {self.client.name}"


def variant(base, name, **fields):
    return type(name.replace(" ", "_"), (base,), {"name": name, **fields})


def named(clients, *names):
    found = [client for client in clients if client.name in names]
    assert len(found) == len(names), names
    return found


# With QoS 2 paho forgets what the PUBREC said and reports the PUBCOMP.
PAHO_TLS = [variant(client, client.name, qos=1) for client in named(PAHO, "paho 3.1.1/tls", "paho 5/tls", "paho 5/wss")]
CURL = [variant(named(REQUESTS, "curl h1")[0], "curl h1s", version=H1S), *named(REQUESTS, "curl h2")]
PASSWORD = [
    *PAHO_TLS, *named(MOSQUITTO, "mosquitto 5/tls"),
    variant(bridges.Hivemq, "hivemq scram-sha-256", mechanism="SCRAM-SHA-256"), bridges.Hivemq,
    *CURL, *named(REQUESTS, "httpx h1s", "httpx h2", "aioquic h3", "curl_cffi h3"),
    *[variant(base, f"{base.name} {mechanism.lower()}", mechanism=mechanism)
      for base, mechanism in ((Slixmpp, "SCRAM-SHA-256"), (SlixmppDirect, "SCRAM-SHA-1"), (Slixmpp, "PLAIN"))],
    # Smack's own -PLUS takes the digest of a certificate that ECDSA signed to be called "EC", and has none such.
    variant(bridges.Smack, "smack scram-sha-1", mechanism="SCRAM-SHA-1"),
    *[variant(bridges.TokioXmpp, f"tokio-xmpp {how} scram-sha-256-plus", how=how) for how in ("starttls", "direct")],
    *[variant(RawXmpp, f"pyOpenSSL {mechanism.lower()}", mechanism=mechanism)
      for mechanism in ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS")],
]
CERTIFICATE = [
    *PAHO_TLS, *named(MOSQUITTO, "mosquitto 5/tls"), bridges.Hivemq,
    variant(Libcoap, "libcoap openssl dtls", program="coap-client-openssl", scheme="coaps"),
    variant(Libcoap, "libcoap gnutls dtls", program="coap-client-gnutls", scheme="coaps"),
    variant(Libcoap, "libcoap openssl tls", program="coap-client-openssl", scheme="coaps+tcp"),
    variant(Libcoap, "libcoap gnutls tls", program="coap-client-gnutls", scheme="coaps+tcp"),
    variant(bridges.Californium, "scandium", kind="coaps"),
    variant(bridges.Californium, "californium tls", kind="coaps+tcp"),
    *CURL, *named(REQUESTS, "httpx h1s", "httpx h2", "aioquic h3", "curl_cffi h3"),
    *[variant(base, f"{base.name} external", mechanism="EXTERNAL") for base in (Slixmpp, SlixmppDirect)],
    variant(bridges.Smack, "smack external", mechanism="EXTERNAL"),
]
PSK = [
    variant(Libcoap, "libcoap openssl dtls", program="coap-client-openssl", scheme="coaps"),
    variant(Libcoap, "libcoap gnutls dtls", program="coap-client-gnutls", scheme="coaps"),
    variant(bridges.Californium, "scandium", kind="coaps"),
]
OSCORE = [
    variant(Aiocoap, "aiocoap udp"), variant(Aiocoap, "aiocoap tcp", scheme="coap+tcp"), AiocoapWs,
    variant(bridges.Californium, "cf-oscore udp", kind="coap"),
    variant(bridges.Californium, "cf-oscore tcp", kind="coap+tcp"),
    variant(bridges.Californium, "cf-oscore dtls", kind="coaps"),
]
TOKEN = [
    *PAHO_TLS, *named(MOSQUITTO, "mosquitto 5/tls"), bridges.Hivemq,
    *CURL, *named(REQUESTS, "httpx h2", "aioquic h3", "curl_cffi h3"),
    variant(RawXmpp, "pyOpenSSL oauthbearer", mechanism="OAUTHBEARER"),
]
ROWS = [Row(kind, client) for kind, clients in (
    ("password", PASSWORD), ("certificate", CERTIFICATE), ("psk", PSK), ("oscore", OSCORE), ("token", TOKEN))
    for client in clients]
TLS_PSK_ROWS = [Row("psk", client) for client in (
    *named(MOSQUITTO, "mosquitto 5/tls"),
    variant(Libcoap, "libcoap openssl tls", program="coap-client-openssl", scheme="coaps+tcp"),
    variant(Libcoap, "libcoap gnutls tls", program="coap-client-gnutls", scheme="coaps+tcp"))]
"""Pre-shared keys in TLS are a profile of the listener: nothing else is spoken there."""


class Warden(Httpx):
    """Sees and sets everything; what the others did is looked at through it."""

    name, version = "warden", H1S


class Access:
    """The rows of one gateway."""

    def __init__(self, gateway: LockedGateway, report):
        self.gateway, self.report = gateway, report
        self.warden = Warden(gateway, gateway.ring.right("password", "warden", ""))

    async def run(self, rows):
        await self.warden.open()
        await self.warden.publish("elsewhere/value", b"not for them", TEXT)
        some = asyncio.Semaphore(4)

        async def let_in(row):
            async with some:
                await self.let_in(row)
        await asyncio.gather(*map(let_in, rows))
        # Most of these only wait for an answer that never comes.
        many = asyncio.Semaphore(24)

        async def keep_out(row, what, credential):
            async with many:
                await self.step(row, f"{what} is refused", self.stranger(row, credential))
        await asyncio.gather(*(
            keep_out(row, what, credential) for row in rows
            for what, credential in self.gateway.ring.wrong(row.kind, row.label).items()))
        await self.warden.close()

    async def step(self, row, what, attempt):
        try:
            await within(attempt, 4 * PATIENCE)
        except Exception as error:
            self.report.check(f"{row.name}: {what}", f"{type(error).__name__}: {error}")
        else:
            self.report.check(f"{row.name}: {what}", None)

    async def let_in(self, row):
        ring = self.gateway.ring
        alice, bob = (row.client(self.gateway, ring.right(row.kind, user, row.label)) for user in ("alice", "bob"))
        for user, client, steps in (
                ("alice", alice, [("publishes", self.publishes), ("reads", self.reads),
                                  ("may not publish the secret", self.may_not_publish("open/secret")),
                                  ("may not read elsewhere", self.may_not_read)]),
                ("bob", bob, [("reads", self.reads), ("may not publish", self.may_not_publish("open"))])):
            try:
                await within(client.open(), 3 * PATIENCE)
            except Exception as error:
                self.report.check(f"{row.name}: {user} comes in", f"{type(error).__name__}: {error}")
                continue
            for what, attempt in steps:
                await self.step(row, f"{user} {what}", attempt(client))
            await self.step(row, f"{user} leaves", client.close())

    async def publishes(self, client):
        topic, data = f"open/{next(_numbers)}", f"by {client.name}".encode()
        await client.publish(topic, data, TEXT)
        seen = await self.warden.get(topic)
        assert seen is not None and seen.payload == data, f"the warden sees {seen}"

    async def reads(self, client):
        topic, data = f"open/{next(_numbers)}", f"for {client.name}".encode()
        await self.warden.publish(topic, data, TEXT)
        seen = await read(client, topic)
        assert seen is not None and seen.payload == data, f"it sees {seen}"

    def may_not_publish(self, place):
        async def attempt(client):
            topic = f"{place}/{next(_numbers)}"
            try:
                await client.publish(topic, b"forbidden", TEXT)
            except Refused as refusal:
                if getattr(client, "version", None) == MQTT_311:
                    # It has no way to say no to a PUBLISH but to end the connection ([MQTT-3.3.5-2]).
                    await client.open()
                else:
                    assert is_one_of(refusal.code, DENIED[client.door]), f"refused with {refusal.code}"
            else:
                raise AssertionError("it was acknowledged")
            assert await self.warden.get(topic) is None, "it was kept all the same"
        return attempt

    async def may_not_read(self, client):
        try:
            seen = await read(client, "elsewhere/value")
        except Refused as refusal:
            # Version 3.1.1 of MQTT has no other code, and XMPP hides the node from a client that looks first.
            wanted = (*DENIED[client.door], "0x80", "item-not-found")
            assert is_one_of(refusal.code, wanted), f"refused with {refusal.code}"
        else:
            raise AssertionError(f"it sees {seen}")

    async def judged(self, row, credential, topic):
        """Tries to come in and to publish; asks again as long as the gateway only says that it is busy."""
        end = asyncio.get_running_loop().time() + 2 * PATIENCE
        while True:
            client = row.client(self.gateway, credential)
            try:
                await within(client.open(), 3 * PATIENCE)
                return await client.publish(topic, b"by a stranger", TEXT)
            except Refused as refusal:
                if not is_one_of(refusal.code, BUSY[client.door]) or asyncio.get_running_loop().time() > end:
                    raise
            finally:
                await close_quietly(client)

    async def stranger(self, row, credential):
        topic = f"open/{next(_numbers)}"
        client = row.client(self.gateway, credential)
        try:
            await self.judged(row, credential, topic)
        except Refused as refusal:
            wanted = UNKNOWN[client.door]
            if row.kind == "oscore":
                wanted = PROTECTION
            if row.kind in ("certificate", "psk"):
                wanted = (*wanted, "handshake")
            if isinstance(client, bridges.Smack):
                # Java shows no certificate whose issuer the gateway did not name, and is offered no EXTERNAL then.
                wanted = (*wanted, "org.jivesoftware.smack.SmackException$SmackSaslException: No supported")
            assert is_one_of(refusal.code, wanted), f"refused with {refusal.code}"
        except Missing as missing:
            # Nothing is said to who has no key: DTLS and OSCORE let such datagrams fall.
            assert row.kind in ("psk", "certificate", "oscore"), f"no answer: {missing}"
        else:
            raise AssertionError("it was let in")
        assert await self.warden.get(topic) is None, "it was kept all the same"


def is_one_of(code: str, wanted) -> bool:
    return any(code == word or code.startswith(f"{word}:") or code.startswith(word) for word in wanted)


async def read(client, topic):
    """The value of a topic, by asking or by following."""
    if isinstance(client, Getter):
        return await client.get(topic)
    await client.follow(topic)
    return await client.next(topic, PATIENCE)


async def close_quietly(client):
    try:
        await within(client.close(), 10)
    except Exception:
        # It never came in.
        pass


async def run_access(arguments, report):
    chosen = [row for row in ROWS if not arguments.client or any(word in row.name for word in arguments.client)]
    contexts = [(user, row.label) for row in chosen if row.kind == "oscore" for user in ("alice", "bob")]
    passed, failed = report.passed, len(report.failures)
    async with LockedGateway(arguments.bin, contexts=contexts) as gateway:
        await Access(gateway, report).run(chosen)
    print(f"{len(chosen)} clients with credentials: {report.passed - passed} passed, "
          f"{len(report.failures) - failed} failed")
