"""A machine for the commands of the documentation: network, /etc, /usr, /var/lib, /var/log and /mnt of its own, with a
gateway that has its default ports.

`python tests/interop/sandbox.py` must run in namespaces of its own (unshare(1)); `inside()` sees to that.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

from client import PATIENCE, Missing, run
from patience import within

CONFIG, DATA = Path("/etc/fogmux/fogmux.toml"), Path("/var/lib/fogmux")
"""Those of the installed service (docs/operating/install.md)."""
PASSWORD = "correct-horse"
"""The password that the pages show, typed where a command asks for one."""
SERVER, NEIGHBOUR = "192.0.2.10", "192.0.2.20"
"""The addresses of the machine and of another one on its network."""
HOSTS = f"127.0.0.1 localhost\n::1 localhost\n{SERVER} fog.example\n"
UNSHARE = ["unshare", "--net", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
           "--mount-proc"]
PROGRAMS = Path(__file__).parent / "machine"
"""Programs that stand in for those that need a whole machine."""


class Sandbox:
    """The machine, made by `enter`, and its one gateway."""

    def __init__(self, binary: Path, place: Path):
        self.binary, self.place = binary.resolve(), place
        self.home, self.bin = place / "home", place / "bin"
        self.process, self.log = None, place / "log"
        self.is_service = True
        """Whether the gateway is started as the installed service is, or by its name alone."""

    def enter(self):
        """Makes the machine of this process's namespaces; nothing of it is seen outside or stays behind."""
        call("ip", "link", "set", "lo", "up")
        self.connect()
        call("mount", "-t", "tmpfs", "none", str(self.place))
        for directory in ("/etc", "/usr", "/var/lib", "/var/log"):
            upper, work = (self.place / f"{name}{directory.replace('/', '-')}" for name in ("upper", "work"))
            upper.mkdir(), work.mkdir()
            call("mount", "-t", "overlay", "overlay", "-o",
                 f"lowerdir={directory},upperdir={upper},workdir={work}", directory)
        call("mount", "-t", "tmpfs", "none", "/mnt")
        Path("/etc/hosts").write_text(HOSTS)
        for directory in (self.home, self.bin, CONFIG.parent, DATA):
            directory.mkdir(parents=True)
        CONFIG.touch()
        (self.bin / "fogmux").symlink_to(self.binary)
        for program in PROGRAMS.iterdir():
            (self.bin / program.name).symlink_to(program)
        kept = {name: os.environ[name] for name in ("LANG", "JAVA_HOME", "CHROMIUM") if name in os.environ}
        self.environment = {**kept, "HOME": str(self.home), "PATH": f"{self.bin}:{os.environ['PATH']}",
                            "TMPDIR": str(self.place)}

    def connect(self):
        """Makes a network with another machine, in which only commands are run; both call their interface eth0."""
        call("ip", "link", "add", "eth0", "type", "veth", "peer", "name", "other")
        self.neighbour = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        ours = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{self.neighbour.pid}/ns/net") == ours:
            time.sleep(0.01)
        call("ip", "link", "set", "other", "netns", str(self.neighbour.pid), "name", "eth0")
        for where, address in ([], SERVER), (self.at_neighbour(), NEIGHBOUR):
            call(*where, "ip", "address", "add", f"{address}/24", "dev", "eth0")
            call(*where, "ip", "link", "set", "eth0", "up")
        call(*self.at_neighbour(), "ip", "route", "add", "default", "via", SERVER)

    def at_neighbour(self) -> list[str]:
        """The words before a command that the other machine of the network runs."""
        return ["nsenter", "--target", str(self.neighbour.pid), "--net"]

    async def start(self, config: str = ""):
        """Starts the gateway, and waits until it is ready."""
        CONFIG.write_text(config)
        words = ["serve", "--config", str(CONFIG)] if self.is_service else []
        place = {"STATE_DIRECTORY": str(DATA)} if self.is_service else {}
        with open(self.log, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                "fogmux", *words, env={**self.environment, **place}, stdout=log, stderr=log)
        async with asyncio.timeout(PATIENCE):
            while not await asyncio.to_thread(is_ready):
                if self.process.returncode is not None:
                    raise Missing(f"the gateway has ended: {self.log.read_text()[-1000:]}")
                await asyncio.sleep(0.05)

    async def stop(self):
        if self.process and self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(TimeoutError):
                await within(self.process.wait(), PATIENCE)
                return
            self.process.kill()
            await self.process.wait()

    async def shell(self, text: str, place: Path) -> tuple[int, str]:
        """Runs lines as somebody who types them, and gives exit code and output. The first line that fails ends it.

        Without a terminal, so that passwords are read from the input.
        """
        code, out, err = await run("setsid", "--wait", "env", "--chdir", str(place), "-i",
                                   *pairs(self.environment), "bash", "-e", "-o", "pipefail", "-c", text,
                                   stdin=f"{PASSWORD}\n".encode())
        return code, (out + err).decode(errors="replace")


def pairs(environment: dict) -> list[str]:
    return [f"{name}={value}" for name, value in environment.items()]


def call(*command: str):
    subprocess.run(command, check=True)


def is_ready() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8080/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def reason_against() -> str | None:
    """Why there can be no sandbox here, or None."""
    if os.geteuid() != 0:
        return "only root may make namespaces"
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True).returncode != 0:
        return "this machine permits no namespaces"
    return None
