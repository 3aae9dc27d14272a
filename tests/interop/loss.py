"""DTLS over a network that loses datagrams: handshakes with libcoap's clients at 0, 5, 10, 20 and 25 % random loss.

Every rate has a network namespace of its own, in which nftables drops datagrams both to and from the gateway; all rates
run at once, for what takes time is waiting. Without root nothing can be dropped, and only the lossless run is left.
"""

import argparse
import asyncio
import os
import re
import shutil
import statistics
import sys
import time
from pathlib import Path

from client import Missing, Refused, run
from clients_coap import Libcoap
from keyring import LockedGateway

RATES = (0, 5, 10, 20, 25)
"""Percent of all datagrams, in each direction."""
HANDSHAKES = 10
"""Of each client and kind of key, at once."""
TRIES = 6
"""At a quarter lost, one in a few dozen handshakes runs out of a client's own retransmissions; it knocks again."""
TEXT = "text/plain;charset=utf-8"


def may_drop() -> str | None:
    """What is missing to lose datagrams here."""
    if os.geteuid() != 0:
        return "this is not root"
    missing = [program for program in ("unshare", "nft", "ip") if shutil.which(program) is None]
    return f"there is no {' '.join(missing)}" if missing else None


class Kind:
    """One of libcoap's clients with one kind of key."""

    def __init__(self, library, key):
        self.name, self.key = f"libcoap {library} {key}", key
        self.client = type("Lossy", (Libcoap,), {
            "name": self.name, "program": f"coap-client-{library}", "scheme": "coaps", "seconds": "60"})


KINDS = [Kind("openssl", "psk"), Kind("gnutls", "psk"), Kind("openssl", "certificate"), Kind("gnutls", "certificate")]


async def shake_hands(gateway, kind, number):
    """One handshake and one request under it: the seconds it took, and how often it had to begin again."""
    client = kind.client(gateway, gateway.ring.right(kind.key, "alice", ""))
    began = time.monotonic()
    for tried in range(TRIES):
        try:
            await client.open()
            await client.publish(f"open/loss/{number}", b"over a bad line", TEXT)
            return time.monotonic() - began, tried
        except (Missing, Refused) as error:
            problem = error
    raise problem


async def drop(port: int, percent: int):
    rule = f"numgen random mod 100 < {percent} counter drop"
    lines = ["table inet loss {", "chain input { type filter hook input priority 0;",
             f"udp dport {port} counter", f"udp sport {port} counter",
             f"udp dport {port} {rule}", f"udp sport {port} {rule}", "}", "}"]
    code, _, err = await run("nft", "-f", "-", stdin="\n".join(lines).encode())
    if code != 0:
        raise RuntimeError(f"nft: {err.decode()}")


async def dropped() -> str:
    """What nftables counted: all datagrams and those it dropped."""
    _, out, _ = await run("nft", "list", "table", "inet", "loss")
    counts = [int(number) for number in re.findall(r"counter packets (\d+)", out.decode())]
    return f"{sum(counts[2:])} of {sum(counts[:2])} datagrams dropped"


async def one_rate(binary, percent: int, dropping: bool) -> int:
    async with LockedGateway(binary) as gateway:
        if dropping:
            await drop(gateway.coap_address("coaps")[1], percent)
        failed = 0

        async def measure(kind):
            nonlocal failed
            outcomes = await asyncio.gather(
                *(shake_hands(gateway, kind, f"{kind.name}/{number}".replace(" ", "-"))
                  for number in range(HANDSHAKES)),
                return_exceptions=True)
            good = [outcome for outcome in outcomes if isinstance(outcome, tuple)]
            bad = [outcome for outcome in outcomes if not isinstance(outcome, tuple)]
            failed += len(bad)
            times = sorted(seconds for seconds, _ in good) or [float("nan")]
            again = sum(tried for _, tried in good)
            print(f"  {percent:>2} % loss, {kind.name}: {len(good)} of {HANDSHAKES} handshakes, median "
                  f"{statistics.median(times):.2f} s, longest {times[-1]:.1f} s, begun again {again} times"
                  + "".join(f"\n    {type(error).__name__}: {error}" for error in bad[:2]), flush=True)
        await asyncio.gather(*map(measure, KINDS))
        if dropping:
            print(f"  {percent:>2} % loss: {await dropped()}", flush=True)
        if failed:
            print(gateway.log_tail())
    return failed


async def run_loss(arguments, report):
    reason = may_drop()
    if reason:
        print(f"  loss: {reason}: no datagram can be dropped, the handshakes run over plain loopback only")
        failed = await one_rate(arguments.bin, 0, dropping=False)
        report.check("DTLS over loopback", f"{failed} handshakes failed" if failed else None)
        return

    async def apart(percent):
        inside = ["ip link set lo up && exec \"$@\"", "sh", sys.executable, "-u", str(Path(__file__)),
                  "--bin", os.path.abspath(arguments.bin), "--percent", str(percent)]
        process = await asyncio.create_subprocess_exec("unshare", "--net", "sh", "-c", *inside)
        code = await process.wait()
        report.check(f"DTLS at {percent} % loss", f"{code} handshakes failed" if code else None)
    await asyncio.gather(*map(apart, RATES))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", required=True)
    parser.add_argument("--percent", type=int, required=True)
    options = parser.parse_args()
    sys.exit(min(255, asyncio.run(one_rate(options.bin, options.percent, dropping=True))))
