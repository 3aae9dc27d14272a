"""Interop: clients that others wrote, against the built gateway. `python tests/interop --help`."""

import argparse
import asyncio
import logging
import sys
import time

from gateway import Gateway
from matrix import Matrix
from patience import within
from payloads import PAYLOADS
from report import Report


def all_clients(gateway, wanted):
    import bridges
    import clients_coap
    import clients_http
    import clients_mqtt
    import clients_xmpp

    kinds = [*clients_mqtt.PAHO, *clients_mqtt.MOSQUITTO, clients_coap.Aiocoap, clients_coap.AiocoapWs,
             clients_coap.Libcoap,
             *clients_http.REQUESTS, *clients_http.STREAMS, clients_xmpp.Slixmpp, clients_xmpp.SlixmppDirect,
             *bridges.BRIDGES]
    return [kind(gateway) for kind in kinds if not wanted or any(word in kind.name for word in wanted)]


async def open_all(clients, report):
    """All at once; those that got in."""
    async def attempt(client):
        try:
            await within(client.open(), 60)
        except Exception as error:
            report.check(f"{client.name} connects", f"{type(error).__name__}: {error}")
            return None
        return client
    return [client for client in await asyncio.gather(*map(attempt, clients)) if client]


async def run_matrix(arguments, report):
    from client import Follower, Getter, Publisher

    async with Gateway(arguments.bin) as gateway:
        # Two connections per client: a refused publication may cost one, and its reader stays.
        clients = all_clients(gateway, arguments.client)
        publishers = await open_all([c for c in clients if isinstance(c, Publisher)], report)
        clients = all_clients(gateway, arguments.client)
        readers = await open_all([c for c in clients if isinstance(c, (Follower, Getter))], report)
        payloads = [p for p in PAYLOADS if not arguments.payload or p.name in arguments.payload]
        await Matrix(gateway, publishers, readers, report, payloads).run()
        for client in publishers + readers:
            try:
                await within(client.close(), 30)
            except Exception as error:
                report.check(f"{client.name} closes", f"{type(error).__name__}: {error}")
        code = await gateway.terminate()
        report.check("SIGTERM ends the gateway", None if code == 0 else f"exit code {code}\n{gateway.log_tail()}")
    print(report.matrix())


PARTS = ["documents", "matrix", "scenarios", "clients", "access", "powercut", "crash", "discard", "loss"]


async def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bin", default="target/debug/fogmux", help="the gateway to test")
    parser.add_argument("--part", choices=PARTS, action="append", help="only this")
    parser.add_argument("--skip", choices=PARTS, action="append", default=[], help="not this")
    parser.add_argument("--client", action="append", help="only clients whose name contains this")
    parser.add_argument("--payload", action="append", help="only this payload")
    parser.add_argument("--scenario", action="append", help="only scenarios whose name contains this")
    arguments = parser.parse_args()
    # slixmpp leaves tasks behind when a stream is cut, as many tests do on purpose.
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    parts = [part for part in arguments.part or PARTS if part not in arguments.skip]
    report, began = Report(), time.monotonic()
    if "documents" in parts:
        from documents import run_documents
        await run_documents(arguments, report)
    if "matrix" in parts:
        await run_matrix(arguments, report)
    if "scenarios" in parts:
        from scenarios import run_scenarios
        await run_scenarios(arguments, report)
    if "clients" in parts:
        from mqtt_facts import run_clients
        await run_clients(arguments, report)
    if "access" in parts:
        from access import run_access
        await run_access(arguments, report)
    if "powercut" in parts:
        from powercut import run_powercut
        await run_powercut(arguments, report)
    if "crash" in parts:
        from crash import run_crash
        await run_crash(arguments, report)
    if "discard" in parts:
        from discard import run_discard
        await run_discard(arguments, report)
    if "loss" in parts:
        from loss import run_loss
        await run_loss(arguments, report)
    for failure in report.failures:
        print("failed: interop", failure.replace("\n", " | "))
    print(f"{report.passed} passed, {len(report.failures)} failed in {time.monotonic() - began:.0f} s")
    return 1 if report.failures or not report.passed else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
