"""DTLS 1.3 and identifiers, spoken by wolfSSL with the gateway: who is let in, and what survives another address."""

import itertools
from pathlib import Path

from client import Missing, Refused, run
from clients_dtls import WolfServer, WolfSession
from keyring import LockedGateway
from scenarios import expect, require, scenario

SUITES = {
    "TLS13-AES128-GCM-SHA256": "TLS_AES_128_GCM_SHA256",
    "TLS13-AES128-CCM-SHA256": "TLS_AES_128_CCM_SHA256",
    "TLS13-AES128-CCM-8-SHA256": "TLS_AES_128_CCM_8_SHA256",
}
"""wolfSSL's names and IANA's."""


@scenario
async def wolfssl_makes_sessions_of_dtls_1_3_by_every_suite_group_and_kind_of_key(binary):
    async with LockedGateway(binary) as gateway:
        topics = itertools.count()
        for kind, suite in itertools.product(("psk", "certificate"), SUITES):
            # A share of each group; none, so that the gateway has to ask for one; and an identifier, which both want.
            for flags in (["--group", "x25519"], ["--group", "secp256r1"], ["--no-share"], ["--cid", "c0ffee"]):
                credential = gateway.ring.right(kind, "alice", "")
                topic, what = f"open/dtls/{next(topics)}", f"{kind} {suite} {flags}"
                async with WolfSession(gateway, credential, "1.3", "--suite", suite, *flags) as session:
                    require(what, session.protocol == "DTLSv1.3", session.protocol)
                    require(what, session.suite in (suite, SUITES[suite]), session.suite)
                    require(what, ("--cid" in flags) == (session.cid != "-"), session.cid)
                    await session.put(topic, what.encode())
                    expect(what, await session.get(topic), what.encode())


@scenario
async def wolfssl_is_let_in_to_what_is_its_own_and_nothing_else(binary):
    async with LockedGateway(binary) as gateway:
        for kind in ("psk", "certificate"):
            for what, credential in gateway.ring.wrong(kind, "").items():
                try:
                    async with WolfSession(gateway, credential) as session:
                        # The last word of a handshake is the gateway's: what it thinks of a certificate comes after.
                        await session.put("open/dtls/wrong", b"wrong")
                except (Refused, Missing):
                    continue
                require(what, False, "was let in")
        async with WolfSession(gateway, gateway.ring.right("psk", "bob", "")) as session:
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
            async with WolfSession(gateway, psk, version) as session:
                expect(version, session.protocol, protocol)
        certificate = gateway.ring.right("certificate", "alice", "")
        async with WolfSession(gateway, certificate, "1.2", "--suite", "ECDHE-ECDSA-AES128-GCM-SHA256") as session:
            expect("1.2", session.protocol, "DTLSv1.2")
            await session.put("open/dtls/older", b"as before")


@scenario
async def wolfssl_keeps_its_session_at_other_ports_and_with_other_keys(binary):
    async with LockedGateway(binary, "[workers]\ncount = 3\n") as gateway:
        older = ["--suite", "ECDHE-ECDSA-AES128-GCM-SHA256"]
        for kind, version, flags in (("psk", "1.3", []), ("certificate", "1.3", []), ("certificate", "1.2", older)):
            credential = gateway.ring.right(kind, "alice", "")
            async with WolfSession(gateway, credential, version, "--cid", "0102030405", *flags) as session:
                require(f"{version}: the gateway hands out an identifier", len(session.cid) == 16, session.cid)
                for number in range(12):
                    # Every few ports the kernel gives it to another worker.
                    expect("rebind", await session.tell("rebind"), "moved")
                    await session.put("open/dtls/moving", b"%d" % number)
                    if number % 4 == 0 and version == "1.3":
                        expect("update", await session.tell("update"), "updated")
                expect("what it said last", await session.get("open/dtls/moving"), b"11")
            # Without an identifier it is nobody at another port.
            async with WolfSession(gateway, credential, version, *flags) as session:
                await session.put("open/dtls/moving", b"at home")
                await session.tell("rebind")
                try:
                    await session.put("open/dtls/moving", b"elsewhere")
                except Missing:
                    continue
                require("without identifier", False, "was heard")


@scenario
async def our_client_speaks_to_wolfssl_s_server_in_both_versions(binary):
    async with LockedGateway(binary) as gateway:
        identity, key = gateway.ring.right("psk", "alice", "").psk
        await gateway.fogmux("pki", "client", "dev1")
        pki = Path(gateway.data, "pki")
        own = pki / "clients/dev1.pem", pki / "clients/dev1.key"
        serving = ["--cert", pki / "server.pem", pki / "server.key"]
        ways = {
            "psk": (["--psk", identity, key.decode()], ["--psk-id", identity, "--psk", key.hex()]),
            "certificates": (serving, ["--ca", gateway.ca]),
            "both sides": ([*serving, "--ca", gateway.ca], ["--ca", gateway.ca, "--cert", own[0], "--key", own[1]]),
        }
        for way, (theirs, ours) in ways.items():
            for suite, group, more in itertools.product(SUITES, ("x25519", "secp256r1"), ([], ["--update"])):
                what = f"{way} {suite} {group} {more}"
                async with WolfServer("1.3", *theirs, "--suite", suite, "--group", group, *more) as server:
                    answer = await ask(gateway, server, ours)
                    expect(what, answer.lower(), f"DTLSv1.3 {suite} {group}".lower())
                    require(what, (await server.line()).startswith("established DTLSv1.3"), "no session")
                    expect(what, await server.line(), "closed")
        for version, chosen in (("1.2", "DTLSv1.2"), ("both", "DTLSv1.3")):
            async with WolfServer(version, *serving) as server:
                answer = await ask(gateway, server, ["--ca", gateway.ca])
                require(version, answer.startswith(chosen), answer)


async def ask(gateway, server, credentials):
    """What the server says to `fogmux get`."""
    url = f"coaps://localhost:{server.port}/any"
    code, out, err = await run(gateway.binary, "get", url, "--timeout", "20", *map(str, credentials))
    if code != 0:
        raise Refused((out + err).decode() + await server.line())
    return out.decode().strip()
