"""DTLS of others with the gateway and with our client: who is let in, by what, and what survives another address."""

import asyncio
import itertools
import subprocess
from pathlib import Path

from aiocoap.numbers import codes
from aiocoap.numbers.types import ACK, CON, RST

from client import Missing, Refused, run
from clients_dtls import GNUTLS, MBEDTLS, TINYDTLS, TOKIO_DTLS, WOLFSSL, Libcoap, Server
from clients_dtls import gnutls, mbed, tiny, tokio_dtls, wolf
from keyring import Authority, LockedGateway
from scenarios import expect, require, scenario

SUITES = {
    "TLS13-AES128-GCM-SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS13-AES128-CCM-SHA256": "TLS_AES_128_CCM_SHA256",
    "TLS13-AES128-CCM-8-SHA256": "TLS_AES_128_CCM_8_SHA256",
}
"""wolfSSL's names and IANA's."""


async def _turned_away(gateway, kind, peer, *more):
    """A client whose credentials are wrong has no session."""
    for what, credential in gateway.ring.wrong(kind, "").items():
        try:
            async with peer(gateway, credential, *more) as session:
                # The last word of a handshake is the gateway's: what it thinks of a certificate comes after.
                await session.put("open/dtls/wrong", b"wrong")
        except (Refused, Missing):
            continue
        require(what, False, "was let in")


async def _carries_every_size(gateway, kind, peer):
    """A client reads back the bytes that it writes."""
    for size in (0, 1, 16, 1000):
        async with peer(gateway, gateway.ring.right(kind, "alice", "")) as session:
            for number in range(20):
                payload = bytes([number]) * size
                await session.put("open/dtls/sizes", payload)
                expect(f"{size} bytes", await session.get("open/dtls/sizes"), payload)


@scenario
async def wolfssl_makes_sessions_of_dtls_1_3_by_every_suite_group_and_kind_of_key(binary):
    async with LockedGateway(binary) as gateway:
        topics = itertools.count()
        for kind, suite in itertools.product(("psk", "certificate"), SUITES):
            # A share of each group; none, so that the gateway has to ask for one; and an identifier, which both want.
            for flags in (["--group", "x25519"], ["--group", "secp256r1"], ["--no-share"], ["--cid", "c0ffee"]):
                credential = gateway.ring.right(kind, "alice", "")
                topic, what = f"open/dtls/{next(topics)}", f"{kind} {suite} {flags}"
                async with wolf(gateway, credential, "1.3", "--suite", suite, *flags) as session:
                    require(what, session.protocol == "DTLSv1.3", session.protocol)
                    require(what, session.suite in (suite, SUITES[suite]), session.suite)
                    require(what, ("--cid" in flags) == (session.cid != "-"), session.cid)
                    await session.put(topic, what.encode())
                    expect(what, await session.get(topic), what.encode())


@scenario
async def wolfssl_is_let_in_to_what_is_its_own_and_nothing_else(binary):
    async with LockedGateway(binary) as gateway:
        for kind in ("psk", "certificate"):
            await _turned_away(gateway, kind, wolf)
        async with wolf(gateway, gateway.ring.right("psk", "bob", "")) as session:
            try:
                await session.put("open/dtls/bob", b"bob only reads")
            except Refused as refused:
                expect("bob", refused.code, "4.03")
            else:
                require("bob", False, "may write")


@scenario
async def wolfssl_gets_the_version_it_asks_for(binary):
    async with LockedGateway(binary) as gateway:
        psk = gateway.ring.right("psk", "alice", "")
        for version, protocol in (("1.3", "DTLSv1.3"), ("both", "DTLSv1.3")):
            async with wolf(gateway, psk, version) as session:
                expect(version, session.protocol, protocol)
        certificate = gateway.ring.right("certificate", "alice", "")
        async with wolf(gateway, certificate, "1.2", "--suite", "ECDHE-ECDSA-AES128-GCM-SHA256") as session:
            expect("1.2", session.protocol, "DTLSv1.2")
            await session.put("open/dtls/older", b"as before")


