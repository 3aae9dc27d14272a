"""Power cuts of the whole gateway: crash.py, where what was not synchronised at the end of a life is taken away.

The recorder (disk/recorder.c) says what the gateway did to its data directory, and the model (disk/model.py) what a
disk may have of it after a power cut. The properties are those of crash.py. Besides:
- the directory is, byte by byte, what the recorder saw, so nothing was written past it;
- a cut comes also while the gateway starts, and its certificate authority stays;
- while synchronisations fail with EIO and writes with ENOSPC, what is refused does not come, also after a cut;
- the suite finds losses where there have to be some: without durability, and with a disk that pretends.
"""

import asyncio
import os
import random
import tempfile
from pathlib import Path

import disk.trial as trial
from crash import QUEUES, Crashes, Kill, silence_clients
from disk.recorder import Recorder
from gateway import Gateway
from report import Report

CUTS = int(os.environ.get("FOGMUX_CUTS", "6"))
"""Of all durabilities and disks together."""
SURVIVES = (0.0, 0.1, 0.5, 0.9, 1.0)
"""The probability with which the disk has what was not synchronised."""
SYNC_TAKES = 20_000
"""Microseconds of the slowest synchronisation, as on an SD card: most cuts find one under way."""
CUT_STARTS = 0.3
"""Of all starts, those that are cut off as well."""
START_SECONDS = 0.5
"""In which a start is cut off, most of them early."""
FAILURES = (0, 100, 500)
"""Of a thousand synchronisations, or writes."""
FIRST_STARTS = max(8, CUTS // 4)
"""Directories whose first starts are cut off."""
LOSING_CUTS = 3
"""After which a loss must have been found where there is one."""


class PowerCut(Kill):
    """The end of each life: the power fails."""

    def __init__(self, binary, recorder, durability, kills):
        super().__init__(binary, str(recorder.data))
        self.recorder, self.kills = recorder, kills
        self.name = f"power cuts, {durability}"
        # Of directories that the gateway makes one in another, each has to be on the disk.
        self.config = f'[store]\ndurability = "{durability}"\npath = "{self.data}/kept/store"\n'
        self.problems: list[str] = []
        self.authority: str | None = None

    async def start(self):
        self.recorder.set(sync_takes=SYNC_TAKES)
        while random.random() < CUT_STARTS:
            await self._cut_off(self._gateway())
        return self._gateway()

    def _gateway(self):
        self.recorder.begin()
        return Gateway(self.binary, f"{QUEUES}{self.config}", self.data, self.recorder.environment)

    async def _cut_off(self, gateway):
        """Cuts the power while the gateway starts."""
        await gateway.launch()
        await asyncio.sleep(START_SECONDS * random.random() ** 3)
        await self._lose_power(gateway)
        await gateway.__aexit__()

    async def end(self, gateway):
        authority = Path(gateway.ca).read_text()
        if self.authority not in (None, authority):
            self.problems.append("the certificate authority is another one")
        self.authority = authority
        await self._lose_power(gateway)

    async def first_start(self):
        """One that is cut off, some times, and comes to its end at last."""
        self.recorder.set(sync_takes=SYNC_TAKES)
        for _ in range(random.randint(1, 3)):
            await self._cut_off(self._gateway())
        for _ in range(2):
            async with self._gateway() as gateway:
                await self.end(gateway)

    async def _lose_power(self, gateway):
        await gateway.kill()
        differs = self.recorder.cut(random.choice(SURVIVES))
        if differs:
            self.problems.append(differs)

    def check(self, report):
        report.check(f"{self.name}: the recorder saw everything, and the authority stayed",
                     self.problems[0] if self.problems else None)


class FailingDisk(PowerCut):
    """Before each cut the disk fails for a while, and is full for a while. It takes what takes a failed commit back."""

    may_be_refused, may_halve, is_alone, disk = True, True, True, "failing disk"

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.name = f"{self.name}, {self.disk}"

    def meanwhile(self):
        loop = asyncio.get_running_loop()
        loop.call_later(random.uniform(0.0, 0.3), lambda: self.recorder.set(
            sync_fails=random.choice(FAILURES), is_full=random.choice(FAILURES), sync_takes=SYNC_TAKES,
            is_alone=self.is_alone))
        if random.random() < 0.7:
            loop.call_later(random.uniform(0.3, 0.8), lambda: self.recorder.set(sync_takes=SYNC_TAKES))


class BrokenDisk(FailingDisk):
    """It fails so often, or becomes read-only, that a commit that failed may not be taken back, and come back (ADR
    0037): nobody can know what the disk has. What was acknowledged has to be there."""

    is_alone, may_return, disk = False, True, "broken disk"

    def meanwhile(self):
        if random.random() < 0.5:
            super().meanwhile()
            return
        loop = asyncio.get_running_loop()
        loop.call_later(random.uniform(0.0, 0.3), lambda: self.recorder.set(is_read_only=True))
        if random.random() < 0.7:
            loop.call_later(random.uniform(0.3, 0.8), lambda: self.recorder.set(sync_takes=SYNC_TAKES))


class Found(Report):
    """Losses that have to be found."""

    def check(self, what, problem, cell=None):
        if problem is not None:
            self.failures.append(f"{what}: {problem}")
            # One is enough, and the rest of the suite would wait for what is lost.
            raise LookupError(problem)
        return True


async def cut(arguments, report, kind, durability, kills, forges=False):
    with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data, Recorder(data, forges) as recorder:
        await Crashes(kind(arguments.bin, recorder, durability, kills), report).run()
        seen = recorder.seen
        report.check(f"power cuts, {durability}: the recorder saw the journal",
                     None if seen.writes and seen.compared and (seen.syncs or durability == "none") else f"{seen}")
        print(f"    {seen}", flush=True)


async def first_starts(arguments, report):
    for _ in range(FIRST_STARTS):
        with tempfile.TemporaryDirectory(prefix="fogmux-data-") as data, Recorder(data) as recorder:
            ending = PowerCut(arguments.bin, recorder, "group", 0)
            try:
                await ending.first_start()
                ending.check(report)
            except Exception as error:
                report.check("power cuts: a first start that was cut off", f"{type(error).__name__}: {error}")


async def must_lose(arguments, report, durability, forges=False):
    found = Found()
    try:
        await cut(arguments, found, PowerCut, durability, LOSING_CUTS, forges)
    except (LookupError, AssertionError) as error:
        found.failures.append(str(error))
    what = f"power cuts, {durability}: a {'disk that pretends' if forges else 'loss'} is found"
    report.check(what, None if found.failures else "nothing was lost")
    print(f"  {what}: {found.failures[:1]}", flush=True)


async def run_discard(arguments, report):
    silence_clients()
    trial.check(report)
    await first_starts(arguments, report)
    share = -(-CUTS // 6)
    for kind in (PowerCut, FailingDisk, BrokenDisk):
        for durability in ("group", "always"):
            try:
                await cut(arguments, report, kind, durability, share)
            except Exception as error:
                report.check(f"{kind.__name__}, {durability}", f"{type(error).__name__}: {error}")
    for durability, forges in (("none", False), ("interval", False), ("group", True), ("always", True)):
        await must_lose(arguments, report, durability, forges)
