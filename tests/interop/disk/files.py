"""Files and directories with what the disk may have of them."""

import random

SECTOR = 512
"""Bytes that a disk writes at once or not at all."""


class Directory:
    mode = 0o700

    def __init__(self):
        self.entries: dict[str, File | Directory] = {}

    def put(self, name, node):
        """None takes a name away."""
        if node is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = node

    def walk(self, prefix=""):
        """All below it with their paths, directories before what is in them."""
        for name, node in self.entries.items():
            yield prefix + name, node
            if isinstance(node, Directory):
                yield from node.walk(f"{prefix}{name}/")


class Versions:
    """Of a sector or a size: what the disk has if it has nothing newer, and what is newer."""

    def __init__(self):
        self.doubtful: list = []
        self.pending: list[tuple[int, object]] = []

    def covered(self, began):
        """Takes what was written before a synchronisation began."""
        covered = [version for at, version in self.pending if at < began]
        self.pending = [(at, version) for at, version in self.pending if at >= began]
        return covered

    def choose(self, stable, survives):
        newer = self.doubtful + [version for _, version in self.pending]
        if not newer or random.random() >= survives:
            return stable
        return newer[-1] if survives == 1 else random.choice(newer)


class File:
    mode = 0o600

    def __init__(self, content: bytes):
        self.content = bytearray(content)
        """As reads return it."""
        self.stable = bytearray(content)
        """What is on the disk for certain, but for the versions of some sectors."""
        self.sectors: dict[int, Versions] = {}
        self.size = Versions()

    def write(self, began, at, data):
        end = at + len(data)
        if end > len(self.content):
            self.content.extend(bytes(end - len(self.content)))
            self.size.pending.append((began, end))
        self.content[at:end] = data
        self._note(began, at, end)

    def resize(self, began, size):
        before = len(self.content)
        if size == before:
            return
        self.size.pending.append((began, size))
        if size > before:
            self.content.extend(bytes(size - before))
        else:
            del self.content[size:]
            self._note(began, size, before)

    def _note(self, began, start, end):
        for sector in range(start // SECTOR, -(-end // SECTOR)):
            versions = self.sectors.setdefault(sector, Versions())
            versions.pending.append((began, _sector(self.content, sector)))

    def synchronise(self, began, is_good):
        """Returns what is lost if it was pretended only."""
        sizes, before = self.size.covered(began), []
        if is_good and sizes:
            before.append((None, len(self.stable)))
            _resize(self.stable, sizes[-1])
            self.size.doubtful = []
        elif not is_good:
            self.size.doubtful += sizes
        for sector, versions in list(self.sectors.items()):
            covered = versions.covered(began)
            if is_good and covered:
                before.append((sector, _sector(self.stable, sector)))
                _put(self.stable, sector, covered[-1])
                versions.doubtful = []
            elif not is_good:
                versions.doubtful += covered
            if not versions.pending and not versions.doubtful:
                del self.sectors[sector]
        return before

    def forge(self, before):
        for sector, content in before:
            if sector is not None:
                _put(self.stable, sector, content)

    def cut(self, survives):
        """The content after a power cut, and how many sectors are not what was written last."""
        _resize(self.stable, self.size.choose(len(self.stable), survives))
        for sector, versions in self.sectors.items():
            _put(self.stable, sector, versions.choose(_sector(self.stable, sector), survives))
        lost = sum(_sector(self.stable, sector) != _sector(self.content, sector) for sector in self.sectors)
        return bytes(self.stable), lost


def _sector(content, sector):
    return bytes(content[sector * SECTOR:(sector + 1) * SECTOR]).ljust(SECTOR, b"\0")


def _put(content, sector, new):
    """What is beyond the end is nowhere."""
    start = sector * SECTOR
    length = max(0, min(SECTOR, len(content) - start))
    content[start:start + length] = new[:length]


def _resize(content, size):
    del content[size:]
    content.extend(bytes(size - len(content)))