@scenario
async def wolfssl_keeps_its_session_at_other_ports_and_with_other_keys(binary):
    async with LockedGateway(binary, "[workers]\ncount = 3\n") as gateway:
        older = ["--suite", "ECDHE-ECDSA-AES128-GCM-SHA256"]
        for kind, version, flags in (("psk", "1.3", []), ("certificate", "1.3", []), ("certificate", "1.2", older)):
            credential = gateway.ring.right(kind, "alice", "")
            async with wolf(gateway, credential, version, "--cid", "0102030405", *flags) as session:
                require(f"{version}: the gateway hands out an identifier", len(session.cid) == 16, session.cid)
                for number in range(12):
                    # Every few ports the kernel gives it to another worker.
                    expect("rebind", await session.tell("rebind"), "moved")
                    await session.put("open/dtls/moving", b"%d" % number)
                    if number % 4 == 0 and version == "1.3":
                        expect("update", await session.tell("update"), "updated")
                expect("what it said last", await session.get("open/dtls/moving"), b"11")
            # Without an identifier it is nobody at another port.
            async with wolf(gateway, credential, version, *flags) as session:
                await session.put("open/dtls/moving", b"at home")
                await session.tell("rebind")
                try:
                    await session.put("open/dtls/moving", b"elsewhere")
                except Missing:
                    continue
                require("without identifier", False, "was heard")


@scenario
async def wolfssl_is_notified_of_the_newest_value_at_every_port_it_moves_to(binary):
    """An address that it has moved to gets three times what came from there, until an answer to a ping validates it."""
    async with LockedGateway(binary, "[workers]\ncount = 3\n") as gateway:
        credential = gateway.ring.right("psk", "alice", "")
        older = ["--suite", "PSK-AES128-CCM-8"]
        for version, flags in (("1.3", []), ("1.2", older)):
            topic, values = f"open/dtls/observed/{version}", (b"%d" % number + b"." * 600 for number in itertools.count())
            async with wolf(gateway, credential, version) as writer, \
                    wolf(gateway, credential, version, "--cid", "0102030405", *flags) as session:
                await writer.put(topic, next(values))
                await session.request(codes.GET, f"ps/{topic}", observe=0)
                for move in range(4):
                    expect("rebind", await session.tell("rebind"), "moved")
                    # The only message from there besides those that CoAP asks of every endpoint.
                    await session.empty(CON, 9000 + move)
                    for _ in range(6):
                        newest = next(values)
                        await writer.put(topic, newest)
                    require(f"{version}, move {move}", await _reads_up_to(session, newest), "ends on an old value")


async def _reads_up_to(session, newest):
    """Answers as every endpoint does (RFC 7252 §4.2, §4.3) until this value has come."""
    while (message := await session.receive()) is not None:
        if message.mtype == CON:
            await session.empty(RST if message.code == codes.EMPTY else ACK, message.mid)
        if message.payload == newest:
            return True
    return False


MBEDTLS_SUITES = {
    "psk": ("TLS-PSK-WITH-AES-128-CCM-8", "TLS-PSK-WITH-AES-128-CCM", "TLS-PSK-WITH-AES-128-GCM-SHA256"),
    "certificate": ("TLS-ECDHE-ECDSA-WITH-AES-128-CCM-8", "TLS-ECDHE-ECDSA-WITH-AES-128-CCM",
                    "TLS-ECDHE-ECDSA-WITH-AES-128-GCM-SHA256"),
}
"""mbedTLS' names of the suites of DTLS 1.2 that it and we have."""


def version(*command):
    """Returns the version that a program prints, for the output of the tests."""
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@scenario
async def mbedtls_makes_sessions_of_dtls_1_2_by_every_suite_and_kind_of_key(binary):
    print(f"  mbedTLS: {version(*MBEDTLS, 'version')}")
    async with LockedGateway(binary) as gateway:
        for kind, suites in MBEDTLS_SUITES.items():
            credential = gateway.ring.right(kind, "alice", "")
            for number, suite in enumerate(suites):
                async with mbed(gateway, credential, suite) as session:
                    expect(suite, (session.protocol, session.suite), ("DTLSv1_2", suite))
                    await session.put(f"open/dtls/mbed/{kind}/{number}", suite.encode())
                    expect(suite, await session.get(f"open/dtls/mbed/{kind}/{number}"), suite.encode())
            await _turned_away(gateway, kind, mbed, suites[0])


@scenario
async def tinydtls_makes_sessions_of_dtls_1_2_with_a_key_in_both_roles(binary):
    print(f"  tinydtls: {version(*TINYDTLS, 'version')}")
    async with LockedGateway(binary) as gateway:
        await _carries_every_size(gateway, "psk", tiny)
        await _turned_away(gateway, "psk", tiny)
        key = gateway.ring.psks["alice"]
        async with Server(*TINYDTLS, "server", "--psk", "alice", key.decode()) as server:
            by_key = ["--psk-id", "alice", "--psk", key.hex()]
            await _ask(binary, "tinydtls as a server", server, "some/where", by_key, b"tiny")
            expect("version", server.protocol, "DTLSv1.2")


