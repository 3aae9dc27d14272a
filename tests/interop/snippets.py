"""The clients of docs/clients.md: every block runs as a user would run it, and is judged by what another door sees."""

import asyncio
import contextlib
import itertools
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from bridges import CLIENTS
from client import PATIENCE, Missing, run
from pages import Block, blocks
from patience import within
from sandbox import PASSWORD, Sandbox

PAGE = "docs/clients.md"
HERE = Path(__file__).parent
TOPIC, VALUE = "room/temperature", "21.5"
DOORS, ROLES = ("mqtt", "coap", "http", "xmpp"), ("publish", "read", "follow")
NOT_RUN, CONFIG, SETUP, SECURE = "not-run", "config", "setup", "secure"
FILES = {"sh": "block.sh", "python": "block.py", "js": "block.mjs", "c": "block.c", "java": "Block.java",
         "html": "block.html"}
BROWSER = asyncio.Lock()
"""One page at a time: they have one address, whose origin the gateway knows."""
WORDS = f"the marks are a door {DOORS} and a role {ROLES}, or one of {(NOT_RUN, CONFIG, SETUP)}; then {SECURE!r} or not"


def fault(block: Block) -> str | None:
    """Why the marks of a block say nothing, or None."""
    marks = [mark for mark in block.marks if mark != SECURE]
    if marks in ([NOT_RUN], [CONFIG], [SETUP]):
        return None
    if block.language in FILES and len(marks) == 2 and marks[0] in DOORS and marks[1] in ROLES:
        return None
    return f"a block without marks that can be run: {WORDS}"


