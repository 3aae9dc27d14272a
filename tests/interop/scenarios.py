"""Cases beyond the matrix: clearing, wildcards, expiry, wills, sessions, access, restarts; one check each."""

import asyncio
import contextlib
import inspect
import itertools
import time
import traceback

import patience
from client import PATIENCE
from clients_coap import Aiocoap
from clients_http import Httpx
from clients_mqtt import Paho
from clients_xmpp import Slixmpp
from gateway import Gateway
from requests_http import H1

SCENARIOS = []
_numbers = itertools.count()


class Unmet(Exception):
    """The gateway did something else than it should."""


def expect(what: str, came, wanted):
    if came != wanted:
        raise Unmet(f"{what}: {came!r} instead of {wanted!r}")


def require(what: str, holds, detail=""):
    if not holds:
        raise Unmet(f"{what} {detail}")


def scenario(function):
    """Registers a scenario; its parameters say what it gets: gateway, doors, or nothing but the binary's path."""
    SCENARIOS.append(function)
    return function


def fresh(name: str) -> str:
    """A topic of its own."""
    return f"scenario/{name}/{next(_numbers)}"


async def until(what: str, condition, seconds: float = PATIENCE):
    """Asks again until it holds; never a fixed wait."""
    deadline = patience.now() + seconds
    while True:
        value = await condition()
        if value:
            return value
        if patience.now() > deadline:
            raise Unmet(f"{what}: not within {seconds:.0f} s")
        await asyncio.sleep(0.05)


class HttpDoor(Httpx):
    name, version = "httpx h1", H1


class MqttDoor(Paho):
    name = "paho 5"


class Doors:
    """One client of each door, open over all scenarios of a gateway."""

    def __init__(self, gateway):
        self.mqtt, self.coap = MqttDoor(gateway), Aiocoap(gateway)
        self.http, self.xmpp = HttpDoor(gateway), Slixmpp(gateway)

    def __iter__(self):
        return iter([self.mqtt, self.coap, self.http, self.xmpp])

    async def __aenter__(self):
        for door in self:
            await door.open()
        return self

    async def __aexit__(self, *_):
        for door in self:
            with contextlib.suppress(Exception):
                await patience.within(door.close(), 10)


async def run_scenarios(arguments, report):
    import scenarios_acme
    import scenarios_backup
    import scenarios_bus
    import scenarios_coap
    import scenarios_dashboard
    import scenarios_disk
    import scenarios_dtls
    import scenarios_http
    import scenarios_http_tools
    import scenarios_keys
    import scenarios_life
    import scenarios_mqtt
    import scenarios_profiles
    import scenarios_proxies
    import scenarios_refusals
    import scenarios_rollover
    import scenarios_traces
    import scenarios_xmpp
    _ = (scenarios_acme, scenarios_backup, scenarios_bus, scenarios_coap, scenarios_dashboard, scenarios_disk,
         scenarios_dtls, scenarios_http, scenarios_http_tools, scenarios_keys, scenarios_life, scenarios_mqtt,
         scenarios_profiles, scenarios_proxies, scenarios_refusals, scenarios_rollover, scenarios_traces,
         scenarios_xmpp)

    chosen = [s for s in SCENARIOS
              if not arguments.scenario or any(word in s.__name__.replace("_", " ") for word in arguments.scenario)]
    shared = [s for s in chosen if "binary" not in inspect.signature(s).parameters]
    alone = [s for s in chosen if s not in shared]
    if shared:
        async with Gateway(arguments.bin) as gateway:
            try:
                async with Doors(gateway) as doors:
                    for one in shared:
                        await _run(one, report, gateway=gateway, doors=doors)
            except Exception as error:
                report.check("scenarios: the four doors open", f"{type(error).__name__}: {error}\n{gateway.log_tail()}")
    for one in alone:
        await _run(one, report, binary=arguments.bin)


async def _run(function, report, **offered):
    name = function.__name__.replace("_", " ")
    began = time.monotonic()
    wanted = {key: offered[key] for key in inspect.signature(function).parameters}
    problem = None
    try:
        await patience.within(function(**wanted), 120)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{type(error).__name__}: {error} ({where.name}:{where.lineno})"
    if report.check(name, problem):
        print(f"  {name}: ok in {time.monotonic() - began:.1f} s", flush=True)
