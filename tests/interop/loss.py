"""DTLS over a network that loses datagrams: handshakes with libcoap's clients at 0, 5, 10, 20 and 25 % random loss.

A relay stands between each client and the gateway and drops datagrams in both directions by a generator with a seed of
its own: the third datagram of a client is lost in every run or in none. Only the clients' clocks are left to chance, so
what is judged is chosen such that chance cannot fail it:

- A client gives up by itself. OpenSSL sends a flight 6 times in a minute: at 25 % loss, one of some 14 datagrams is
  lost every time with probability 14 * 0.25^6 = 0.3 %, and all 5 transmissions of a Confirmable request or their
  answers are lost with (1 - 0.75^2)^5 = 1.6 %. GnuTLS gives up sooner: 14 of 24 tries with certificates failed. We
  assume Q = 70 % for all.
- A client that gives up tries again, TRIES times in all. With a correct gateway, one of 200 clients fails with
  probability 200 * 0.7^74 = 7e-10. A gateway that does not retransmit its flights gets 14 datagrams through with
  0.75^14 = 2 % a try, so that a quarter (0.98^74) of 40 clients fail.
"""

import asyncio
import random
import statistics
import time

from client import Missing, Refused
from clients_coap import Libcoap
from keyring import LockedGateway

RATES = (0, 5, 10, 20, 25)
"""Percent of all datagrams, in each direction."""
HANDSHAKES = 10
"""Of each client and kind of key, at once."""
TRIES = 74
"""Of each client; see above."""
SEED = 7252
TEXT = "text/plain;charset=utf-8"


class Relay(asyncio.DatagramProtocol):
    """A port that leads to the gateway. A client's next try comes from another port and continues the same sequence."""

    def __init__(self, gateway: tuple[str, int], percent: int, seed: str):
        self.gateway, self.share = gateway, percent / 100
        self.there, self.back = random.Random(seed + " there"), random.Random(seed + " back")
        self.upstream: dict[tuple[str, int], asyncio.DatagramTransport] = {}
        self.seen = self.dropped = 0

    async def open(self) -> tuple[str, int]:
        """Its address."""
        self.transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
            lambda: self, local_addr=("127.0.0.1", 0))
        return self.transport.get_extra_info("sockname")

    def close(self):
        for transport in [self.transport, *self.upstream.values()]:
            transport.close()

    def is_lost(self, generator) -> bool:
        lost = generator.random() < self.share
        self.seen, self.dropped = self.seen + 1, self.dropped + lost
        return lost

    def datagram_received(self, data, client):
        if not self.is_lost(self.there):
            asyncio.ensure_future(self._forward(data, client))

    async def _forward(self, data, client):
        if client not in self.upstream:
            # Both datagrams of a client may get here before the first has its socket.
            making = asyncio.get_running_loop().create_datagram_endpoint(
                lambda: Back(self, client), remote_addr=self.gateway)
            transport, _ = await making
            if self.upstream.setdefault(client, transport) is not transport:
                transport.close()
        self.upstream[client].sendto(data)


class Back(asyncio.DatagramProtocol):
    """The way from the gateway to one client."""

    def __init__(self, relay: Relay, client: tuple[str, int]):
        self.relay, self.client = relay, client

    def datagram_received(self, data, _):
        if not self.relay.is_lost(self.relay.back):
            self.relay.transport.sendto(data, self.client)


class Lossy(Libcoap):
    """Knocks at a relay."""

    scheme, seconds = "coaps", "60"

    def url(self, topic):
        host, port = self.relay
        return f"{self.scheme}://{host}:{port}/ps/{topic}"


class Kind:
    """One of libcoap's clients with one kind of key."""

    def __init__(self, library, key):
        self.name, self.key = f"libcoap {library} {key}", key
        self.client = type("Lossy", (Lossy,), {"name": self.name, "program": f"coap-client-{library}"})


KINDS = [Kind("openssl", "psk"), Kind("gnutls", "psk"), Kind("openssl", "certificate"), Kind("gnutls", "certificate")]


class Outcome:
    """Of one client: the seconds it took, how often it had to begin again, and what its relay did."""

    def __init__(self, relay):
        self.relay, self.seconds, self.again, self.problem = relay, 0.0, 0, None


async def shake_hands(gateway, kind, percent, number) -> Outcome:
    """Handshakes, until one request is answered under one of them."""
    relay = Relay(gateway.coap_address("coaps"), percent, f"{SEED} {percent} {kind.name} {number}")
    client = kind.client(gateway, gateway.ring.right(kind.key, "alice", ""))
    client.relay = await relay.open()
    outcome, began = Outcome(relay), time.monotonic()
    topic = f"open/loss/{percent}/{kind.name}/{number}".replace(" ", "-")
    for outcome.again in range(TRIES):
        try:
            await client.open()
            await client.publish(topic, b"over a bad line", TEXT)
            outcome.problem = None
            break
        except (Missing, Refused) as error:
            outcome.problem = error
    outcome.seconds = time.monotonic() - began
    relay.close()
    return outcome


async def measure(gateway, kind, percent) -> list[Outcome]:
    outcomes = await asyncio.gather(*(shake_hands(gateway, kind, percent, number) for number in range(HANDSHAKES)))
    good = [outcome for outcome in outcomes if outcome.problem is None]
    times = sorted(outcome.seconds for outcome in good) or [float("nan")]
    print(f"  {percent:>2} % loss, {kind.name}: {len(good)} of {HANDSHAKES} handshakes, median "
          f"{statistics.median(times):.2f} s, longest {times[-1]:.1f} s, begun again "
          f"{sum(outcome.again for outcome in good)} times", flush=True)
    return outcomes


async def one_rate(gateway, percent: int, report):
    outcomes = [outcome for some in await asyncio.gather(*(measure(gateway, kind, percent) for kind in KINDS))
                for outcome in some]
    seen, dropped = (sum(getattr(outcome.relay, name) for outcome in outcomes) for name in ("seen", "dropped"))
    first = sum(outcome.problem is None and outcome.again == 0 for outcome in outcomes)
    print(f"  {percent:>2} % loss: {dropped} of {seen} datagrams dropped, {first} of {len(outcomes)} clients needed no "
          "second try", flush=True)
    problems = [f"{type(outcome.problem).__name__}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    if problems:
        print(gateway.log_tail())
    report.check(f"DTLS at {percent} % loss", "; ".join(problems[:3]) or None)


async def run_loss(arguments, report):
    async with LockedGateway(arguments.bin) as gateway:
        await asyncio.gather(*(one_rate(gateway, percent, report) for percent in RATES))
