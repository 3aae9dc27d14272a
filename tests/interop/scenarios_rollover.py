"""Rollover of the gateway's own authority: who connects in each phase, by clients of others over TLS and DTLS."""

import asyncio
import base64
import json
import shutil
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import paho.mqtt.client as paho

from client import run
from clients_mqtt import TLS, Connection
from credential import Credential
from keyring import LockedGateway
from scenarios import expect, require, scenario, until

TAKEN_OVER_SECONDS = 60
"""A running gateway looks at its files every few seconds; on a busy machine that takes longer."""


@dataclass(frozen=True)
class Device:
    """A device with what it was given at its last visit."""

    name: str
    ca: str
    certificate: str
    key: str

    async def connects(self, gateway) -> dict[str, bool]:
        host, port = gateway.addresses["mqtts"]
        code, out, _ = await run(
            "openssl", "s_client", "-connect", f"{host}:{port}", "-servername", "localhost", "-verify_hostname",
            "localhost", "-verify_return_error", "-CAfile", self.ca, "-cert", self.certificate, "-key", self.key,
            "-alpn", "mqtt", "-ign_eof", stdin=CONNECT)
        by = {"openssl s_client": code == 0 and CONNACK in out}
        code, _, _ = await run(
            "mosquitto_pub", "-h", "localhost", "-p", str(port), "--cafile", self.ca, "--cert", self.certificate,
            "--key", self.key, "-q", "1", "-t", "open/rollover", "-m", self.name)
        by["mosquitto_pub"] = code == 0
        by["paho"] = await self._by_paho(gateway)
        host, port = gateway.addresses["coaps"]
        # -R: of the file of -C libcoap 4.3.1 trusts the last certificate only.
        _, out, err = await run(
            "coap-client-openssl", "-c", self.certificate, "-j", self.key, "-R", self.ca, "-B", "5", "-v", "6", "-m",
            "put", "-e", self.name, f"coaps://localhost:{port}/ps/open/rollover")
        by["libcoap"] = b"2.04" in out + err or b"2.01" in out + err
        code, _, _ = await run(
            gateway.binary, "pub", "--ca", self.ca, "--cert", self.certificate, "--key", self.key,
            f"coaps://localhost:{port}/open/rollover", self.name)
        by["fogmux over DTLS"] = code == 0
        return by

    async def _by_paho(self, gateway) -> bool:
        credential = Credential(certificate=(self.certificate, self.key))
        connection = Connection(_trusting(gateway, self.ca), paho.MQTTv5, TLS, credential=credential)
        try:
            await connection.open()
        except Exception:
            return False
        await connection.close()
        return True


class _trusting:
    """A gateway as a client sees it that trusts another file."""

    def __init__(self, gateway, ca):
        self._gateway, self.ca = gateway, ca

    def __getattr__(self, name):
        return getattr(self._gateway, name)


CONNECT = b"\x10\x0f\x00\x04MQTT\x04\x02\x00\x3c\x00\x03rol" + b"\xe0\x00"
CONNACK = b"\x20\x02\x00\x00"


@scenario
async def the_authority_is_rolled_over_while_devices_stay(binary):
    async with LockedGateway(binary) as gateway:
        with tempfile.TemporaryDirectory(prefix="fogmux-rollover-") as home:
            await _phases(gateway, Path(home))