@dataclass
class Snippet:
    """A block in a directory of its own, with the files of the setup."""

    block: Block
    place: Path
    sandbox: Sandbox

    @property
    def door(self) -> str:
        return self.block.marks[0]

    @property
    def other(self) -> str:
        """The door that judges."""
        return "mqtt" if self.door == "http" else "http"

    def prepare(self, device: Path):
        self.place.mkdir()
        for file in device.iterdir():
            (self.place / file.name).symlink_to(file)
        (self.place / "node_modules").symlink_to(CLIENTS / "npm/node_modules")
        (self.place / "mqtt.min.js").symlink_to(CLIENTS / "npm/node_modules/mqtt/dist/mqtt.min.js")
        (self.place / FILES[self.block.language]).write_text(self.block.text)

    def library(self) -> str:
        """Of a program in C."""
        return "paho-mqtt3cs" if "<MQTTClient.h>" in self.block.text else "mosquitto"

    def command(self) -> list[str]:
        return {
            "sh": ["bash", "-e", "block.sh"], "python": [sys.executable, "block.py"], "js": ["node", "block.mjs"],
            "c": ["sh", "-ec", f"cc -o block block.c -l{self.library()}; exec ./block"],
            "java": ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{CLIENTS}/java/dependency/*", "Block.java"],
            "html": ["node", str(HERE / "page.mjs"), "block.html", self.block.marks[1]],
        }[self.block.language]

    @contextlib.asynccontextmanager
    async def running(self):
        async with BROWSER if self.block.language == "html" else contextlib.nullcontext():
            async with self._running() as process:
                yield process

    @contextlib.asynccontextmanager
    async def _running(self):
        with open(self.place / "output", "wb") as output:
            process = await asyncio.create_subprocess_exec(
                *self.command(), cwd=self.place, env=self.sandbox.environment, stdin=asyncio.subprocess.DEVNULL,
                stdout=output, stderr=output, start_new_session=True)
        try:
            yield process
        finally:
            # The whole group: a browser or a shell has children.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            await process.wait()

    def output(self) -> str:
        return (self.place / "output").read_text(errors="replace")


class Clients:
    """All blocks of the page that need one configuration of the gateway."""

    def __init__(self, sandbox: Sandbox, page: list[Block], secure: bool, report):
        self.sandbox, self.report, self.secure = sandbox, report, secure
        self.blocks = [block for block in page if (SECURE in block.marks) == secure and NOT_RUN not in block.marks]
        self.place = sandbox.place / f"{Path(page[0].page).stem}-{secure}"
        self.device = self.place / "device"

    def marked(self, mark: str) -> list[Block]:
        return [block for block in self.blocks if mark in block.marks]

    def config(self) -> str:
        return "\n".join(block.text for block in self.marked(CONFIG))

    def snippets(self, role: str) -> list[Snippet]:
        made = [Snippet(block, self.place / f"{role}-{block.line}", self.sandbox) for block in self.marked(role)]
        for snippet in made:
            snippet.prepare(self.device)
        return made

    async def run(self, setup: list[Block]):
        """The setup is done while the gateway runs, as by an administrator, and the gateway is restarted then."""
        self.device.mkdir(parents=True)
        for block in setup:
            code, said = await self.sandbox.shell(block.text, self.device)
            self.report.check(block.name, f"exit code {code}: {said}" if code else None)
        await self.sandbox.stop()
        await self.sandbox.start(self.config())
        for snippet in self.snippets("publish"):
            await self.judge(snippet, self.publishes(snippet))
        await self.put("http", VALUE)
        await asyncio.gather(*(self.judge(one, self.reads(one)) for one in self.snippets("read")))
        followers = self.snippets("follow")
        self.publishing = asyncio.create_task(self.publish_on())
        await asyncio.gather(*(self.judge(one, self.follows(one)) for one in followers))
        self.publishing.cancel()

    async def judge(self, snippet: Snippet, case):
        try:
            problem = await within(case, 2 * PATIENCE)
        except (Missing, TimeoutError) as error:
            problem = f"{type(error).__name__} {error}"
        said = snippet.output() if (snippet.place / "output").exists() else ""
        self.report.check(snippet.block.name, problem and f"{problem}; it printed {said[-1500:]!r}")

    async def publishes(self, snippet: Snippet) -> str | None:
        await self.clear()
        async with snippet.running() as process:
            code = await process.wait()
        if code != 0:
            return f"exit code {code}"
        came = await self.get(snippet.other)
        return None if came == VALUE else f"{came!r} at {snippet.other} instead of {VALUE!r}"

    async def reads(self, snippet: Snippet) -> str | None:
        async with snippet.running() as process:
            code = await process.wait()
        if code != 0:
            return f"exit code {code}"
        return None if VALUE in snippet.output() else f"{VALUE!r} was not printed"

    async def follows(self, snippet: Snippet) -> str | None:
        """The publisher repeats itself, so that it does not matter when the subscription is there."""
        async with snippet.running() as process:
            while f"by-{snippet.other}-" not in snippet.output():
                if process.returncode is not None:
                    return f"it has ended with exit code {process.returncode}"
                if self.publishing.done():
                    return f"the publisher has ended: {self.publishing.exception()}"
                await asyncio.sleep(0.05)
        return None

    async def publish_on(self):
        for number in itertools.count():
            for door in ("http", "mqtt"):
                await self.put(door, f"by-{door}-{number}")
            await asyncio.sleep(0.2)

    async def put(self, door: str, value: str):
        if door == "http":
            await self.curl("-X", "PUT", "-H", "Content-Type: text/plain", "-d", value)
        else:
            await self.ask("mosquitto_pub", "-V", "5", *self.user("-u", "-P"), "-q", "1", "-r", "-t", TOPIC, "-m", value,
                           "-D", "publish", "content-type", "text/plain")

    async def clear(self):
        await self.curl("-X", "DELETE")

    async def get(self, door: str) -> str:
        if door == "http":
            return await self.curl()
        return (await self.ask("mosquitto_sub", *self.user("-u", "-P"), "-C", "1", "-W", "20", "-t", TOPIC)).rstrip("\n")

    def user(self, *options: str) -> list[str]:
        return [word for pair in zip(options, ("alice", PASSWORD)) for word in pair] if self.secure else []

    async def curl(self, *options: str) -> str:
        login = ["-u", f"alice:{PASSWORD}"] if self.secure else []
        return await self.ask("curl", "-sS", *login, *options, f"http://127.0.0.1:8080/topics/{TOPIC}")

    async def ask(self, *command: str) -> str:
        code, out, err = await run(*command)
        if code != 0:
            raise Missing(f"{command[0]}: exit code {code}: {err.decode(errors='replace')}")
        return out.decode(errors="replace")


async def run_snippets(root: Path, sandbox: Sandbox, report):
    page = blocks(root, PAGE)
    faults = {block.name: fault(block) for block in page}
    for name, wrong in faults.items():
        report.check(f"{name}: marks", wrong)
    if any(faults.values()):
        return
    await Clients(sandbox, page, False, report).run([])
    secure = Clients(sandbox, page, True, report)
    await secure.run([block for block in page if SETUP in block.marks])
