"""Readers that resume after a crash: an event stream by Last-Event-ID, and an observer of CoAP by its ETag. Both are in
memory only, so they are told what they have missed, and go on from there."""

import asyncio
import json

from aiocoap.numbers import codes

from client import PATIENCE, Refused
from clients_coap import Aiocoap
from crash_witness import Witness
from patience import within
from requests_http import topic_path
from scenarios import HttpDoor

TEXT = "text/plain;charset=utf-8"


async def eventually(condition):
    """Whether it holds in time."""
    async def holds():
        while not condition():
            await asyncio.sleep(0.02)
    try:
        await within(holds(), PATIENCE)
    except TimeoutError:
        return False
    return True


class Events(Witness):
    """A stream of the topics that the HTTP door writes."""

    name = "an event stream says that it is over, repeats what is kept, and goes on"
    fence = "crash-events/fence"

    def __init__(self, ending, topics):
        super().__init__(ending)
        self.topics = topics
        self.last_id: str | None = None
        self.latest: dict[str, bytes] = {}
        self.heard: list[str] = []
        """`item`, or the kind of a gap, in the order in which they came."""

    async def _stream(self, gateway):
        """Goes on behind the last event that came."""
        self.latest, self.heard = {}, []

        def item(received):
            self.last_id = received.extra["id"]
            self.latest[received.topic] = received.payload
            self.heard.append("item")

        def notice(fields):
            self.last_id = fields.get("id", self.last_id)
            said = json.loads(fields["data"])
            if "gap" in said:
                self.heard.append(said["gap"])
        self.http = HttpDoor(gateway)
        await self.http.open()
        again = [] if self.last_id is None else [("last-event-id", self.last_id)]
        await self.http.stream([("filter", topic) for topic in [*self.topics, self.fence]], item, again, notice)

    async def open(self, gateway):
        await self._stream(gateway)

    async def close(self):
        await self.http.close()

    async def judge(self, gateway):
        if "expired" in self.heard:
            return "a stream was said to be over in the life in which it began"
        is_resumed = self.last_id is not None
        await self._stream(gateway)
        kept = {}
        for topic in self.topics:
            status, _, body = await self.http.request("GET", topic_path(topic))
            if status == 200:
                kept[topic] = body
        came = await eventually(lambda: kept.items() <= self.latest.items())
        await self.http.publish(self.fence, b"", TEXT, retain=False)
        goes_on = await eventually(lambda: self.fence in self.latest)
        await self.http.close()
        if is_resumed and self.heard[:1] != ["expired"]:
            return f"the first that a stream of a life before heard is {self.heard[:1]}"
        if not came or set(self.latest) - {self.fence} - set(kept):
            return f"{self.latest} came, and {kept} is kept"
        return None if goes_on else "nothing comes after the values that are kept"


class Observer(Witness):
    """An observer of CoAP, which registers again with the ETag of the last value that it has."""

    name = "an observer that registers again has what is kept, and its numbers go on"
    topic = "crash-observed"

    def __init__(self, ending):
        super().__init__(ending)
        self.sent = self.acknowledged = 0
        self.tag: bytes | None = None
        self.value = b""
        self.number: int | None = None

    async def _observe(self, gateway):
        """Registers. Returns the response, and the number of the last notification before it."""
        self.coap, before = Aiocoap(gateway), self.number
        await self.coap.open()

        def answered(answer):
            self.number = answer.opt.observe
            if answer.code == codes.CONTENT:
                self.tag, self.value = answer.opt.etag, answer.payload
        message = self.coap.message(codes.GET, ["ps", self.topic])
        message.opt.etags = [self.tag] if self.tag else []
        return await self.coap.observe(message, answered), before

    async def open(self, gateway):
        self.http = HttpDoor(gateway)
        await self.http.open()
        await self._observe(gateway)

    async def _publish(self, http):
        self.sent += 1
        await http.publish(self.topic, str(self.sent).encode(), TEXT)
        self.acknowledged = self.sent

    async def write(self):
        while True:
            try:
                await self._publish(self.http)
            except Refused:
                if not self.ending.may_be_refused:
                    raise

    async def close(self):
        await self.coap.close()
        await self.http.close()

    async def judge(self, gateway):
        had, acknowledged = self.value, self.acknowledged
        first, before = await self._observe(gateway)
        kept = self.value
        http = HttpDoor(gateway)
        await http.open()
        found = await http.get(self.topic)
        await self._publish(http)
        goes_on = await eventually(lambda: self.value == str(self.sent).encode())
        await http.close()
        await self.coap.close()
        if (found and found.payload) != (kept or None) or int(kept or 0) < acknowledged:
            return f"{kept} after a crash, {acknowledged} was acknowledged, and {found} is read over HTTP"
        if first.code != (codes.VALID if had and had == kept else codes.CONTENT):
            return f"{first.code} for a value that was {had} and is {kept}"
        if before is not None and not is_newer(before, first.opt.observe):
            return f"Observe {first.opt.observe} after {before}"
        return None if goes_on else "no notification comes after the registration"


def is_newer(before, after):
    """RFC 7641 §3.4, of notifications that are less than 128 seconds apart."""
    return (before < after and after - before < 1 << 23) or (before > after and before - after > 1 << 23)