async def _phases(gateway, home):
    data = Path(gateway.data, "pki")

    async def given(name, *flags):
        """A device that is given the present authorities and a certificate."""
        await gateway.fogmux("pki", "client", "alice", "--out", str(home / name), *flags)
        shutil.copy(data / "ca.pem", home / f"{name}-ca.pem")
        return Device(name, str(home / f"{name}-ca.pem"), str(home / f"{name}.pem"), str(home / f"{name}.key"))

    async def connect(what, wanted):
        """Each device connects by every program, or by none."""
        async def as_wanted():
            came = {device.name: await device.connects(gateway) for device in wanted}
            return all(set(by.values()) == {wanted[device]} for device in wanted for by in [came[device.name]]) or None
        try:
            await until(what, as_wanted, TAKEN_OVER_SECONDS)
        except Exception:
            came = {device.name: await device.connects(gateway) for device in wanted}
            expect(what, came, {device.name: holds for device, holds in wanted.items()})

    old, lost = await given("old"), await given("lost")
    await gateway.fogmux("pki", "client", "pump")
    stays = Connection(gateway, paho.MQTTv5, TLS, credential=Credential(certificate=(old.certificate, old.key)))
    await stays.open()
    await connect("before", {old: True, lost: True})

    said = await gateway.fogmux("pki", "rollover", "begin")
    require("begin says what is next", "pki client NAME --renew" in said and "rollover switch" in said, said)
    both = await given("both")
    expect("certificates in ca.pem", (data / "ca.pem").read_text().count("BEGIN CERTIFICATE"), 2)
    only_new = Device("only-new", str(home / "only-new-ca.pem"), both.certificate, both.key)
    Path(only_new.ca).write_text(_second((data / "ca.pem").read_text()))
    await connect("begun", {old: True, both: True, only_new: False})
    await gateway.fogmux("pki", "server", "fog.example")
    await until("both are named in the certificate request", lambda: _names(gateway, 2), TAKEN_OVER_SECONDS)
    await until("the metric", lambda: _shown(gateway, "begun", 2), TAKEN_OVER_SECONDS)
    require("doctor", "rollover switch" in json.dumps(await _findings(gateway)))

    said = await gateway.fogmux("pki", "rollover", "switch")
    require("switch says what is next", "rollover finish" in said, said)
    await connect("switched", {old: False, both: True, only_new: True})
    host, port = gateway.addresses["https"]
    code, out, err = await run("curl", "-sS", "--cacert", both.ca, "--resolve", f"fog.example:{port}:{host}",
                               f"https://fog.example:{port}/healthz")
    require("the name of `pki server` is kept", code == 0, out + err)
    # Its own trust keeps it out: the gateway still admits it.
    new_ca = Device("old-certificate", both.ca, old.certificate, old.key)
    await connect("switched", {new_ca: True})
    await until("the metric", lambda: _shown(gateway, "switched", 2), TAKEN_OVER_SECONDS)

    await gateway.fogmux("pki", "revoke", lost.certificate)
    updated = Device("lost", both.ca, lost.certificate, lost.key)
    await connect("revoked", {updated: False, new_ca: True, both: True})
    await gateway.fogmux("backup", f"{home}/backup.tar")
    await run(gateway.binary, "restore", f"{home}/backup.tar", "--data", f"{home}/restored")
    code, out, err = await run(gateway.binary, "pki", "rollover", "status", "--data", f"{home}/restored")
    require("a backup has the rollover", code == 0 and out.startswith(b"switched"), out + err)

    # Clients that the gateway knows by their files, and would lock out.
    async def refused(*flags):
        return await run(gateway.binary, "pki", "rollover", "finish", *flags, "--data", gateway.data)
    code, out, err = await refused("--replaced")
    require("a client without another certificate", code == 69 and b"pump" in err and b"--renew" in err, err)
    await gateway.fogmux("pki", "client", "--renew", "pump")
    code, out, err = await refused()
    require("a client that has both", code == 69 and b"pump" in err and b"--replaced" in err, err)
    said = await gateway.fogmux("pki", "rollover", "finish", "--replaced")
    require("finish says that it is done", said.startswith("finished"), said)
    require("and that again", "no rollover" in await gateway.fogmux("pki", "rollover", "finish"))
    await connect("finished", {old: False, both: True, only_new: True, new_ca: False})
    await until("the metric", lambda: _shown(gateway, None, 1), TAKEN_OVER_SECONDS)
    await until("one is named in the certificate request", lambda: _names(gateway, 1), TAKEN_OVER_SECONDS)
    await stays.publish("open/rollover", b"on the connection of before")
    await stays.close()


def _second(text: str) -> str:
    return text[text.index("-----BEGIN", text.index("-----END")):]


async def _names(gateway, count) -> bool:
    """Whether TLS by rustls and DTLS name so many authorities in the certificate request."""
    for listener, flags in (("mqtts", ()), ("coaps", ("-dtls1_2",))):
        host, port = gateway.addresses[listener]
        _, out, _ = await run("openssl", "s_client", *flags, "-connect", f"{host}:{port}", stdin=b"")
        begin, end = b"Acceptable client certificate CA names\n", b"Requested Signature Algorithms"
        named = out.partition(begin)[2].partition(end)[0]
        if named.count(b"fogmux authority") != count:
            return False
    return True


async def _shown(gateway, phase, authorities) -> bool:
    warden = gateway.ring.right("password", "warden", "")
    request = urllib.request.Request(gateway.http_base(secure=False) + "/metrics")
    user, password = warden.login
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode())
    try:
        text = (await asyncio.to_thread(urllib.request.urlopen, request, timeout=20)).read().decode()
    except OSError as error:
        require("metrics", False, error)
    phases = {name: f'fogmux_authority_rollover{{phase="{name}"}} {int(name == phase)}' in text
              for name in ("begun", "switched")}
    return all(phases.values()) and text.count("fogmux_authority_not_after_seconds{") == authorities


async def _findings(gateway):
    _, out, _ = await run(gateway.binary, "doctor", "--json", "--data", gateway.data)
    return [finding for finding in json.loads(out)["findings"] if finding["name"] == "authority"]
