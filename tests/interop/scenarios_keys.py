"""Keys as keys: revocation while running, replays, our own client with others' servers, reloads."""

import asyncio
import json
import re
import signal
import socket
import tempfile
from pathlib import Path

import aiocoap
import paho.mqtt.client as paho
from aiocoap import oscore, resource
from aiocoap.credentials import CredentialsMap
from aiocoap.numbers import codes
from aiocoap.oscore_sitewrapper import OscoreSiteWrapper

from access import Warden
from client import Missing, Refused, run
from clients_coap import Libcoap
from clients_http import REQUESTS
from clients_mqtt import TLS, Connection
from clients_xmpp_raw import RawXmpp
from credential import Credential
from gateway import let_go_of_contexts
from keyring import Authority, LockedGateway, private
from powercut import Device, Nonces, Wire
from scenarios import expect, require, scenario, until
from scenarios_profiles import s_client

TEXT = "text/plain;charset=utf-8"
CurlH2 = next(client for client in REQUESTS if client.name == "curl h2")


@scenario
async def a_revoked_certificate_is_refused_at_once(binary):
    async with LockedGateway(binary) as gateway:
        authority = Authority.load(Path(gateway.data) / "pki")
        credential = Credential(certificate=authority.client(gateway.ring.place, "soon", "alice"))
        await CurlH2(gateway, credential).publish("open/revoke", b"before", TEXT)
        alice = Connection(gateway, paho.MQTTv5, TLS, credential=gateway.ring.right("certificate", "alice", ""))
        await alice.open()
        await gateway.fogmux("pki", "revoke", credential.certificate[0])

        async def refused():
            try:
                await CurlH2(gateway, credential).publish("open/revoke", b"after", TEXT)
            except Refused:
                return True
            return False
        await until("the revocation holds", refused, 10)
        try:
            await Libcoap_dtls(gateway, credential).publish("open/revoke", b"after", TEXT)
        except (Refused, Missing):
            pass
        else:
            require("DTLS refuses it too", False)
        await alice.publish("open/alive", b"nobody else was cut off")
        await alice.close()


class Libcoap_dtls(Libcoap):
    name, program, scheme = "libcoap dtls", "coap-client-openssl", "coaps"


@scenario
async def a_replayed_oscore_request_is_not_carried_out(binary):
    async with LockedGateway(binary, contexts=[("alice", "replay")]) as gateway:
        device = Device(0, str(gateway.ring.contexts["alice", "replay"] / "client"), Nonces())
        warden = Warden(gateway, gateway.ring.right("password", "warden", ""))
        await warden.open()
        wire = await Wire.to(gateway.coap_address())
        for value in (b"first", b"second"):
            answer = await device.request(wire, codes.PUT, 5, payload=value)
            require(f"{value} is taken", answer is not None and answer.code.is_successful(), answer)
        codes_seen = []
        # From the same port and from another; a message of its own each time, so that nothing is a repetition.
        for other in (wire, await Wire.to(gateway.coap_address())):
            for old in list(device.sent):
                again = old.copy(mid=next(device.ids) % 65_536, token=b"again" + bytes([len(codes_seen)]))
                came = await other.ask(again, 3)
                codes_seen.append(None if came is None else came.code.dotted)
                require("unprotected", came is None or came.opt.oscore is None, came)
        require("RFC 8613 §8.2", all(code in ("4.01", None) for code in codes_seen), codes_seen)
        expect("the value", (await warden.get(device.topic)).payload, b"second")
        expect("nonces used twice", device.nonces.twice(), [])
        await warden.close()
        wire.transport.close()


@scenario
async def our_client_speaks_oscore_with_aiocoaps_server(binary):
    class Store(resource.Resource):
        value = b"nothing yet"

        async def render_get(self, request):
            return aiocoap.Message(payload=self.value)

        async def render_put(self, request):
            type(self).value = request.payload
            return aiocoap.Message(code=codes.CHANGED)

    async with LockedGateway(binary, contexts=[("alice", "server")]) as gateway:
        place = gateway.ring.contexts["alice", "server"]
        site = resource.Site()
        site.add_resource(["ps", "open", "a"], Store())
        keys = CredentialsMap()
        keys.load_from_dict({":alice": {"oscore": {"basedir": str(place / "server") + "/"}}})
        with tempfile.TemporaryDirectory() as home:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            server = await aiocoap.Context.create_server_context(
                OscoreSiteWrapper(site, keys), bind=("127.0.0.1", port), transports=["simplesocketserver"])
            url, flags = f"coap://127.0.0.1:{port}/open/a", ["--oscore", str(place / "client")]
            for _ in range(2):
                code, out, err = await run(binary, "pub", *flags, "--retain", url, "said under OSCORE", patience=30)
                require("pub:", code == 0, (out + err).decode())
            expect("what the server has", Store.value, b"said under OSCORE")
            code, out, err = await run(binary, "get", *flags, url, patience=30)
            require("get:", code == 0 and out.strip() == b"said under OSCORE", f"{code} {out!r} {err!r}")
            await server.shutdown()
            _ = home
            # aiocoap writes the context down when it lets go of it; the directory has to be there still.
            del server, site, keys


