"""The documentation, run: the clients of docs/clients.md and every command of README.md and docs/operating.

What needs a machine of its own runs in namespaces; without root only the rest does, and that is said.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from report import Report
from sandbox import UNSHARE, Sandbox, reason_against

ROOT = Path(__file__).parents[2]


async def run_documents(arguments, report):
    """Starts this file in namespaces, and takes over what it reports."""
    if reason := reason_against():
        print(f"documents: the commands of the pages were not run: {reason}")
        return
    with tempfile.TemporaryDirectory(prefix="fogmux-documents-") as place:
        process = await asyncio.create_subprocess_exec(
            *UNSHARE, sys.executable, __file__, "--bin", arguments.bin, "--place", place,
            *(word for name in arguments.scenario or () for word in ("--only", name)), stdout=subprocess.PIPE)
        last = b"{}"
        while line := await process.stdout.readline():
            last = line
            if not line.startswith(b"{"):
                print(line.decode(errors="replace"), end="", flush=True)
        code = await process.wait()
    outcome = json.loads(last) if last.startswith(b"{") else {}
    report.passed += outcome.get("passed", 0)
    report.failures += outcome.get("failures", [])
    report.check("documents: the run ends", None if code == 0 and outcome else f"exit code {code}")


async def inside(arguments) -> int:
    from operating import run_operating
    from readme import run_readme
    from snippets import run_snippets

    report = Report()
    sandbox = Sandbox(Path(arguments.bin), Path(arguments.place))
    sandbox.enter()
    parts = {"clients": run_snippets, "readme": run_readme, "operating": run_operating}
    try:
        for name, part in parts.items():
            if not arguments.only or name in arguments.only:
                await part(ROOT, sandbox, report)
                await sandbox.stop()
    finally:
        await sandbox.stop()
    print(json.dumps({"passed": report.passed, "failures": report.failures}))
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--place", required=True, help="an empty directory")
    parser.add_argument("--only", action="append")
    os.environ.pop("XDG_STATE_HOME", None)
    sys.exit(asyncio.run(inside(parser.parse_args())))
