"""`POST /api/v1/backup`: the file of `fogmux backup` as a download, by curl, and restored on a blank directory."""

import asyncio
import base64
import tempfile
from pathlib import Path

import paho.mqtt.client as paho

from client import run
from clients_http3 import Aioquic
from clients_mqtt import Connection
from gateway import Gateway
from scenarios import expect, require, scenario, until

BACKUP = "/api/v1/backup"
ALLOWED = "[auth]\napi_changes = true"
LARGE_BYTES = 900_000
LARGE = 24
"""Messages that are more together than a connection takes from a client that does not read."""
CUT_OFF_SECONDS = 240
"""The gateway waits a minute for a client that takes nothing; the machine may be busy."""


async def curl(gateway, *flags, user=None, url=None, secure=True) -> tuple[int, str]:
    """The exit code and the status; `--fail` is not set."""
    login = ["-u", f"{user}:{gateway.passwords[user]}"] if user else []
    code, out, err = await run(
        "curl", "-sS", "--cacert", gateway.ca, *login, "-w", "%{http_code}", *flags,
        url or gateway.http_base(secure=secure) + BACKUP, patience=CUT_OFF_SECONDS)
    return code, out.decode()[-3:] or err.decode()


class Administered(Gateway):
    """With an administrator and a user, whose passwords are known."""

    passwords: dict[str, str]

    async def __aenter__(self):
        Path(self.data).mkdir(exist_ok=True, mode=0o700)
        self.passwords = {"admin": "the password of admin", "ada": "the password of ada"}
        for user, password in self.passwords.items():
            code, out, err = await run(self.binary, "passwd", "--data", self.data, user, stdin=f"{password}\n".encode())
            require("fogmux passwd", code == 0, (out + err).decode())
        return await super().__aenter__()

    def whole_log(self) -> str:
        self.log.flush()
        return Path(self.log.name).read_text(errors="replace")


@scenario
async def a_backup_is_refused_where_users_and_rules_are_not_changed(binary):
    async with Administered(binary) as gateway:
        expect("the status", await curl(gateway, "-o", "/dev/null", "-X", "POST", user="admin"), (0, "403"))


@scenario
async def an_administrator_downloads_a_backup_that_goes_on_elsewhere(binary):
    with tempfile.TemporaryDirectory(prefix="fogmux-backup-") as place:
        home = Path(place)
        async with Administered(binary, ALLOWED) as gateway:
            away = Connection(gateway, paho.MQTTv5, "tcp", client_id="away", clean=False, expiry=3600)
            await away.open()
            await away.subscribe("plant/#")
            await away.close()
            writer = Connection(gateway, paho.MQTTv5, "tcp")
            await writer.open()
            for number in range(20):
                await writer.publish(f"plant/{number}", f"value {number}".encode(), retain=True)
            await writer.close()
            await _refusals(gateway)
            for flag in ("--http1.1", "--http2"):
                file, head = home / f"backup{flag}.tar", home / f"head{flag}"
                code, status = await curl(gateway, "-X", "POST", flag, "-o", str(file), "-D", str(head), user="admin")
                expect(f"{flag}: curl and status", (code, status), (0, "200"))
                headers = head.read_text().lower()
                for line in ("cache-control: no-store", "content-type: application/x-tar",
                             "x-content-type-options: nosniff", 'content-disposition: attachment; filename="fogmux-'):
                    require(f"{flag}: {line}", line in headers, headers)
                code, out, err = await run(binary, "restore", "--check", str(file))
                require(f"{flag}: restore --check", code == 0, out + err)
                code, out, err = await run(
                    "sh", "-c",
                    f"mkdir {file}.d && cd {file}.d && tar xf {file} && sha256sum --check --quiet SHA256SUMS")
                require(f"{flag}: tar and sha256sum", code == 0, out + err)
            await _by_http3(binary, gateway, home / "backup-http3.tar")
            code, out, err = await run(binary, "backup", "--data", gateway.data, "--config",
                                       f"{gateway.home.name}/fogmux.toml", str(home / "command.tar"))
            require("fogmux backup", code == 0, out + err)
            expect("the files of both", await _names(home / "command.tar"), await _names(home / "backup--http2.tar"))
            log = gateway.whole_log()
            require("audit", log.count("backup begun") == 4 and 'by="admin"' in log, log[-3000:])
            expect("downloads that ended", log.count("a backup was sent"), 4)
        code, out, err = await run(binary, "restore", str(home / "backup--http2.tar"), "--data", str(home / "data"))
        require("restore", code == 0, out + err)
        async with Gateway(binary, data=str(home / "data")) as restored:
            back = Connection(restored, paho.MQTTv5, "tcp", client_id="away", clean=False, expiry=3600)
            came = set()
            back.on_message = lambda message: came.add((message.topic, bytes(message.payload)))
            await back.open()

            async def all_there():
                return len(came) == 20
            await until("what waited for the session", all_there)
            expect("the messages", came, {(f"plant/{number}", f"value {number}".encode()) for number in range(20)})
            await back.close()


