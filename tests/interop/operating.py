"""Every command of README.md and docs/operating, run as manual.py says. One that is neither run nor named fails."""

import asyncio
import re
import shutil
import time
from pathlib import Path

import readme
from client import PATIENCE, Missing
from commands import NAME, RULES, Command, commands
from manual import COMMON, OPERATING, PAGES, README, Line, Page
from sandbox import CONFIG, DATA, Sandbox

INSTALLATION = f"{OPERATING}/systemd.md"
"""The page by whose lines the machine is installed."""
ANY = "any page"
COMMANDS_MIN = 100


async def run_operating(root: Path, sandbox: Sandbox, report):
    pages = [INSTALLATION, README]
    pages += sorted(str(page.relative_to(root)) for page in (root / OPERATING).glob("*.md"))
    machine = Machine(root, sandbox, report)
    for page in dict.fromkeys(pages):
        await machine.run(page)
    manual = {name: page.lines for name, page in PAGES.items()} | {ANY: COMMON}
    named = [(name, start) for name, lines in manual.items() for start in lines]
    stale = [f"{name}: {start}" for name, start in named if (name, start) not in machine.used]
    report.check("manual.py: no line for a command that is in no page", ", ".join(stale) or None)
    few = None if machine.count >= COMMANDS_MIN else f"{machine.count} of at least {COMMANDS_MIN} were run"
    report.check("docs/operating: enough commands are run", few)


class Machine:
    """A machine with the service."""

    def __init__(self, root: Path, sandbox: Sandbox, report):
        self.root, self.sandbox, self.report = root, sandbox, report
        self.used: set[tuple[str, str]] = set()
        """Lines of the manual that a command was found for, by their page."""
        self.count = 0
        # An answer that is a refusal is a failure.
        (sandbox.home / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
        sandbox.environment["NEIGHBOUR"] = " ".join(sandbox.at_neighbour())

    async def run(self, name: str):
        page = PAGES.get(name, Page())
        place = self.sandbox.place / name.replace("/", "-")
        place.mkdir()
        (place / "deploy").symlink_to(self.root / "deploy")
        if name == INSTALLATION:
            # Nothing is left of the gateways of other pages, which would be another that a command could mean.
            for directory in (DATA, CONFIG.parent, self.sandbox.home / ".local"):
                shutil.rmtree(directory, ignore_errors=True)
            (place / "fogmux").symlink_to(self.sandbox.binary)
            (place / "fogmux.toml").touch()
        elif not self.report.check(f"{name}: is prepared", await self.prepare(page, place)):
            return
        elsewhere = {block.line for block in readme.commands(self.root)} if name == README else set()
        for command in commands(self.root, name):
            if command.line not in elsewhere:
                self.report.check(command.name, await self.problem(command, self.line(command, page), place))

    async def prepare(self, page: Page, place: Path) -> str | None:
        """A service that knows nothing yet."""
        code, said = await self.sandbox.shell(f"systemctl stop fogmux; rm -r {DATA}; mkdir -m 700 {DATA}", place)
        CONFIG.write_text(page.config)
        if page.rules:
            Path(RULES).write_text(page.rules)
            Path(RULES).chmod(0o600)
        if not code:
            code, said = await self.sandbox.shell(
                f"chown -R fogmux: {DATA}; systemctl start fogmux\n{page.prepare}", place)
        return f"exit code {code}: {said}" if code else None

    def line(self, command: Command, page: Page) -> Line:
        found = [(len(start), owner, start, line) for owner, lines in ((command.page, page.lines), (ANY, COMMON))
                 for start, line in lines.items() if command.text.startswith(start)]
        if not found:
            return Line()
        _, owner, start, line = max(found, key=lambda one: one[0])
        self.used.add((owner, start))
        return line

    async def problem(self, command: Command, line: Line, place: Path) -> str | None:
        if line.elsewhere:
            return self.problem_elsewhere(line)
        text = command.text
        if command.is_prose and (name := NAME.fullmatch(text)):
            text = f"{name[1]} --help"
        for part, put in line.puts.items():
            if part not in text:
                return f"it has no {part}"
            text = text.replace(part, put)
        self.count += 1
        until = time.monotonic() + (PATIENCE if line.is_patient else 0)
        while (problem := await self.run_once(text, line, place)) and time.monotonic() < until:
            await asyncio.sleep(0.2)
        return problem

    def problem_elsewhere(self, line: Line) -> str | None:
        """A file that is named as a test exists, and has what shows the command."""
        test = line.elsewhere.partition(":")[0]
        if "/" not in test:
            return None
        if not (self.root / test).is_file():
            return f"there is no {test}"
        if not line.shown_by:
            return f"manual.py does not say what in {test} shows it"
        return None if line.shown_by in (self.root / test).read_text() else f"{test} has no {line.shown_by!r}"

    async def run_once(self, text: str, line: Line, place: Path) -> str | None:
        try:
            code, said = await self.sandbox.shell(f"{line.before} {text}\n{line.after}".strip(), place)
        except Missing as error:
            return str(error)
        if code not in line.codes:
            return f"exit code {code}: {said[-1500:]}"
        return None if re.search(line.says, said) else f"no {line.says!r} in {said[-1500:]!r}"