@scenario
async def tokio_dtls_makes_sessions_of_dtls_1_3(binary):
    async with LockedGateway(binary) as gateway:
        await _carries_every_size(gateway, "certificate", tokio_dtls)
        await _turned_away(gateway, "certificate", tokio_dtls)


@scenario
async def tokio_dtls_is_sent_no_more_than_it_takes_in_a_record(binary):
    """RFC 8449: a value that would not fit is cut into blocks that do, besides 48 bytes of CoAP and one of DTLS."""
    async with LockedGateway(binary) as gateway:
        alice, whole = gateway.ring.right("certificate", "alice", ""), bytes(range(250)) * 4
        for limit, size in ((64, 16), (200, 128), (1000, 512), (1200, 1024), (16385, 1024)):
            async with tokio_dtls(gateway, alice, "--limit", str(limit)) as session:
                await session.put("open/dtls/limit", whole)
                blocks = await session.get_blocks("open/dtls/limit")
                expect(f"limit of {limit}", b"".join(blocks), whole)
                expect(f"limit of {limit}", max(map(len, blocks)), min(size, len(whole)))


class RsaGateway(LockedGateway):
    """With a certificate of its operator's, whose key is of RSA."""

    async def furnish(self):
        await super().furnish()
        self.server = Authority.load(Path(self.data) / "pki").server(self.ring.place, "server", 2048)

    def config_text(self):
        certificate, key = self.server
        return f'{super().config_text()}[tls]\ncertificate_file = "{certificate}"\nkey_file = "{key}"\n'


@scenario
async def gnutls_is_sent_no_more_than_it_takes_in_a_record(binary):
    """RFC 8449 exempts records in the clear, GnuTLS does not, and it reads of a datagram one record's worth."""
    print(f"  GnuTLS: {version(*GNUTLS, 'version')}")
    small = ["--priority", "NORMAL:-VERS-ALL:+VERS-DTLS1.2:%ALLOW_SMALL_RECORDS"]
    whole = bytes(range(250)) * 4
    for kind in (LockedGateway, RsaGateway):
        async with kind(binary) as gateway:
            credential = gateway.ring.right("certificate", "alice", "")
            for limit in (0, 64, 65, 200, 512, 513, 800, 1024, 16384):
                what = f"{kind.__name__}, limit of {limit}"
                async with gnutls(gateway, credential, "--limit", str(limit), *(small if limit else [])) as session:
                    expect(what, session.protocol, "DTLS1.2")
                    await session.put("open/dtls/limit", whole)
                    expect(what, b"".join(await session.get_blocks("open/dtls/limit")), whole)


async def _ask(binary, what, server, path, flags, payload, update=False):
    """Our client asks a server of others'; both ends have to be content."""
    url = f"coaps://127.0.0.1:{server.port}/{path}"
    asking = asyncio.create_task(run(binary, "get", *flags, "--timeout", "20", url))
    asked = await server.answer(payload, update)
    code, out, err = await asking
    expect(what, (code, out), (0, payload))
    require(what, path in asked, asked)


@scenario
async def our_client_speaks_dtls_with_servers_of_others(binary):
    print(f"  wolfSSL: {version(*WOLFSSL, 'version')}")
    async with LockedGateway(binary) as gateway:
        ring = gateway.ring
        key = ring.psks["alice"]
        by_key = ["--psk-id", "alice", "--psk", key.hex()]
        chain, private = ring.certificates["alice"]
        by_certificate = ["--ca", gateway.ca, "--cert", chain, "--key", private]
        own = ["--ca", gateway.ca, "--cert", *(f"{gateway.data}/pki/server.{end}" for end in ("pem", "key"))]
        shared = ["--psk", "alice", key.decode()]
        servers = {
            "mbedTLS, certificate": ([*MBEDTLS, "server", "--suite", MBEDTLS_SUITES["certificate"][2], *own],
                                     by_certificate),
            "wolfSSL, DTLS 1.2, certificate": ([*WOLFSSL, "server", "0", "1.2", *own], by_certificate),
        }
        for suite in MBEDTLS_SUITES["psk"]:
            servers[f"mbedTLS, {suite}"] = ([*MBEDTLS, "server", "--suite", suite, *shared], by_key)
        for suite in ("PSK-AES128-CCM-8", "PSK-AES128-CCM", "PSK-AES128-GCM-SHA256"):
            servers[f"wolfSSL, DTLS 1.2, {suite}"] = (
                [*WOLFSSL, "server", "0", "1.2", "--suite", suite, *shared], by_key)
        for what, (command, flags) in servers.items():
            async with Server(*command) as server:
                await _ask(binary, what, server, "some/where", flags, what.encode())


