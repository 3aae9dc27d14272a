"""XMPP with SASL that no ready client brings over TLS 1.3: SCRAM-*-PLUS bound by tls-exporter, and OAUTHBEARER.

TLS is pyOpenSSL's, which can export keying material; the SCRAM messages are slixmpp's; what is here is only the stream.
"""

import asyncio
import base64
import contextlib
import re
import socket
from xml.sax.saxutils import escape, quoteattr

from OpenSSL import SSL
from slixmpp.util.sasl.mechanisms import SCRAM

from client import PATIENCE, Getter, Missing, Publisher, Received, Refused

EXPORTER = b"EXPORTER-Channel-Binding"
"""RFC 9266 §2: 32 bytes with this label and an empty context."""
SERVICE = "pubsub.localhost"


class RawXmpp(Publisher, Getter):
    """Direct TLS, one stanza at a time."""

    name = "pyOpenSSL"
    door = "xmpp"
    mechanism = "SCRAM-SHA-256-PLUS"
    spoiled = False
    """Claims the binding of another connection: whoever relays a login has only that."""

    async def open(self):
        await asyncio.to_thread(self._open)

    async def close(self):
        await asyncio.to_thread(self._close)

    async def publish(self, topic, data, content_type, retain=True):
        item = f"<data xmlns='urn:fogmux:0' content-type={quoteattr(content_type)} encoding='base64'>" \
            f"{base64.b64encode(data).decode()}</data>"
        await asyncio.to_thread(self._ask, "set", f"<publish node={quoteattr(topic)}><item>{item}</item></publish>")

    async def get(self, topic):
        answer = await asyncio.to_thread(self._ask, "get", f"<items node={quoteattr(topic)} max_items='1'/>")
        found = re.search(r"<data [^>]*?encoding=['\"](\w+)['\"][^>]*>([^<]*)</data>", answer)
        if not found:
            return None
        encoding, text = found.groups()
        return Received(base64.b64decode(text) if encoding == "base64" else text.encode(), None, topic)

    def _open(self):
        host, port = self.gateway.xmpp_address(direct=True)
        context = SSL.Context(SSL.TLS_CLIENT_METHOD)
        context.set_min_proto_version(SSL.TLS1_3_VERSION)
        context.load_verify_locations(self.gateway.ca)
        context.set_verify(SSL.VERIFY_PEER)
        plain = socket.create_connection((host, port), PATIENCE)
        # pyOpenSSL wants a blocking socket; the kernel ends a read that takes too long.
        plain.settimeout(None)
        seconds = int(PATIENCE).to_bytes(8, "little") + bytes(8)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, seconds)
        self.tls, self.rest = SSL.Connection(context, plain), ""
        self.tls.set_tlsext_host_name(b"localhost")
        self.tls.set_connect_state()
        self.tls.do_handshake()
        features = self._header()
        offered = re.findall(r"<mechanism>([^<]+)</mechanism>", features)
        if self.mechanism not in offered:
            raise Missing(f"{self.mechanism} is not offered: {offered}")
        self._authenticate(offered)
        self._header()
        self._iq("set", "", "<bind xmlns='urn:ietf:params:xml:ns:xmpp-bind'/>")

    def _authenticate(self, offered):
        steps = self._oauth() if self.mechanism == "OAUTHBEARER" else self._scram(offered)
        first = base64.b64encode(next(steps)).decode()
        self._send(f"<auth xmlns='urn:ietf:params:xml:ns:xmpp-sasl' mechanism='{self.mechanism}'>{first}</auth>")
        while True:
            answer = self._until(r"<(?:challenge|success|failure)\b.*?(?:</(?:challenge|success|failure)>|/>)")
            text = re.search(r">([^<]*)</(?:challenge|success)>", answer)
            data = base64.b64decode(text.group(1)) if text else b""
            if answer.startswith("<failure"):
                raise Refused(re.search(r"<([a-z-]+)\s*/>", answer.split(">", 1)[1]).group(1))
            if answer.startswith("<success"):
                if data:
                    steps.send(data)
                return
            reply = base64.b64encode(steps.send(data)).decode()
            self._send(f"<response xmlns='urn:ietf:params:xml:ns:xmpp-sasl'>{reply}</response>")

    def _scram(self, offered):
        """slixmpp's mechanism, given what Python's own TLS cannot give it."""
        binding = self.tls.export_keying_material(EXPORTER, 32, b"")
        if self.spoiled:
            binding = bytes(32)
        login = {"username": self.credential.user.encode(), "password": self.credential.password.encode(),
                 "authzid": b"", "channel_binding": binding}
        security = {"encrypted": True, "unencrypted_scram": False, "tls_version": "TLSv1.3",
                    "binding_proposed": any(name.endswith("-PLUS") for name in offered)}
        scram, challenge = SCRAM(self.mechanism, login, security), b""
        while True:
            challenge = yield scram.process(challenge)

    def _oauth(self):
        """RFC 7628 §3.1; an error comes as a challenge that is answered with one ^A (§3.2.3)."""
        yield b"n,,\x01auth=Bearer " + self.credential.token.encode() + b"\x01\x01"
        while True:
            yield b"\x01"

    def _header(self):
        self._send("<?xml version='1.0'?><stream:stream to='localhost' version='1.0' xmlns='jabber:client' "
                   "xmlns:stream='http://etherx.jabber.org/streams'>")
        return self._until(r"<stream:features.*?(?:</stream:features>|/>)")

    def _ask(self, kind, child):
        pubsub = f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{child}</pubsub>"
        return self._iq(kind, f" to='{SERVICE}'", pubsub)

    def _iq(self, kind, to, child):
        self._send(f"<iq type='{kind}' id='q'{to}>{child}</iq>")
        answer = self._until(r"<iq\b[^>]*?(?:/>|>.*?</iq>)")
        if re.match(r"<iq\b[^>]*type=['\"]error", answer):
            condition = re.search(r"<error\b[^>]*>\s*<([a-z-]+)", answer)
            raise Refused(condition.group(1) if condition else escape(answer))
        return answer

    def _send(self, text):
        # A peer that is gone has said why; that is read next.
        with contextlib.suppress(SSL.SysCallError):
            self.tls.sendall(text.encode())

    def _until(self, pattern):
        while True:
            found = re.search(pattern, self.rest, re.DOTALL)
            if found:
                self.rest = self.rest[found.end():]
                return found.group(0)
            try:
                self.rest += self.tls.recv(1 << 16).decode()
            except SSL.Error as error:
                raise Missing(f"the stream ended: {error!r} after {self.rest[-200:]!r}") from None

    def _close(self):
        # Nowhere else: what is said over a socket that was closed goes to whoever has been given its number since.
        try:
            self._send("</stream:stream>")
            self.tls.shutdown()
        finally:
            self.tls.close()