async def _by_http3(binary, gateway, file):
    client = Aioquic(gateway)
    await client.open()
    try:
        login = base64.b64encode(f"admin:{gateway.passwords['admin']}".encode()).decode()
        status, headers, body = await client.request("POST", BACKUP, [("authorization", f"Basic {login}")])
    finally:
        await client.close()
    expect("HTTP/3: status", (status, headers["cache-control"]), (200, "no-store"))
    file.write_bytes(body)
    code, out, err = await run(binary, "restore", "--check", str(file))
    require("HTTP/3: restore --check", code == 0, out + err)


async def _refusals(gateway):
    """Nobody gets it who could not change users and rules."""
    for what, secure, user, wanted in (("this machine alone", False, None, "401"), ("a user", True, "ada", "403"),
                                       ("nobody over TLS", True, None, "401")):
        expect(what, (await curl(gateway, "-X", "POST", user=user, secure=secure))[1], wanted)
    status = (await curl(gateway, "-X", "POST", "-H", "Origin: https://evil.example", user="admin"))[1]
    expect("a page of another origin", status, "403")
    expect("GET", (await curl(gateway, user="admin"))[1], "405")
    _, out, _ = await run("curl", "-sS", "--cacert", gateway.ca, "-u", f"admin:{gateway.passwords['admin']}",
                          "-X", "POST", "-o", "/dev/null", "-w", "%{http_code}",
                          gateway.http_base(secure=True) + BACKUP + "?file=/tmp/chosen")
    require("a path is not taken", not Path("/tmp/chosen").exists(), out)
    # That was a download.
    expect("that was a download", out.decode()[-3:], "200")


async def _names(file) -> list[str]:
    _, out, _ = await run("tar", "tf", str(file))
    # How many segments the store has may change between two backups.
    return sorted(name for name in out.decode().splitlines() if not name.startswith("store/"))


@scenario
async def a_client_that_does_not_read_its_backup_keeps_nobody_from_another(binary):
    async with Administered(binary, ALLOWED) as gateway:
        writer = Connection(gateway, paho.MQTTv5, "tcp")
        await writer.open()
        for number in range(LARGE):
            await writer.publish(f"large/{number}", bytes(LARGE_BYTES), retain=True)
        await writer.close()
        # One that goes away in the middle is gone at once.
        code, _ = await curl(gateway, "-X", "POST", "-o", "/dev/null", "--limit-rate", "100K", "-m", "3", user="admin")
        expect("curl gives up", code, 28)

        async def another():
            code, status = await curl(gateway, "-X", "POST", "-o", "/dev/null", user="admin")
            require("429 or 200", status in ("429", "200"), status)
            return (code, status) == (0, "200")
        await until("another", another, 30)
        # One that stops reading, and stays.
        deaf = await asyncio.create_subprocess_exec(
            "curl", "-sS", "--cacert", gateway.ca, "-u", f"admin:{gateway.passwords['admin']}", "-X", "POST",
            "--no-buffer", gateway.http_base(secure=True) + BACKUP, stdout=asyncio.subprocess.PIPE)
        require("it begins", await deaf.stdout.readexactly(1024))
        expect("one at a time", (await curl(gateway, "-X", "POST", "-o", "/dev/null", user="admin"))[1], "429")
        await until("another, when its time is over", another, CUT_OFF_SECONDS)
        rest = await deaf.stdout.read()
        require("it sees that its file is incomplete", await deaf.wait() != 0, len(rest))
        log = gateway.whole_log()
        require("the log says so", "a backup was not sent to its end" in log, log[-3000:])
