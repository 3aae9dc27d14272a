"""Keys as keys: cipher suites, revocation while running, replays, our own client with others' servers, reloads."""

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

from access import TLS_PSK_ROWS, Access, Warden
from client import Missing, Refused, run
from clients_coap import Libcoap
from clients_http import REQUESTS
from clients_mqtt import TLS, Connection
from clients_xmpp_raw import RawXmpp
from credential import Credential
from gateway import let_go_of_contexts
from keyring import Authority, LockedGateway, private
from powercut import Device, Nonces, Wire
from report import Report
from scenarios import expect, require, scenario, until

TEXT = "text/plain;charset=utf-8"
CurlH2 = next(client for client in REQUESTS if client.name == "curl h2")


async def s_client(address, *flags) -> tuple[str, str] | None:
    """Protocol and cipher suite that OpenSSL's own client agrees on, or None when there is no agreement."""
    host, port = address
    _, out, err = await run("openssl", "s_client", "-connect", f"{host}:{port}", "-brief", *flags, stdin=b"")
    text = (out + err).decode(errors="replace")
    protocol, suite = re.search(r"Protocol version: (\S+)", text), re.search(r"Ciphersuite: (\S+)", text)
    return (protocol.group(1), suite.group(1)) if protocol and suite else None


VERSIONS = {"TLSv1.2": "-tls1_2", "TLSv1.3": "-tls1_3", "DTLSv1.2": "-dtls1_2"}


async def agree(gateway, listener, wanted, *flags):
    """Each suite alone is agreed on; `wanted` maps s_client's flag and name to the protocol."""
    problems = []
    for (flag, name), protocol in wanted.items():
        level = "" if flag == "-ciphersuites" else ":@SECLEVEL=0"
        came = await s_client(gateway.addresses[listener], VERSIONS[protocol], flag, name + level, *flags)
        if came != (protocol, name):
            problems.append(f"{listener} {name}: {came}")
        else:
            print(f"    {listener}: {protocol} {name}")
    require("suites", not problems, "; ".join(problems))


def suites(protocol, flag, *names):
    return {(flag, name): protocol for name in names}


class Profiled(LockedGateway):
    """One listener with a profile of its own."""

    profile, listener = "modern", "mqtts"
    server_bits = 0

    async def furnish(self):
        await super().furnish()
        authority = Authority.load(Path(self.data) / "pki")
        if self.server_bits:
            self.server = authority.server(self.ring.place, "server", self.server_bits)
            self.visitor = authority.client(self.ring.place, "visitor", "alice", bits=self.server_bits)

    def config_text(self):
        weak = "allow_weak = true\n" if self.profile == "low" else ""
        self.extra = {self.listener: f'profile = "{self.profile}"\n{weak}'}
        text = as_the_profile_says(super().config_text())
        if self.server_bits:
            text += f'[tls]\ncertificate_file = "{self.server[0]}"\nkey_file = "{self.server[1]}"\n'
        return text


def as_the_profile_says(config: str) -> str:
    """Without a word of our own about certificates in sections that name a profile."""
    return "\n[".join(section.replace('client_certificates = "optional"', "") if "profile = " in section else section
                     for section in config.split("\n["))


def profiled(profile, bits=0):
    return type(f"Profile_{profile}", (Profiled,), {"profile": profile, "server_bits": bits})