@scenario
async def our_client_makes_sessions_of_dtls_1_3_with_wolfssl(binary):
    async with LockedGateway(binary) as gateway:
        key = gateway.ring.psks["alice"]
        chain, private = gateway.ring.certificates["alice"]
        serving = ["--cert", *(f"{gateway.data}/pki/server.{end}" for end in ("pem", "key"))]
        ways = {
            "key": (["--psk", "alice", key.decode()], ["--psk-id", "alice", "--psk", key.hex()]),
            "certificate": (serving, ["--ca", gateway.ca]),
            "certificates": ([*serving, "--ca", gateway.ca], ["--ca", gateway.ca, "--cert", chain, "--key", private]),
        }
        for way, (theirs, ours) in ways.items():
            for suite, group, update in itertools.product(SUITES, ("x25519", "secp256r1"), (False, True)):
                what = f"{way} {suite} {group}{' update' * update}"
                command = [*WOLFSSL, "server", "0", "1.3", *theirs, "--suite", suite, "--group", group]
                async with Server(*command) as server:
                    await _ask(binary, what, server, "some/where", ours, what.encode(), update)
                    require(what, server.protocol == "DTLSv1.3", server.protocol)
                    require(what, server.suite in (suite, SUITES[suite]), server.suite)
                    expect(what, server.group.lower(), group)
                    expect(what, await server.tell("receive 3000"), "closed")
            # Both sides offer both.
            async with Server(*WOLFSSL, "server", "0", "both", *theirs) as server:
                await _ask(binary, way, server, "some/where", ours, b"both")
                expect(way, server.protocol, "DTLSv1.3")


@scenario
async def our_client_makes_sessions_of_dtls_1_3_with_tokio_dtls(binary):
    async with LockedGateway(binary) as gateway:
        chain, private = gateway.ring.certificates["alice"]
        known = [*TOKIO_DTLS, "server", gateway.ca, *(f"{gateway.data}/pki/server.{end}" for end in ("pem", "key"))]
        by_certificate = ["--ca", gateway.ca, "--cert", chain, "--key", private]
        # With the smaller limits our certificate has to come in pieces (RFC 8449).
        for size, limit in itertools.product((1, 16, 1000), (64, 200, 16385)):
            async with Server(*known, "--limit", str(limit)) as server:
                what = f"{size} bytes, records of {limit}"
                await _ask(binary, what, server, "some/where", by_certificate, b"7" * size)
                expect(what, server.protocol, "DTLSv1.3")


@scenario
async def our_client_sends_gnutls_no_more_than_it_takes_in_a_record(binary):
    async with LockedGateway(binary) as gateway:
        chain, private = gateway.ring.certificates["alice"]
        own = ["--ca", gateway.ca, "--cert", *(f"{gateway.data}/pki/server.{end}" for end in ("pem", "key"))]
        by_certificate = ["--ca", gateway.ca, "--cert", chain, "--key", private]
        for limit in (0, 512, 513, 800, 16384):
            async with Server(*GNUTLS, "server", *own, "--limit", str(limit)) as server:
                await _ask(binary, f"limit of {limit}", server, "some/where", by_certificate, b"within limits")
                expect("version", server.protocol, "DTLS1.2")


@scenario
async def our_client_speaks_dtls_with_libcoap_over_openssl_and_gnutls(binary):
    async with LockedGateway(binary) as gateway:
        key = gateway.ring.psks["alice"]
        chain, private = gateway.ring.certificates["alice"]
        own = ["-c", f"{gateway.data}/pki/server.pem", "-j", f"{gateway.data}/pki/server.key", "-C", gateway.ca]
        kinds = {
            "key": (["-k", key.decode()], ["--psk-id", "alice", "--psk", key.hex()]),
            "certificate": (own, ["--ca", gateway.ca, "--cert", chain, "--key", private]),
        }
        for library, kind in itertools.product(("openssl", "gnutls"), kinds):
            keys, flags = kinds[kind]
            async with Libcoap(library, *keys) as server:
                print(f"  {server.version()}: {kind}")
                url = f"coaps://127.0.0.1:{server.port}/some/where"
                what = f"{library} {kind}".encode()
                code, _, err = await run(binary, "pub", *flags, url, what.decode())
                expect(f"{library} {kind}", (code, err), (0, b""))
                code, out, err = await run(binary, "get", *flags, "--timeout", "20", url)
                expect(f"{library} {kind}", (code, out), (0, what))
