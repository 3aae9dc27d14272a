"""Certificates of an ACME server: issued by both challenges, used by foreign clients, renewed, bound to an
account elsewhere, and missed."""

import asyncio
import base64
import json
import secrets
import signal
import ssl
import stat
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

from client import run
from gateway import LISTENERS, Gateway
from pebble import Pebble, free_port
from scenarios import expect, require, scenario, until

NAME, OTHER = "fog.test", "mist.test"
CONNECT = b"\x10\x10\0\x04MQTT\x04\x02\0\x3c\0\x04acme"
"""MQTT 3.1.1, clean session, keep alive of a minute."""
PING, PONG = b"\xc0\0", b"\xd0\0"


class Named(Gateway):
    """A gateway that has a name, and ports that it has again after a restart."""

    def __init__(self, binary: str, pebble: Pebble, data: str, challenge: str = "http-01", mqtts: int = 0,
                 domains: tuple[str, ...] = (NAME,), more: str = ""):
        super().__init__(binary, data=data)
        self.ports = {"http": pebble.http_port, "https": pebble.tls_port, "mqtts": mqtts or free_port()}
        self.acme = (f'[acme]\ndomains = {json.dumps(domains)}\ndirectory = "{pebble.directory}"\nca_file = "{pebble.ca}"\n'
                     f'challenge = "{challenge}"\nagree_to_terms = true\ncontact = ["ops@{NAME}"]\n{more}')

    def config_text(self) -> str:
        ports = "\n".join(f'[listeners.{name}]\naddress = "127.0.0.1:{self.ports.get(name, 0)}"' for name in LISTENERS)
        return f"{ports}\n{self.acme}"

    def https(self) -> tuple[str, int]:
        return self.addresses["https"]

    def whole_log(self) -> str:
        return self.log_tail(10_000)

    def metric(self, name: str) -> int | None:
        with urllib.request.urlopen(self.http_base(secure=False) + "/metrics", timeout=20) as answer:
            lines = answer.read().decode().splitlines()
        values = [line.split()[1] for line in lines if line.startswith(f"fogmux_{name} ")]
        return int(float(values[0])) if values else None

    async def finding(self, name: str) -> dict:
        """The finding of `doctor` of a name."""
        _, out, err = await run(self.binary, "doctor", "-c", f"{self.home.name}/fogmux.toml", "--data", self.data,
                                "--json")
        of_name = [finding for finding in json.loads(out)["findings"] if finding["name"] == name]
        require(f"doctor has {name}", of_name, (out + err).decode())
        return of_name[0]


async def serial(address, root) -> str | None:
    """The serial number of the certificate that a client which trusts only `root` accepts for the name."""
    try:
        trust = ssl.create_default_context(cafile=root)
        _, writer = await asyncio.open_connection(*address, ssl=trust, server_hostname=NAME)
    except (ssl.SSLError, OSError):
        return None
    found = writer.get_extra_info("peercert")["serialNumber"]
    writer.close()
    return found


def challenge_status(gateway, path: str) -> int:
    request = urllib.request.Request(gateway.http_base(secure=False) + path, headers={"Host": NAME})
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


async def curl(url: str, ca, *more) -> int:
    code, _, _ = await run("curl", "-sS", "--fail", "--cacert", str(ca), *more, url)
    return code


