"""The first messages of README.md: the table's commands and the lines below it, run as those of docs/clients.md."""

import re
from pathlib import Path

from pages import Block
from sandbox import Sandbox
from snippets import DOORS, ROLES, Clients

PAGE, SECTION = "README.md", "## First messages"
COMMAND = re.compile(r"`((?:mosquitto_|coap-client|curl|fogmux) ?[^`]*)`")
VERBS = {"pub": "publish", "get": "read", "sub": "follow"}
"""What a line of ours does, by its first word."""
COMMANDS_MIN = 14


def commands(root: Path) -> list[Block]:
    """Every command of the section, with its door and its role. XMPP's row has stanzas and not commands."""
    found, is_inside = [], False
    for number, line in enumerate((root / PAGE).read_text().splitlines(), 1):
        if line.startswith("## "):
            is_inside = line == SECTION
        elif is_inside and line.startswith("    fogmux "):
            text = line.strip()
            found.append(Block(PAGE, number, "sh", [door_of(text), VERBS[text.split()[1]]], text))
        elif is_inside and line.startswith("| "):
            first, _, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            for role, cell in zip(ROLES, cells):
                if command := COMMAND.fullmatch(cell):
                    found.append(Block(PAGE, number, "sh", [first.split()[0].lower(), role], command[1]))
    return found


def door_of(text: str) -> str:
    """The door of a URL in the text."""
    return next((door for door in DOORS if f"{door}://" in text or f"{door}s://" in text), "mqtt")


async def run_readme(root: Path, sandbox: Sandbox, report):
    page = commands(root)
    few = None if len(page) >= COMMANDS_MIN else f"only {len(page)} of at least {COMMANDS_MIN} were found"
    report.check("README.md: the commands of the first messages", few)
    # Started by its name alone, as the section says: the client trusts the gateway of the default data directory.
    sandbox.is_service = False
    await Clients(sandbox, page, False, report).run([])
