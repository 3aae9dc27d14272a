"""Profiles: the versions and cipher suites that a listener agrees on, and the credentials it takes."""

import re
import tempfile
from pathlib import Path

import paho.mqtt.client as paho

from access import TLS_PSK_ROWS, Access
from client import Missing, Refused, run
from clients_mqtt import TLS, Connection
from credential import Credential
from keyring import Authority, LockedGateway
from report import Report
from scenarios import expect, require, scenario


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