@scenario
async def what_fogmux_pki_makes_is_good_for_others(binary):
    async with LockedGateway(binary) as gateway:
        with tempfile.TemporaryDirectory() as home:
            for label, kind in (("p256", "ecdsa"), ("rsa", "rsa2048")):
                await gateway.fogmux("pki", "client", "alice", "--out", f"{home}/{label}", "--key", kind)
                certificate, key = Path(home, f"{label}.pem"), Path(home, f"{label}.key")
                code, out, err = await run(
                    "openssl", "verify", "-purpose", "sslclient", "-CAfile", gateway.ca, str(certificate))
                require(f"{label}: openssl verify", code == 0, (out + err).decode())
                expect("the key's mode", key.stat().st_mode & 0o077, 0)
                credential = Credential(certificate=(str(certificate), str(key)))
                await CurlH2(gateway, credential).publish("open/made", label.encode(), TEXT)
            made = await gateway.fogmux("pki", "psk", "sensor", "--user", "alice")
            identity, _, secret = made.strip().partition(":")
            require("16 bytes of a key", len(bytes.fromhex(secret)) >= 16)
            await gateway.fogmux("pki", "oscore", "alice", "--format", "aiocoap", "--out", f"{home}/context")
            gateway.process.send_signal(signal.SIGHUP)
            device = Device(0, f"{home}/context", Nonces())
            wire = await Wire.to(gateway.coap_address())

            async def answered():
                try:
                    return await device.request(wire, codes.PUT, 1, payload=b"by a new context")
                except oscore.NotAProtectedMessage:
                    return None
            answer = await until("the new context is known", answered)
            expect("PUT with it", answer.code, codes.CREATED)

            async def agreed():
                return await s_client(gateway.addresses["coaps"], "-dtls1_2", "-psk", secret, "-psk_identity", identity)
            require("the new key is known", await until("the new key is known", agreed))
            listed = await gateway.fogmux("pki", "list")
            require("pki list shows no key", "PRIVATE" not in listed and secret not in listed, listed)
            let_go_of_contexts(home)


@scenario
async def our_client_shows_every_credential(binary):
    async with LockedGateway(binary, contexts=[("alice", "cli")]) as gateway:
        ring = gateway.ring
        certificate, key = ring.certificates["alice"]
        local = {name: f"localhost:{port}" for name, (_, port) in gateway.addresses.items()}
        direct = {name: f"{host}:{port}" for name, (host, port) in gateway.addresses.items()}
        named = ["--user", "alice", "--password", "alice's password"]
        shown = ["--cert", certificate, "--key", key]
        token = ring.place / "token"
        private(token, ring.token("alice") + "\n")
        borne = ["--token-file", str(token)]
        shared = ["--psk-id", "alice", "--psk", ring.psks["alice"].hex()]
        context = ["--oscore", str(ring.contexts["alice", "cli"] / "client")]
        ways = [(f"{scheme}://{local[door]}", keys) for scheme, door in (
                    ("mqtts", "mqtts"), ("wss", "https"), ("https", "https"), ("xmpp", "xmpp"), ("xmpps", "xmpps"))
                for keys in (named, shown, borne)]
        ways += [(f"mqtts://{local['mqtts']}", ["--mqtt", "3.1.1", "--token", ring.token("alice")])]
        ways += [(f"coaps://{direct['coaps']}", shared), (f"coaps://{local['coaps']}", shown),
                 (f"coaps+tcp://{local['coaps_tcp']}", shown), (f"coap://{direct['coap']}", context),
                 (f"coap+tcp://{direct['coap_tcp']}", context)]
        problems = []
        for number, (url, keys) in enumerate(ways):
            topic, payload = f"open/cli/{number}", f"said by {url}"
            for words, wanted in ((["pub", "--retain", f"{url}/{topic}", payload], None),
                                  (["get", f"{url}/{topic}"], payload)):
                code, out, err = await run(binary, words[0], "--ca", gateway.ca, *keys, *words[1:])
                if code != 0 or wanted is not None and out.decode().strip() != wanted:
                    problems.append(f"{words[0]} {url} {keys[0]}: exit {code} {out!r} {err.decode().strip()}")
            code, _, _ = await run(binary, "pub", "--ca", gateway.ca, *keys, f"{url}/open/secret/x", payload)
            if code == 0:
                problems.append(f"pub {url} {keys[0]}: the secret is no secret")
        require("all of them:", not problems, "\n    ".join(problems))


