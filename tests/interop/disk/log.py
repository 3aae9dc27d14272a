"""The log of disk/recorder.c: what a process did to a directory."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass

RECORD = struct.Struct("=IIQQqQ")
DONE = ord("r")
WRITES = "W"


@dataclass
class Call:
    """One system call. `began` and `ended` are positions in the log; the result is missing if the process was killed
    meanwhile."""

    kind: str
    began: int
    inode: int
    at: int
    first: str = ""
    second: str = ""
    data: bytes = b""
    ended: int | None = None
    result: int | None = None


def calls(log: bytes) -> Iterator[Call]:
    """In the order of their ends; those that were cut off come last. A synchronisation goes on while others write."""
    under_way: dict[int, Call] = {}
    at = 0
    while at + RECORD.size <= len(log):
        kind, first, number, inode, where, second = RECORD.unpack_from(log, at)
        began, at = at, at + RECORD.size
        if kind == DONE:
            call = under_way.pop(number)
            call.ended, call.result = began, where
            call.inode = inode or call.inode
            yield call
            continue
        if at + first + second > len(log):
            # The process was killed while it logged this, and has not done it.
            return
        names, rest = log[at:at + first], log[at + first:at + first + second]
        at += first + second
        is_write = chr(kind) == WRITES
        under_way[number] = Call(chr(kind), began, inode, where, names.decode(), "" if is_write else rest.decode(),
                                 rest if is_write else b"")
    yield from under_way.values()
