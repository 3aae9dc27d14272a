"""Commands that the dashboard prints, typed as they are, with a file of the authority beside them and the credential
where a word stands for it."""

import asyncio
import os
import re
import shutil
from pathlib import Path

from client import PATIENCE
from patience import within

STAND_INS = Path(__file__).parent / "machine"
"""Has `coap-client`, which is called otherwise on Debian."""
VALUE = b"21.5"


class Typist:
    def __init__(self, gateway, password=None):
        self.password = password
        self.place = Path(gateway.home.name, "typist")
        self.place.mkdir()
        shutil.copy(gateway.ca, self.place / "ca.pem")
        (self.place / "password").write_text(f"{password}\n")
        (self.place / "fogmux").symlink_to(Path(gateway.binary).resolve())
        self.environment = {**os.environ, "PATH": f"{self.place}:{STAND_INS}:{os.environ['PATH']}"}

    def filled(self, command: str) -> str:
        """With the password, which the page does not know. curl would ask for it."""
        command = command.replace("-P PASSWORD", f"-P {self.password}").replace("FILE", "password")
        return re.sub(r"^(curl .*-u )(\w+)", rf"\1\2:{self.password}", command)

    async def run(self, commands: list[list[str]]) -> list[str]:
        """Runs pairs of commands, of a subscriber and of a publisher; the faults."""
        found = await asyncio.gather(*(self._pair(*map(self.filled, pair)) for pair in commands))
        return [fault for faults in found for fault in faults]

    async def _pair(self, subscriber: str, publisher: str) -> list[str]:
        """The value is retained, so that the subscriber may come after it."""
        process = await self._start(publisher)
        out, _ = await within(process.communicate(), PATIENCE)
        faults = [] if process.returncode == 0 else [f"{publisher}: {process.returncode}, {out}"]
        process = await self._start(subscriber)
        said = b""
        try:
            while VALUE not in said and (more := await within(process.stdout.read(4096), PATIENCE)):
                said += more
        except TimeoutError:
            pass
        if VALUE not in said:
            faults.append(f"{subscriber}: {said}")
        if process.returncode is None:
            process.kill()
        await process.wait()
        return faults

    async def _start(self, command: str):
        return await asyncio.create_subprocess_exec(
            "sh", "-c", f"exec {command}", cwd=self.place, env=self.environment, stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT)
