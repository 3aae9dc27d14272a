"""The recorder and its model with a program of which the outcome is known."""

import subprocess
import sys
import tempfile
from pathlib import Path

from disk.recorder import Recorder

PROGRAM = """
import os
os.chdir(os.environ["FOGMUX_DISK_DIRECTORY"])
def make(name, content):
    file = os.open(name, os.O_RDWR | os.O_CREAT, 0o600)
    os.write(file, content)
    os.fsync(file)
    return file
directory = os.open(".", os.O_RDONLY)
written, cut = make("written", b"a" * 1024), make("cut", b"c" * 2000)
make("renamed", b"r"), make("removed", b"u")
os.fsync(directory)
os.pwrite(written, b"B" * 512, 512)
os.fdatasync(written)
os.pwrite(written, b"XY", 511)
make("made", b"m"), os.rename("renamed", "other"), os.unlink("removed"), os.ftruncate(cut, 10)
os.kill(os.getpid(), 9)
"""
SYNCHRONISED = {"written": b"a" * 512 + b"B" * 512, "cut": b"c" * 2000, "renamed": b"r", "removed": b"u"}
DONE = {"written": b"a" * 511 + b"XY" + b"B" * 511, "cut": b"c" * 10, "other": b"r", "made": b"m"}


def outcome(survives, meanwhile=lambda data: None):
    """The files after a power cut, and in what they differed from the record before."""
    with tempfile.TemporaryDirectory(prefix="fogmux-trial-") as data, Recorder(data) as recorder:
        recorder.begin()
        program = subprocess.run([sys.executable, "-c", PROGRAM], env=recorder.environment, capture_output=True)
        if program.returncode != -9:
            return {}, program.stderr.decode()
        meanwhile(Path(data))
        differs = recorder.cut(survives)
        return {path.name: path.read_bytes() for path in Path(data).iterdir()}, differs


def check(report):
    for what, survives, expected in (("nothing", 0.0, SYNCHRONISED), ("everything", 1.0, DONE)):
        files, differs = outcome(survives)
        problem = differs or (f"{files}" if files != expected else None)
        report.check(f"power cuts: of what was not synchronised, {what} survives", problem)
    is_torn = any(outcome(0.5)[0].get("written", b"")[511:513] in (b"XB", b"aY") for _ in range(24))
    report.check("power cuts: a write across two sectors may be torn", None if is_torn else "it never is")
    _, differs = outcome(1.0, lambda data: (data / "written").write_bytes(b"past the recorder"))
    report.check("power cuts: a write past the recorder is noticed", None if differs else "it is not")
