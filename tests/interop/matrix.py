"""Every publisher against every reader with every payload: bytes and content type arrive unchanged."""

import asyncio
import contextlib
import time

import patience
from client import Client, Follower, Getter, Missing, Publisher, Received, Refused
from clients_coap import content_format
from patience import within
from payloads import PAYLOADS, Payload, brief, normal_type, same_xml

SEED = Payload("seed", b"seed", "text/plain;charset=utf-8")
LATE = 3.0
"""Seconds to wait for the message that was meant after another one came instead."""

WHOLE = 60.0
"""Seconds for a mebibyte in blocks of a kilobyte each way, on a machine that does much else."""

PROMPT = 10.0
"""Seconds within which all but the largest payload has to be there: later, somebody forgot to wake somebody."""

# The standard answer of each door to a payload beyond the door's own limit.
REFUSALS = {
    "coap": {"4.13"},
    "http": {"413"},
    "mqtt": {"0x95", "0x97"},
    "xmpp": {"policy-violation", "not-acceptable", "payload-too-big", "stream closed"},
}


def typed_by(publisher: Publisher, payload: Payload) -> str | None:
    """The content type that leaves the publisher."""
    if not publisher.content_types:
        return None
    if publisher.door == "coap":
        return payload.content_type if content_format(payload.content_type) is not None else None
    return payload.content_type


def seen_by(reader: Client, sent: str | None) -> str | None:
    """The content type that this reader has to be shown for one that was sent."""
    if not reader.content_types:
        return None
    if reader.door == "coap":
        return sent if content_format(sent) is not None else None
    if sent is None and isinstance(reader, Getter) and reader.door == "http":
        return "application/octet-stream"
    return sent


def compare(received: Received, payload: Payload, publisher: Publisher, reader: Client, following: bool) -> str | None:
    # Clients of XMPP that hold XML as a tree write it their own way; everything else is compared byte by byte.
    as_tree = payload.name == "xml" and (received.as_xml or publisher.door == "xmpp")
    same = same_xml(received.payload, payload.data) if as_tree else received.payload == payload.data
    if not same:
        return f"{brief(received.payload)} instead of {brief(payload.data)}"
    if not reader.content_types:
        return None
    sent = typed_by(publisher, payload)
    wanted = sent if following and reader.door == "http" else seen_by(reader, sent)
    exact = publisher.door != "coap" and reader.door != "coap"
    same = received.content_type == wanted if exact else normal_type(received.content_type) == normal_type(wanted)
    return None if same else f"content type {received.content_type!r} instead of {wanted!r}"


class Matrix:
    def __init__(self, gateway, publishers, readers, report, payloads=None):
        self.gateway, self.report = gateway, report
        self.publishers: list[Publisher] = publishers
        self.readers: list[tuple[str, Client, bool]] = []
        for reader in readers:
            if isinstance(reader, Follower):
                self.readers.append((f"{reader.name} follow", reader, True))
            if isinstance(reader, Getter):
                self.readers.append((f"{reader.name} get", reader, False))
        self.payloads = payloads or PAYLOADS

    async def run(self):
        for publisher in self.publishers:
            began = time.monotonic()
            await self._row(publisher)
            print(f"  {publisher.name:<18} {time.monotonic() - began:6.1f} s", flush=True)

    async def _row(self, publisher: Publisher):
        topic = f"interop/{publisher.name.replace(' ', '-').replace('/', '-')}/value"
        if not await self._publish(publisher, topic, SEED):
            return
        # Everybody comes late: the kept seed has to be the first thing they see.
        following = await asyncio.gather(*(self._join(publisher, topic, *entry) for entry in self.readers))
        present = [entry for entry, joined in zip(self.readers, following) if joined]
        previous = SEED
        for payload in self.payloads:
            if await self._publish(publisher, topic, payload):
                await asyncio.gather(
                    *(self._arrival(publisher, topic, payload, previous, *entry) for entry in present))
                previous = payload

    async def _publish(self, publisher, topic, payload) -> bool:
        what = f"{publisher.name} publishes {payload.name}"
        try:
            await within(publisher.publish(topic, payload.data, typed_by(publisher, payload)), WHOLE)
        except Refused as refused:
            allowed = payload.name == "1MiB" and refused.code in REFUSALS[publisher.door]
            self.report.check(what, None if allowed else f"refused with {refused.code}", (publisher.name, "itself"))
            if allowed:
                print(f"  {publisher.name} may not publish 1 MiB: {refused.code}")
                await self._reopen(publisher)
            return False
        except Exception as error:
            self.report.check(what, f"{type(error).__name__}: {error}", (publisher.name, "itself"))
            await self._reopen(publisher)
            return False
        return self.report.check(what, None, (publisher.name, "itself"))

    async def _reopen(self, publisher):
        """A refusal may have cost the connection."""
        with contextlib.suppress(Exception):
            await within(publisher.close(), LATE)
        await publisher.open()

    async def _join(self, publisher, topic, label, reader, following) -> bool:
        what = f"{publisher.name} -> {label}: seed"
        cell = (publisher.name, label)
        try:
            if following:
                await within(reader.follow(topic), WHOLE)
            return self.report.check(
                what, await self._compare(publisher, topic, SEED, None, reader, following), cell) or following
        except Exception as error:
            return self.report.check(what, f"{type(error).__name__}: {error}", cell)

    async def _arrival(self, publisher, topic, payload, previous, label, reader, following):
        what = f"{publisher.name} -> {label}: {payload.name}"
        began = patience.now()
        try:
            problem = await self._compare(publisher, topic, payload, previous, reader, following)
            took = patience.now() - began
            if problem is None and took > PROMPT and len(payload.data) < 1 << 20:
                problem = f"came after {took:.0f} s"
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        self.report.check(what, problem, (publisher.name, label))

    async def _compare(self, publisher, topic, payload, previous, reader, following) -> str | None:
        if not following:
            received = await within(reader.get(topic), WHOLE)
            return "no value" if received is None else compare(received, payload, publisher, reader, following)
        received = await reader.next(topic, WHOLE)
        if reader.door == "coap" and previous and received.payload == previous.data:
            # RFC 7641 §3.5: a notification may repeat the state that the client already has.
            received = await reader.next(topic, WHOLE)
        problem = compare(received, payload, publisher, reader, following)
        while problem and received.payload != payload.data:
            try:
                received = await reader.next(topic, LATE)
            except Missing:
                break
        return problem
