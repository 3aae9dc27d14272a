"""Starts the built gateway on ports that the system chooses, and says where its doors are."""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
import tempfile
import urllib.request
from pathlib import Path

from client import PATIENCE
from patience import within

LISTENERS = ("mqtt", "mqtts", "coap", "coaps", "coap_tcp", "coaps_tcp", "http", "https", "xmpp", "xmpps")

COAP_LISTENERS = {"coap": "coap", "coaps": "coaps", "coap+tcp": "coap_tcp", "coaps+tcp": "coaps_tcp", "coap+ws": "http"}
"""Which listener a scheme of RFC 7252 §6 and RFC 8323 §8 leads to."""


class Gateway:
    """One process of `fogmux serve` with a data directory of its own."""

    def __init__(self, binary: str, config: str = "", data: str | None = None,
                 environment: dict[str, str] | None = None):
        self.binary, self.config, self.environment = binary, config, environment or {}
        self.home = tempfile.TemporaryDirectory(prefix="fogmux-interop-")
        self.data = data or os.path.join(os.path.realpath(self.home.name), "data")
        self.scratch = os.path.join(self.home.name, "scratch")
        os.makedirs(self.scratch, exist_ok=True)
        self.process = None
        self.addresses: dict[str, tuple[str, int]] = {}

    def config_text(self) -> str:
        ports = "\n".join(f'[listeners.{name}]\naddress = "127.0.0.1:0"' for name in LISTENERS)
        return f"{ports}\n{self.config}\n"

    async def launch(self):
        """Starts the process, and waits for nothing."""
        file = os.path.join(self.home.name, "fogmux.toml")
        Path(file).write_text(self.config_text())
        self.log = open(os.path.join(self.home.name, "log"), "wb")
        self.process = await asyncio.create_subprocess_exec(
            self.binary, "serve", "--json", "-c", file, "--data", self.data,
            stdout=asyncio.subprocess.PIPE, stderr=self.log, limit=1 << 20, env={**os.environ, **self.environment})

    async def __aenter__(self):
        await self.launch()
        try:
            self.banner = await within(self._banner(), 60)
            self.addresses = {name: _address(text) for name, text in self.banner["listeners"].items()}
            self._drain = asyncio.create_task(self._read_on())
            await within(self._ready(), 60)
        except BaseException:
            print(self.log_tail())
            await self.kill()
            raise
        return self

    async def __aexit__(self, *_):
        await self.kill()
        self.log.close()
        let_go_of_contexts(self.home.name)
        self.home.cleanup()

    async def _banner(self) -> dict:
        lines = []
        while line := await self.process.stdout.readline():
            lines.append(line.decode(errors="replace").rstrip())
            with contextlib.suppress(json.JSONDecodeError):
                item = json.loads(line)
                if isinstance(item, dict) and "listeners" in item:
                    return item
        raise RuntimeError(f"no banner in: {lines}")

    async def _read_on(self):
        while await self.process.stdout.readline():
            pass

    async def _ready(self):
        url = self.http_base(secure=False) + "/readyz"
        while True:
            if await asyncio.to_thread(_answers, url):
                return
            await asyncio.sleep(0.02)

    def log_tail(self, lines: int = 20) -> str:
        self.log.flush()
        return "\n".join(Path(self.log.name).read_text(errors="replace").splitlines()[-lines:])

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()

    async def terminate(self) -> int:
        """SIGTERM; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return await within(self.process.wait(), 2 * PATIENCE)

    @property
    def ca(self) -> str:
        """The certificate authority that the gateway made for itself."""
        return self.banner["ca"]

    def mqtt_address(self, transport):
        host, port = self.addresses[{"tcp": "mqtt", "tls": "mqtts", "ws": "http", "wss": "https"}[transport]]
        return (host if transport in ("tcp", "ws") else "localhost"), port

    def coap_address(self, scheme="coap"):
        return self.addresses[COAP_LISTENERS[scheme]]

    def http_base(self, secure):
        host, port = self.addresses["https" if secure else "http"]
        return f"https://localhost:{port}" if secure else f"http://{host}:{port}"

    def http3_address(self):
        return self.addresses["http3"]

    def http3_base(self):
        return f"https://localhost:{self.addresses['http3'][1]}"

    def xmpp_address(self, direct):
        return self.addresses["xmpps" if direct else "xmpp"]


def let_go_of_contexts(place: str):
    """Has aiocoap write down and unlock its OSCORE contexts below a directory that is about to be removed. Their
    destructors do the same whenever they run, and find no directory then."""
    oscore = sys.modules.get("aiocoap.oscore")
    if oscore is None:
        return
    for item in gc.get_objects():
        if (isinstance(item, oscore.FilesystemSecurityContext) and getattr(item, "lockfile", None) is not None
                and Path(item.basedir).is_relative_to(place)):
            item._destroy()


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