@scenario
async def a_relayed_login_is_found_out_by_its_binding(binary):
    async with LockedGateway(binary) as gateway:
        for mechanism in ("SCRAM-SHA-256-PLUS", "SCRAM-SHA-1-PLUS"):
            client = RawXmpp(gateway, gateway.ring.right("password", "alice", ""))
            client.mechanism, client.spoiled = mechanism, True
            try:
                await client.open()
            except Refused as refusal:
                expect(mechanism, refusal.code, "not-authorized")
            else:
                require(f"{mechanism} with another connection's binding lets nobody in", False)


@scenario
async def a_reload_brings_new_keys_and_cuts_nobody(binary):
    async with LockedGateway(binary) as gateway:
        data, alice = Path(gateway.data), gateway.ring.right("password", "alice", "")
        connection = Connection(gateway, paho.MQTTv5, TLS, credential=alice)
        await connection.open()
        await gateway.fogmux("passwd", "carol", stdin=b"carol's password\n")
        rules = (data / "acl.toml").read_text()
        (data / "acl.toml").write_text(rules + '\n[[allow]]\nuser = "carol"\nboth = ["carol/#"]\n')
        gateway.process.send_signal(signal.SIGHUP)
        carol = Credential(user="carol", password="carol's password")

        async def admitted():
            try:
                await CurlH2(gateway, carol).publish("carol/a", b"x", TEXT)
            except Refused:
                return False
            return True
        await until("carol comes in", admitted, 10)
        await connection.publish("open/still", b"here")
        # Rules that cannot be read are no rules to go by: the old ones hold.
        (data / "acl.toml").write_text('[[allow]]\nuser = "mallory"\nboth = [')
        gateway.process.send_signal(signal.SIGHUP)

        async def said():
            return "acl.toml" in gateway.log_tail(50)
        await until("the problem is logged", said)
        expect("carol still", await admitted(), True)
        await connection.publish("open/still", b"here")
        await connection.close()


class Callback:
    """An HTTP service that knows users, as little of one as there can be."""

    def __init__(self):
        self.asked, self.behave = [], "answer"

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}/auth"
        return self

    async def __aexit__(self, *_):
        self.server.close()

    async def _serve(self, reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: *(\d+)", head)
                body = await reader.readexactly(int(length.group(1)) if length else 0)
                self.asked.append(json.loads(body))
                if self.behave == "silence":
                    await asyncio.sleep(30)
                known = {"dora": "dora's password"}
                good = known.get(self.asked[-1].get("user")) == self.asked[-1].get("password")
                status = b"500 Broken" if self.behave == "broken" else b"200 OK" if good else b"401 Unauthorized"
                answer = json.dumps({"allow": good, "groups": ["outside"]}).encode()
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Type: application/json\r\nContent-Length: "
                             + str(len(answer)).encode() + b"\r\n\r\n" + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@scenario
async def users_kept_elsewhere_are_asked_for_and_silence_is_a_no(binary):
    async with Callback() as service:
        class Calling(LockedGateway):
            def keys_config(self):
                return f'[auth.callback]\nurl = "{service.url}"\ntimeout = "1s"\ncache = "30s"'

            async def furnish(self):
                await super().furnish()
                with open(Path(self.data, "acl.toml"), "a") as rules:
                    rules.write('\n[[allow]]\ngroup = "outside"\nboth = ["open/#"]\n')

        async with Calling(binary) as gateway:
            dora = Credential(user="dora", password="dora's password")
            await CurlH2(gateway, dora).publish("open/dora", b"x", TEXT)
            asked = len(service.asked)
            require("it was asked", asked >= 1)
            await CurlH2(gateway, dora).publish("open/dora", b"y", TEXT)
            expect("the second time it is remembered", len(service.asked), asked)
            for behave, user in (("answer", "eve"), ("broken", "fred"), ("silence", "gina")):
                service.behave = behave
                try:
                    await CurlH2(gateway, Credential(user=user, password="x")).publish("open/dora", b"z", TEXT)
                except Refused as refusal:
                    require(f"{behave} is a no", refusal.code in ("401", "503"), refusal.code)
                else:
                    require(f"{behave} lets {user} in", False)
