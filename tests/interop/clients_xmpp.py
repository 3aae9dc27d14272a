"""XMPP: slixmpp over STARTTLS and direct TLS, anonymous on loopback or with SCRAM."""

import asyncio
import base64
import uuid
import xml.etree.ElementTree as ET

from slixmpp import ClientXMPP
from slixmpp.exceptions import IqError, IqTimeout

from client import PATIENCE, Follower, Getter, Missing, Publisher, Received, Refused
from patience import first_of
from payloads import normal_type

DATA = "{urn:fogmux:0}data"
JSON = "{urn:xmpp:json:0}json"


def to_element(data: bytes, content_type: str | None):
    """The item payload for some bytes: JSON (XEP-0335) and XML as themselves, the rest as urn:fogmux:0 data."""
    text = None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        pass
    # XML 1.0 §2.2 allows no other control characters, and §2.11 folds CR.
    clean = text is not None and not any(ord(c) < 32 and c not in "\t\n" or c == "\r" for c in text)
    if clean and normal_type(content_type) == "application/json":
        element = ET.Element(JSON)
        element.text = text
        return element
    if clean and normal_type(content_type) == "application/xml" and not text.startswith("<?"):
        return ET.fromstring(text)
    element = ET.Element(DATA)
    if content_type is not None:
        element.set("content-type", content_type)
    element.set("encoding", "utf8" if clean else "base64")
    element.text = text if clean else base64.b64encode(data).decode()
    return element


def from_element(element, topic) -> Received:
    if element.tag == JSON:
        return Received((element.text or "").encode(), "application/json", topic)
    if element.tag == DATA:
        text = element.text or ""
        data = base64.b64decode(text) if element.get("encoding") == "base64" else text.encode()
        return Received(data, element.get("content-type"), topic)
    return Received(ET.tostring(element), "application/xml", topic, as_xml=True)


class Slixmpp(Publisher, Follower, Getter):
    """One session at pubsub.localhost."""

    name = "slixmpp"
    door = "xmpp"
    direct = False
    user = None
    mechanism = "ANONYMOUS"

    async def open(self):
        jid, password = "localhost", ""
        if self.user or self.credential.user:
            user, password = self.user or (self.credential.user, self.credential.password or "")
            jid = f"{user}@localhost/{uuid.uuid4().hex[:8]}"
        self.client = ClientXMPP(jid, password, sasl_mech=self.mechanism)
        if self.credential.certificate:
            self.client.certfile, self.client.keyfile = self.credential.certificate
        self.client.ca_certs = self.gateway.ca
        self.client.enable_direct_tls, self.client.enable_starttls = self.direct, not self.direct
        self.client.enable_plaintext = False
        self.service = "pubsub.localhost"
        for plugin in ("xep_0030", "xep_0004", "xep_0060", "xep_0199", "xep_0092", "xep_0059", "xep_0198"):
            self.client.register_plugin(plugin)
        self.pubsub = self.client.plugin["xep_0060"]
        loop = asyncio.get_running_loop()
        started, failed, self.ended = loop.create_future(), loop.create_future(), loop.create_future()

        def settle(future, value):
            if not future.done():
                future.set_result(value)

        self.client.add_event_handler("session_start", lambda event: settle(started, None))
        self.client.add_event_handler("failed_auth", lambda event: settle(failed, event))
        self.client.add_event_handler("failed_all_auth", lambda event: settle(failed, "no mechanism left"))
        self.client.add_event_handler("connection_failed", lambda event: settle(failed, event))
        self.client.add_event_handler("disconnected", lambda event: settle(self.ended, event))
        self.client.add_event_handler("stream_error", lambda event: settle(failed, event["condition"]))
        self.client.add_event_handler("pubsub_publish", self._published)
        self.client.add_event_handler("pubsub_retract", lambda message: self._retracted(message))
        self.client.add_event_handler("pubsub_purge", lambda message: self._gone(message, "purge"))
        host, port = self.gateway.xmpp_address(direct=self.direct)
        self.client.connect(host, port)
        done = await first_of([started, failed], PATIENCE)
        if failed in done:
            self.client.abort()
            event = failed.result()
            raise Refused(str(event["condition"]) if hasattr(event, "values") else str(event))
        if started not in done:
            self.client.abort()
            raise Missing("no XMPP session")
        self.client.send_presence()

    async def close(self):
        await self.client.disconnect()

    def _published(self, message):
        items = message["pubsub_event"]["items"]
        for item in items.xml:
            if item.tag.endswith("}item") and len(item):
                received = from_element(item[0], items["node"])
                received.extra = {"id": item.get("id"), "from": str(message["from"])}
                self.arrived(items["node"], received)

    def _retracted(self, message):
        node = message["pubsub_event"]["items"]["node"]
        self.arrived(node, Received(b"", None, node, extra={"gone": "retract"}))

    def _gone(self, message, how):
        node = message["pubsub_event"][how]["node"]
        self.arrived(node, Received(b"", None, node, extra={"gone": how}))

    async def ask(self, request):
        try:
            return await request
        except IqError as error:
            raise Refused(error.condition) from None
        except IqTimeout:
            raise Missing("no answer to an IQ") from None

    async def publish(self, topic, data, content_type, retain=True):
        options = None
        if not retain:
            options = self.client.plugin["xep_0004"].make_form(ftype="submit")
            kind = "http://jabber.org/protocol/pubsub#publish-options"
            options.add_field(var="FORM_TYPE", ftype="hidden", value=kind)
            options.add_field(var="pubsub#persist_items", value="0")
        request = self.ask(self.pubsub.publish(
            self.service, topic, payload=to_element(data, content_type), options=options, timeout=PATIENCE))
        request = asyncio.ensure_future(request)
        await asyncio.wait([request, self.ended], return_when=asyncio.FIRST_COMPLETED)
        if not request.done():
            request.cancel()
            raise Refused("stream closed")
        await request

    async def clear(self, topic):
        await self.ask(self.pubsub.purge(self.service, topic, timeout=PATIENCE))

    async def follow(self, topic):
        await self.ask(self.pubsub.subscribe(self.service, topic, timeout=PATIENCE))

    async def get(self, topic):
        try:
            answer = await self.ask(self.pubsub.get_items(self.service, topic, max_items=1, timeout=PATIENCE))
        except Refused as refused:
            if refused.code == "item-not-found":
                return None
            raise
        items = [item for item in answer["pubsub"]["items"].xml if item.tag.endswith("}item") and len(item)]
        return from_element(items[0][0], topic) if items else None


class SlixmppDirect(Slixmpp):
    name = "slixmpp tls"
    direct = True