@scenario
async def modern_agrees_on_strong_suites_only(binary):
    async with LockedGateway(binary) as gateway:
        for listener in ("mqtts", "https", "xmpps", "coaps_tcp"):
            await agree(gateway, listener, {
                **suites("TLSv1.3", "-ciphersuites", "TLS_AES_256_GCM_SHA384", "TLS_AES_128_GCM_SHA256",
                         "TLS_CHACHA20_POLY1305_SHA256"),
                **suites("TLSv1.2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256",
                         "ECDHE-ECDSA-CHACHA20-POLY1305")})
        for flags in (["-tls1_2", "-cipher", "AES128-GCM-SHA256:@SECLEVEL=0"],
                      ["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
                      ["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA:@SECLEVEL=0"],
                      ["-tls1_2", "-cipher", "aNULL:eNULL:@SECLEVEL=0"]):
            expect(f"{flags}", await s_client(gateway.addresses["mqtts"], *flags), None)


@scenario
async def dtls_agrees_on_the_suites_of_rfc_7252_and_their_gcm_kin(binary):
    async with LockedGateway(binary) as gateway:
        identity, secret = "alice", gateway.ring.psks["alice"].hex()
        await agree(gateway, "coaps", suites("DTLSv1.2", "-cipher", "PSK-AES128-CCM8", "PSK-AES128-GCM-SHA256"),
                    "-psk", secret, "-psk_identity", identity)
        certificate, key = gateway.ring.certificates["alice"]
        await agree(gateway, "coaps", suites(
            "DTLSv1.2", "-cipher", "ECDHE-ECDSA-AES128-CCM8", "ECDHE-ECDSA-AES128-GCM-SHA256"),
            "-cert", certificate, "-key", key, "-CAfile", gateway.ca)
        expect("CBC", await s_client(gateway.addresses["coaps"], "-dtls1_2", "-psk", secret, "-psk_identity", identity,
                                     "-cipher", "PSK-AES128-CBC-SHA256:@SECLEVEL=0"), None)


@scenario
async def the_profile_psk_takes_pre_shared_keys_over_tls(binary):
    class Psk(Profiled):
        profile = "psk"

        def config_text(self):
            text = super().config_text()
            head = "[listeners.coaps_tcp]\n"
            return as_the_profile_says(text.replace(head, f'{head}profile = "psk"\n'))

    async with Psk(binary) as gateway:
        identity, secret = "alice", gateway.ring.psks["alice"].hex()
        keys = ["-psk", secret, "-psk_identity", identity]
        await agree(gateway, "mqtts", suites("TLSv1.2", "-cipher", "PSK-AES128-CCM8", "PSK-AES128-GCM-SHA256"),
                    *keys)
        came = await s_client(gateway.addresses["mqtts"], "-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256", *keys)
        expect("external PSK (RFC 8446 §2.2)", came, ("TLSv1.3", "TLS_AES_128_GCM_SHA256"))
        expect("a wrong key", await s_client(
            gateway.addresses["mqtts"], "-tls1_2", "-psk", "00" * 16, "-psk_identity", identity,
            "-cipher", "PSK-AES128-GCM-SHA256:@SECLEVEL=0"), None)
        report = Report()
        await Access(gateway, report).run(TLS_PSK_ROWS)
        require("mosquitto's and libcoap's clients", not report.failures, "\n    ".join(report.failures))


@scenario
async def the_profile_pki_is_ecdsa_with_ccm_8(binary):
    async with profiled("pki")(binary) as gateway:
        certificate, key = gateway.ring.certificates["alice"]
        await agree(gateway, "mqtts", suites("TLSv1.2", "-cipher", "ECDHE-ECDSA-AES128-CCM8"),
                    "-cert", certificate, "-key", key)


@scenario
async def the_profile_low_is_rsa_key_exchange(binary):
    async with profiled("low", 2048)(binary) as gateway:
        await agree(gateway, "mqtts", suites("TLSv1.2", "-cipher", "AES128-GCM-SHA256"))
        expect("nothing newer", await s_client(gateway.addresses["mqtts"], "-tls1_3"), None)


@scenario
async def the_profile_high_wants_aes_256_and_a_certificate(binary):
    async with profiled("high", 4096)(binary) as gateway:
        certificate, key = gateway.visitor
        await agree(gateway, "mqtts", suites("TLSv1.3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"),
                    "-cert", certificate, "-key", key)
        for flags in (["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"], ["-tls1_2"]):
            came = await s_client(gateway.addresses["mqtts"], *flags, "-cert", certificate, "-key", key)
            expect(f"{flags}", came, None)
        alice = Connection(gateway, paho.MQTTv5, TLS, credential=Credential(certificate=gateway.visitor))
        await alice.open()
        await alice.publish("open/high", b"x")
        await alice.close()
        try:
            await Connection(gateway, paho.MQTTv5, TLS, credential=gateway.ring.right("password", "alice", "")).open()
        except (Refused, Missing):
            pass
        else:
            require("nobody without a certificate comes in", False)


@scenario
async def a_weak_profile_has_to_be_allowed(binary):
    with tempfile.TemporaryDirectory() as home:
        file = Path(home, "weak.toml")
        for profile in ("low", "none"):
            file.write_text(f'[listeners.mqtts]\nprofile = "{profile}"\n')
            code, out, err = await run(binary, "check", str(file))
            require(f"{profile} is refused:", code == 78 and b"allow_weak" in out + err, f"{code} {out + err}")
            file.write_text(f'[listeners.mqtts]\nprofile = "{profile}"\nallow_weak = true\n')
            code, out, err = await run(binary, "check", str(file))
            expect(f"{profile} allowed {(out + err).decode()}", code, 0)


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
