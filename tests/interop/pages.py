"""Blocks of code in the pages of the documentation: fenced ones with their info string, and indented ones."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Block:
    """A block of code. `line` is that of its first line of text in the page, from 1."""

    page: str
    line: int
    language: str = ""
    marks: list[str] = field(default_factory=list)
    """Words of the info string after the language."""
    text: str = ""
    is_fenced: bool = True

    @property
    def name(self) -> str:
        return " ".join([f"{self.page}:{self.line}", self.language, *self.marks]).strip()


def blocks(root: Path, page: str) -> list[Block]:
    """Every block of a page. An indented one begins after an empty line (CommonMark §4.4)."""
    found, current, before = [], None, ""
    for number, line in enumerate((root / page).read_text().splitlines(), 1):
        if current and current.is_fenced:
            if line.startswith("```"):
                found.append(current)
                current = None
            else:
                current.text += f"{line}\n"
        elif line.startswith("```"):
            found += [current] if current else []
            language, *marks = line[3:].split() or [""]
            current = Block(page, number + 1, language, marks)
        elif line.startswith("    ") and (current or not before.strip()):
            current = current or Block(page, number, is_fenced=False)
            current.text += f"{line[4:]}\n"
        elif current and line.strip():
            found.append(current)
            current = None
        elif current:
            current.text += "\n"
        before = line
    found += [current] if current else []
    for block in found:
        block.text = block.text if block.is_fenced else f"{block.text.rstrip()}\n"
    return found

