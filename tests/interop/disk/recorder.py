"""A gateway whose data directory is recorded (disk/recorder.c), and loses power instead of being killed only."""

import functools
import mmap
import struct
import subprocess
import tempfile
from pathlib import Path

from disk.log import calls
from disk.model import Model

SOURCE = Path(__file__).with_name("recorder.c")


@functools.cache
def built() -> tempfile.TemporaryDirectory:
    """The place of the library; the C compiler is one of the machine's (`cargo xtask setup`)."""
    place = tempfile.TemporaryDirectory(prefix="fogmux-recorder-")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o",
                    Path(place.name) / "recorder.so", SOURCE], check=True)
    return place


class Seen:
    """Totals of what was recorded."""

    def __init__(self):
        self.cuts = self.written = self.writes = self.syncs = self.failed_syncs = self.full = 0
        self.compared = self.discarded = self.with_discards = 0

    def __str__(self):
        return (f"{self.writes} writes of {self.written >> 20} MiB and {self.syncs} synchronisations recorded, "
                f"{self.failed_syncs} failed with EIO, {self.full} writes got ENOSPC; {self.discarded} sectors and "
                f"names discarded in {self.with_discards} of {self.cuts} cuts, {self.compared >> 20} MiB compared")


class Recorder:
    """One data directory over all its lives. Use as a context manager."""

    def __init__(self, data: str, forges=False):
        self.data, self.forges, self.seen = Path(data).resolve(), forges, Seen()

    def __enter__(self):
        self.place = tempfile.TemporaryDirectory(prefix="fogmux-recorder-")
        home = Path(self.place.name)
        self.log, control = home / "log", home / "control"
        control.write_bytes(bytes(mmap.PAGESIZE))
        with open(control, "r+b") as file:
            self.control = mmap.mmap(file.fileno(), 0)
        self.environment = {
            "LD_PRELOAD": str(Path(built().name) / "recorder.so"), "FOGMUX_DISK_DIRECTORY": str(self.data),
            "FOGMUX_DISK_LOG": str(self.log), "FOGMUX_DISK_CONTROL": str(control)}
        return self

    def __exit__(self, *_):
        self.control.close()
        self.place.cleanup()

    def set(self, sync_fails: int = 0, is_full: int = 0, sync_takes: int = 0, is_alone: bool = False,
            is_read_only: bool = False, is_stalled: bool = False):
        """How many synchronisations of a thousand fail, how many writes, the microseconds of the slowest
        synchronisation, and whether each failure is alone: what is done then to take the commit back succeeds.
        Whether everything fails with EROFS, and whether synchronisations do not end."""
        self.control[:24] = struct.pack(
            "=6I", sync_fails, is_full, sync_takes, is_alone, is_read_only, is_stalled)

    def is_stalled(self) -> bool:
        """Whether a synchronisation is under way."""
        return any(call.kind == "S" and call.ended is None for call in calls(self.log.read_bytes()))

    def begin(self):
        """Before each life: the directory is as the disk has it."""
        self.log.write_bytes(b"")
        self.model = Model(self.data)

    def cut(self, survives: float) -> str | None:
        """After the process was killed: leaves of the directory what a power cut leaves. Of what was not synchronised
        each sector and name is there with this probability. Returns in what the directory and the record differ."""
        recorded = list(calls(self.log.read_bytes()))
        for call in recorded:
            self.model.apply(call)
        self._count(recorded)
        differs = self.model.compare()
        discarded = self.model.discard(survives, self.forges)
        self.seen.compared += self.model.compared
        self.seen.discarded += discarded
        self.seen.with_discards += discarded > 0
        return differs

    def _count(self, recorded):
        self.seen.cuts += 1
        for call in recorded:
            self.seen.written += call.result if call.kind == "W" and (call.result or 0) > 0 else 0
            self.seen.writes += call.kind == "W"
            self.seen.syncs += call.kind == "S" and call.result == 0
            self.seen.failed_syncs += call.kind == "S" and (call.result or 0) < 0
            self.seen.full += call.kind == "N"

