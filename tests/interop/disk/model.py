"""What a disk has of a directory, by the record of what was done to it (disk/recorder.c).

The disk promises what POSIX does: the bytes of a file that were written before a synchronisation of it began, and the
names in a directory that were made or taken away before one of the directory. All else it has in any mixture, in
sectors of 512 bytes, until it is overwritten and that is synchronised. A synchronisation that fails leaves what it was
for to chance for good: no later one covers it, and reads see it nevertheless (as on Linux).
"""

import os
import random
import stat
from pathlib import Path

from disk.files import Directory, File

FORGED = 3
"""Synchronisations of the journal that a forged disk has only pretended to carry out."""


class Renaming:
    """Names of directories that were changed at once, each with what it was before."""

    def __init__(self, began, changes):
        self.began, self.changes = began, changes
        self.open = {directory for directory, _, _ in changes}
        self.is_doubtful = False

    def names(self):
        return {(directory, name) for directory, name, _ in self.changes}

    def is_certain(self):
        return not self.open and not self.is_doubtful

    def undo(self):
        for directory, name, before in self.changes:
            directory.put(name, before)


class Model:
    """The directory from the begin of a life on."""

    def __init__(self, path: Path):
        self.path, self.root = path, Directory()
        self.nodes: dict[int, File | Directory] = {}
        self.renamings: list[Renaming] = []
        self.synced: list[tuple[File, list]] = []
        self.strange: list[str] = []
        self.compared = 0
        self._load(path, self.root)

    def _load(self, path, directory):
        self.nodes[path.stat().st_ino] = directory
        for entry in os.scandir(path):
            if entry.is_dir(follow_symlinks=False):
                directory.put(entry.name, Directory())
                self._load(path / entry.name, directory.entries[entry.name])
            elif entry.is_file(follow_symlinks=False):
                file = File((path / entry.name).read_bytes())
                directory.put(entry.name, file)
                self.nodes[entry.inode()] = file

    def apply(self, call):
        if call.result is None:
            self._finish(call)
        if call.result is None or call.result < 0 and call.kind != "S":
            return
        match call.kind:
            case "W":
                self._file(call).write(call.began, call.at, call.data[:call.result])
            case "T":
                self._file(call).resize(call.began, call.at)
            case "C" | "M":
                node = File(b"") if call.kind == "C" else Directory()
                self.nodes[call.inode] = node
                self._change(call, [(*self._place(call.first), node)])
            case "R":
                source, name = self._place(call.first)
                node = source.entries[name]
                self._change(call, [(*self._place(call.second), node), (source, name, None)])
            case "U":
                directory, name = self._place(call.first)
                # A socket is not of the model.
                if name in directory.entries:
                    self._change(call, [(directory, name, None)])
            case "S":
                self._synchronise(call)
            case kind:
                self.strange.append(f"{kind} of {call.first}")

    def _finish(self, call):
        """Of a call that was cut off: whether it was carried out, by the directory."""
        path = self.path / call.first
        match call.kind:
            case "W":
                # Any part may have been.
                call.data = self._actual(call)
                call.result = len(call.data)
            case "T":
                call.at, call.result = self._size(call), 0
            case "C" | "M" if os.path.lexists(path):
                call.inode, call.result = path.lstat().st_ino, 0
            case "R" | "U" if not os.path.lexists(path):
                call.result = 0

    def _actual(self, call):
        path = self._path_of(self.nodes[call.inode])
        with open(path, "rb") as file:
            file.seek(call.at)
            return file.read(len(call.data))

    def _size(self, call):
        return os.path.getsize(self._path_of(self.nodes[call.inode]))

    def _path_of(self, node):
        return next(self.path / name for name, found in self.root.walk() if found is node)

    def _file(self, call) -> File:
        return self.nodes[call.inode]

    def _place(self, path) -> tuple[Directory, str]:
        *parents, name = Path(path).relative_to(self.path).parts
        directory = self.root
        for parent in parents:
            directory = directory.entries[parent]
        return directory, name

    def _change(self, call, changes):
        self.renamings.append(
            Renaming(call.began, [(directory, name, directory.entries.get(name)) for directory, name, _ in changes]))
        for directory, name, node in changes:
            directory.put(name, node)

    def _synchronise(self, call):
        node = self.nodes[call.inode]
        if isinstance(node, File):
            before = node.synchronise(call.began, call.result == 0)
            if before:
                self.synced.append((node, before))
            return
        for renaming in self.renamings:
            if renaming.began < call.began and node in renaming.open:
                renaming.open.discard(node)
                renaming.is_doubtful |= call.result < 0

    def compare(self) -> str | None:
        """In what the directory is not what the record says."""
        actual = {}
        for place, directories, files in os.walk(self.path):
            for name in directories + files:
                path = Path(place, name)
                if stat.S_ISDIR(path.lstat().st_mode) or stat.S_ISREG(path.lstat().st_mode):
                    actual[str(path.relative_to(self.path))] = path
        expected = dict(self.root.walk())
        if self.strange or actual.keys() != expected.keys():
            return f"calls {self.strange}, names {sorted(actual.keys() ^ expected.keys())}"
        for name, node in expected.items():
            node.mode = stat.S_IMODE(actual[name].lstat().st_mode)
            if isinstance(node, File):
                content = actual[name].read_bytes()
                self.compared += len(content)
                if content != node.content:
                    return f"{name} has {len(content)} bytes, {len(node.content)} were recorded, or others"
        return None

    def discard(self, survives: float, forges: bool) -> int:
        """Leaves what a power cut leaves. Returns how many sectors and names were lost."""
        lost = 0
        kept: set = set()
        for renaming in reversed(self.renamings):
            # A name became what it is now after it was what it was before.
            if renaming.is_certain() or renaming.names() & kept or random.random() < survives:
                kept |= renaming.names()
            else:
                renaming.undo()
                lost += 1
        if forges:
            journal = {node for name, node in self.root.walk() if name.endswith(".segment")}
            for file, before in [item for item in reversed(self.synced) if item[0] in journal][:FORGED]:
                file.forge(before)
        left = dict(self.root.walk())
        self._remove_others(left)
        for name, node in left.items():
            path = self.path / name
            if isinstance(node, Directory):
                path.mkdir(mode=0o700, exist_ok=True)
                continue
            content, sectors = node.cut(survives)
            lost += sectors
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)
                path.chmod(node.mode)
        return lost

    def _remove_others(self, left):
        for place, directories, files in os.walk(self.path, topdown=False):
            for name in directories + files:
                path = Path(place, name)
                is_ours = path.is_dir() or path.is_file()
                if is_ours and not isinstance(left.get(str(path.relative_to(self.path))), Directory | File):
                    path.rmdir() if path.is_dir() and not any(path.iterdir()) else path.unlink()
