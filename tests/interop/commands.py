"""Commands in the pages of the documentation: lines of blocks, those that units run, and code in sentences."""

import re
from dataclasses import dataclass
from pathlib import Path

from pages import Block, blocks

PROGRAMS = ("apt", "avahi-browse", "cargo", "coap-client", "coap-client-openssl", "curl", "dns-sd", "fogmux",
            "journalctl", "mosquitto_pub", "mosquitto_sub", "nft", "openssl", "podman", "promtool", "python",
            "sha256sum", "sudo", "systemctl", "systemd-analyze", "tar", "timedatectl")
"""Code in a sentence is a command if it begins with one of these and has a word behind it, or sets a variable."""
SHELLS = ("", "sh", "bash", "console")
"""Languages of blocks that are commands; an indented block has none."""
SPAN = re.compile(r"`([^`]+)`")
NAME = re.compile(r"(?:sudo )?(fogmux(?: [a-z]+){1,2})")
"""A command that a sentence may only name, as in "`fogmux check` says"."""
DATA = "/var/lib/fogmux"
RULES = f"{DATA}/acl.toml"


@dataclass
class Command:
    page: str
    line: int
    text: str
    """As it is typed, without a comment."""
    is_prose: bool = False
    """Whether it is in a sentence or a table."""

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}: {self.text.splitlines()[0]}"


def commands(root: Path, page: str) -> list[Command]:
    """Every command of a page, in its order."""
    found = [command for block in blocks(root, page) for command in of_block(block)]
    return sorted(found + of_prose(page, (root / page).read_text()), key=lambda command: command.line)


def of_prose(page: str, text: str) -> list[Command]:
    lines, is_fenced = [], False
    for line in text.splitlines():
        is_fence = line.startswith("```")
        is_fenced ^= is_fence
        lines.append("" if is_fenced or is_fence or line.startswith("    ") else line)
    prose = "\n".join(lines)
    spans = ((prose.count("\n", 0, span.start()) + 1, span[1]) for span in SPAN.finditer(prose))
    found = ((line, " ".join(text.replace(r"\|", "|").split())) for line, text in spans)
    return [Command(page, line, text, is_prose=True) for line, text in found if is_command(text)]


def is_command(text: str) -> bool:
    first, _, rest = text.partition(" ")
    return bool(rest) and (first in PROGRAMS or first.startswith("DESTDIR="))


def of_block(block: Block) -> list[Command]:
    if block.language == "toml" or block.text.startswith("["):
        return of_configuration(block)
    if block.text.startswith("# /"):
        return of_files(block)
    return typed(block) if block.language in SHELLS else []


def typed(block: Block) -> list[Command]:
    """A command a line, or more lines if it goes on."""
    found, text, line = [], "", block.line
    for number, written in enumerate(block.text.splitlines(), block.line):
        text += re.sub(r"(^|\s+)#\s.*", "", written)
        if text.endswith("\\"):
            text += "\n"
            continue
        found += [Command(block.page, line, text)] if text else []
        text, line = "", number + 1
    return found


def of_files(block: Block) -> list[Command]:
    """A block of several files, each after a comment with its name."""
    found, line = [], block.line
    for part in re.split(r"^(?=# /)", block.text, flags=re.MULTILINE):
        if part:
            text = part.partition("\n")[2]
            found += of_configuration(Block(block.page, line + 1, text=f"{text.rstrip()}\n"))
        line += part.count("\n")
    return found


def of_configuration(block: Block) -> list[Command]:
    """What is done with it: rules are put in place, other configuration is checked, and units run commands."""
    lines = block.text.splitlines()
    if lines[0] in ("[Unit]", "[Service]", "[Timer]"):
        executed = ((number, line) for number, line in enumerate(lines, block.line) if line.startswith("Exec"))
        return [Command(block.page, number, line.partition("=")[2].replace("$$", "$").replace("%%", "%"))
                for number, line in executed]
    if lines[0].startswith("[[allow]]"):
        do = f"sudo tee {RULES} <<'END'\n{block.text}END\nsudo chown fogmux: {RULES}\nsudo systemctl reload fogmux"
    else:
        do = f"fogmux check --data {DATA} /dev/stdin <<'END'\n{block.text}END"
    return [Command(block.page, block.line, do)]