@scenario
async def acme_by_http_01_and_a_renewal_beside_an_open_connection(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-acme-") as place:
        async with Pebble(place, free_port(), free_port(), lifetime_s=24) as pebble:
            await pebble.start()
            async with Named(binary, pebble, f"{place}/data") as gateway:
                first = await until("a certificate", lambda: serial(gateway.https(), pebble.root))
                kept = f"{place}/data/acme/certificate-and-key"
                expect("openssl of the file", (await run("openssl", "x509", "-in", kept, "-noout"))[0], 0)
                host, port = gateway.https()
                expect("curl", await curl(f"https://{NAME}:{port}/healthz", pebble.root, "--resolve",
                                          f"{NAME}:{port}:{host}"), 0)
                expect("curl by another name", await curl(f"https://localhost:{port}/healthz", gateway.ca), 0)
                host, port = gateway.addresses["mqtts"]
                code, out, err = await run(
                    "openssl", "s_client", "-connect", f"{host}:{port}", "-servername", NAME, "-verify_hostname", NAME,
                    "-CAfile", str(pebble.root), "-verify_return_error")
                expect("openssl at mqtts", (code, b"Verify return code: 0" in out), (0, True))
                trust = ssl.create_default_context(cafile=pebble.root)
                reader, writer = await asyncio.open_connection(host, port, ssl=trust, server_hostname=NAME)
                writer.write(CONNECT)
                expect("CONNACK", await reader.readexactly(4), b"\x20\x02\0\0")

                async def renewed():
                    writer.write(PING)
                    expect("PINGRESP on the connection of before", await reader.readexactly(2), PONG)
                    shown = await serial(gateway.https(), pebble.root)
                    return shown not in (None, first)
                await until("a renewal", renewed)
                await renewed()
                writer.close()
                expect("failures", gateway.metric("acme_failures_total"), 0)
                require("certificates", gateway.metric("acme_certificates_total") >= 2)
                require("its end", gateway.metric("acme_certificate_not_after_seconds") > 1_700_000_000)
                for path in ("", "x", "..", "x/y", "?token=x"):
                    status = challenge_status(gateway, f"/.well-known/acme-challenge/{path}")
                    expect(f"a challenge {path!r} that is not under way", status, 404)


@scenario
async def acme_by_tls_alpn_01_and_a_restart_that_asks_nobody(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-acme-") as place:
        async with Pebble(place, free_port(), free_port()) as pebble:
            await pebble.start()
            data = f"{place}/data"
            async with Named(binary, pebble, data, "tls-alpn-01") as gateway:
                first = await until("a certificate", lambda: serial(gateway.https(), pebble.root))
                expect("doctor", (await gateway.finding("acme-certificate"))["level"], "ok")
                mqtts = gateway.ports["mqtts"]
                for file in Path(data, "acme").iterdir():
                    expect(f"mode of {file.name}", stat.S_IMODE(file.stat().st_mode), 0o600)
                code, out, _ = await run("openssl", "x509", "-in", f"{data}/acme/certificate-and-key", "-noout", "-ext",
                                         "subjectAltName")
                expect("openssl about the file", (code, f"DNS:{NAME}".encode() in out), (0, True))
                log = gateway.whole_log()
                secret = Path(data, "acme/certificate-and-key").read_text().splitlines()[1]
                require("no secret in the log", secret not in log and "key_pkcs8" not in log)
                await gateway.terminate()
            orders = pebble.asked("/order-plz")
            async with Named(binary, pebble, data, "tls-alpn-01", mqtts) as gateway:
                expect("the certificate of before, at once", await serial(gateway.https(), pebble.root), first)
                require("no order", "is asked for a certificate" not in gateway.whole_log())
                expect("orders", pebble.asked("/order-plz"), orders)


@scenario
async def acme_of_a_server_that_is_down_and_one_that_cannot_validate(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-acme-") as place:
        async with Pebble(place, free_port(), free_port()) as pebble:
            await pebble.make_certificate()
            async with Named(binary, pebble, f"{place}/data") as gateway:
                failures = lambda count: until(f"{count} failures", lambda: counted(gateway, count))
                await failures(1)
                _, port = gateway.https()
                expect("the gateway's own", await curl(f"https://localhost:{port}/healthz", gateway.ca), 0)
                found = await gateway.finding("acme-failure")
                expect("doctor", (found["level"], found["mend"].split()[0]), ("problem", "curl"))
                right, pebble.http_port = pebble.http_port, free_port()
                await pebble.start()
                gateway.process.send_signal(signal.SIGHUP)
                await failures(2)
                found = await gateway.finding("acme-failure")
                require("doctor names the name", f"{NAME} could not be validated" in found["text"], found)
                expect("doctor's command", found["mend"], f"curl -i http://{NAME}/healthz")
                expect("a challenge that has failed", challenge_status(gateway, "/.well-known/acme-challenge/x"), 404)
                # It has forgotten the account.
                await pebble.stop()
                pebble.http_port = right
                await pebble.start()
                gateway.process.send_signal(signal.SIGHUP)
                await until("a certificate", lambda: serial(gateway.https(), pebble.root))
                expect("failures", gateway.metric("acme_failures_total"), 2)
                expect("doctor", (await gateway.finding("acme-certificate"))["level"], "ok")


def key_in_base64url(size: int = 32) -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(size)).decode().rstrip("=")


async def refused(gateway, count: int, reason: str, mend: str, level: str = "problem"):
    """The failure number `count` is explained by the log and by `doctor`, and clients that know no ACME go on."""
    await until(f"{count} failures", lambda: counted(gateway, count))
    told = [line for line in gateway.whole_log().splitlines() if "no certificate was issued" in line]
    require("the log", reason in told[-1], told)
    found = await gateway.finding("acme-failure")
    expect("doctor", (found["level"], found["mend"]), (level, mend))
    require("doctor's reason", reason in found["text"], found)
    _, port = gateway.https()
    expect("the gateway's own", await curl(f"https://localhost:{port}/healthz", gateway.ca), 0)


@scenario
async def acme_of_a_server_that_wants_an_external_account(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-acme-") as place:
        async with Pebble(place, free_port(), free_port()) as pebble:
            right, wrong = key_in_base64url(), key_in_base64url()
            pebble.external_accounts = {"kid-1": right, "kid-2": wrong}
            await pebble.start()
            data, file = f"{place}/data", Path(place, "external account.key")
            async with Named(binary, pebble, data) as gateway:
                await refused(gateway, 1, "externalAccountRequired",
                              "set acme.external_account and acme.external_account_key_file")
                mqtts = gateway.ports["mqtts"]
                await gateway.terminate()
            named = lambda kid: f'external_account = "{kid}"\nexternal_account_key_file = "{file}"\n'
            correct = "correct acme.external_account and acme.external_account_key_file"
            file.write_text(right)
            async with Named(binary, pebble, data, mqtts=mqtts, more=named("nobody")) as gateway:
                gateway.process.send_signal(signal.SIGHUP)
                await refused(gateway, 1, 'the external account "nobody" is refused: ', correct)
                await gateway.terminate()
            file.write_text("")
            async with Named(binary, pebble, data, mqtts=mqtts, more=named("kid-1")) as gateway:
                write = f"write the key of acme.external_account, in base64url, to '{file}'"
                mistakes = [("", f"{file}: it is empty", write),
                            ("not/base64+url", f"{file}: what is in it is not base64url", write),
                            (wrong, 'the external account "kid-1" is refused: ', correct)]
                for count, (text, reason, mend) in enumerate(mistakes, 1):
                    file.write_text(text)
                    gateway.process.send_signal(signal.SIGHUP)
                    await refused(gateway, count, reason, mend)
                # The file is read again for each attempt.
                file.write_text(f"{right}\n")
                gateway.process.send_signal(signal.SIGHUP)
                first = await until("a certificate", lambda: serial(gateway.https(), pebble.root))
                require("Pebble has bound the account", 'using kid "kid-1"' in pebble.log.read_text())
                expect("doctor", (await gateway.finding("acme-certificate"))["level"], "ok")
                require("no key in the log", right not in gateway.whole_log())
                await gateway.terminate()
            # It forgets the account, and a name is added: another certificate is wanted, which it does not issue.
            before = Path(place, "root of before.pem")
            before.write_bytes(pebble.root.read_bytes())
            await pebble.stop()
            await pebble.start()
            file.write_text(wrong)
            async with Named(binary, pebble, data, mqtts=mqtts, domains=(NAME, OTHER), more=named("kid-1")) as gateway:
                await refused(gateway, 1, 'the external account "kid-1" is refused: ', correct, level="warning")
                expect("the certificate of before", await serial(gateway.https(), before), first)


async def counted(gateway, count: int) -> bool:
    return gateway.metric("acme_failures_total") == count
