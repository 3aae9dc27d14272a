"""CoAP: aiocoap kept open with its observations, libcoap's command-line clients once per request.

Each over every transport it has, with the keys it takes: aiocoap OSCORE, libcoap pre-shared keys and certificates.
"""

import asyncio
import re
import tempfile

import aiocoap
from aiocoap import oscore
from aiocoap.error import ResourceChanged
from aiocoap.message import UndecidedRemote
from aiocoap.numbers import ContentFormat, codes

from client import PATIENCE, Follower, Getter, Missing, Publisher, Received, Refused, run
from patience import within
from payloads import normal_type

FORMATS = {
    "text/plain;charset=utf-8": 0, "application/link-format": 40, "application/xml": 41,
    "application/octet-stream": 42, "application/json": 50, "application/cbor": 60,
}
HANDSHAKE_FAILED = r"(?i)COAP_EVENT_DTLS_ERROR|alert|handshake fail\w*|certificate \w+|cannot send CoAP"
"""The messages of libcoap about a handshake that failed, with any of its TLS libraries."""
TYPES = {number: name for name, number in FORMATS.items()}


def content_format(content_type):
    """The registered number (RFC 7252 §12.3), or None."""
    return FORMATS.get(normal_type(content_type))


class Aiocoap(Publisher, Follower, Getter):
    """PUT, GET and Observe by aiocoap, block-wise by itself."""

    name = "aiocoap"
    door = "coap"
    scheme = "coap"

    async def open(self):
        self.context = await aiocoap.Context.create_client_context()
        self.observed = []
        if self.credential.context:
            host, port = self.gateway.coap_address(self.scheme)
            self.context.client_credentials.load_from_dict(
                {f"{self.scheme}://{host}:{port}/*": {"oscore": {"basedir": self.credential.context + "/"}}})

    async def close(self):
        for observation in self.observed:
            # One that an error has ended is cancelled already.
            if not observation.cancelled:
                observation.cancel()
        await self.context.shutdown()

    def message(self, code, path, query=(), **options):
        host, port = self.gateway.coap_address(self.scheme)
        message = aiocoap.Message(code=code, **options)
        message.opt.uri_path = tuple(path)
        message.opt.uri_query = tuple(query)
        message.remote = UndecidedRemote(self.scheme, f"{host}:{port}")
        return message

    async def request(self, message):
        try:
            return await within(self.context.request(message).response, 3 * PATIENCE)
        except TimeoutError:
            raise Missing("no response") from None
        except oscore.NotAProtectedMessage as error:
            # An error of the protection is answered unprotected (RFC 8613 §8.2).
            raise Refused(f"unprotected {error.plain_message.code.dotted}") from None

    async def publish(self, topic, data, content_type, retain=True):
        message = self.message(codes.PUT if retain else codes.POST, ["ps", *topic.split("/")], payload=data)
        number = content_format(content_type)
        if number is not None:
            message.opt.content_format = ContentFormat(number)
        answer = await self.request(message)
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)

    async def clear(self, topic):
        answer = await self.request(self.message(codes.DELETE, ["ps", *topic.split("/")]))
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)

    @staticmethod
    def received(answer, topic):
        number = answer.opt.content_format
        return Received(answer.payload, None if number is None else TYPES.get(int(number), str(int(number))), topic)

    async def get(self, topic):
        try:
            answer = await self.request(self.message(codes.GET, ["ps", *topic.split("/")]))
        except ResourceChanged:
            # A newer value came between two blocks: aiocoap leaves it to its user to ask again (RFC 7959 §2.4).
            return await self.get(topic)
        if answer.code == codes.NOT_FOUND:
            return None
        if not answer.code.is_successful():
            raise Refused(answer.code.dotted)
        return self.received(answer, topic)

    async def observe(self, message, on_answer, on_error=lambda error: None):
        """Registers; `on_answer` sees the first response and each notification, the final error too.

        `on_error` sees why aiocoap has given up the observation by itself.
        """
        message.opt.observe = 0
        pending = self.context.request(message)
        loop = asyncio.get_running_loop()
        pending.observation.register_callback(lambda answer: loop.call_soon(on_answer, answer))
        pending.observation.register_errback(on_error)
        try:
            first = await within(pending.response, PATIENCE)
        except TimeoutError:
            raise Missing("no response to Observe") from None
        if first.code.is_successful() and first.opt.observe is None:
            raise Refused(f"{first.code.dotted} without Observe")
        self.observed.append(pending.observation)
        if first.code.is_successful():
            on_answer(first)
        return first

    async def follow(self, topic):
        def arrived(answer):
            if answer.code.is_successful():
                self.arrived(topic, self.received(answer, topic))
            elif answer.code == codes.NOT_ACCEPTABLE:
                # The Content-Format has changed, which ends an observation (RFC 7641 §4.2): a new one shows the value.
                self.again = asyncio.ensure_future(self.follow(topic))
            else:
                self.arrived(topic, Received(b"", None, topic, extra={"code": answer.code.dotted}))

        def ended(error):
            if isinstance(error, ResourceChanged):
                # The blocks of a notification were overtaken by a newer value, which ends aiocoap's observation.
                self.again = asyncio.ensure_future(self.follow(topic))
        first = await self.observe(self.message(codes.GET, ["ps", *topic.split("/")]), arrived, ended)
        if not first.code.is_successful():
            raise Refused(first.code.dotted)


class AiocoapWs(Aiocoap):
    """Over WebSockets (RFC 8323 §4)."""

    name = "aiocoap ws"
    scheme = "coap+ws"


class Libcoap(Publisher, Getter):
    """coap-client: PUT from a file, GET into a file, the response's options read from its log."""

    name = "libcoap"
    door = "coap"
    program = "coap-client-notls"
    scheme = "coap"
    seconds = "30"
    """For one exchange, handshake and all."""

    def url(self, topic):
        host, port = self.gateway.coap_address(self.scheme)
        return f"{self.scheme}://{host}:{port}/ps/{topic}"

    def _keys(self):
        keys = self.credential
        if keys.psk:
            return ["-u", keys.psk[0], "-k", keys.psk[1].decode()]
        if keys.certificate:
            return ["-c", keys.certificate[0], "-j", keys.certificate[1], "-C", self.gateway.ca]
        return []

    async def request(self, method, topic, *extra):
        # -v 7 prints every PDU; the code and options of the last one that came in are the answer.
        code, out, err = await run(
            self.program, "-v", "7", "-B", self.seconds, "-b", "1024", "-m", method, *self._keys(), *extra,
            self.url(topic), patience=2.0 * float(self.seconds))
        text = (out + err).decode(errors="replace")
        answers = re.findall(r"<?v:1 t:(?:ACK|CON|NON) c:([2-5]\.\d\d) i:\w+ \{\w*\} \[([^\]]*)\]", text)
        if not answers and self.scheme.startswith("coaps") and re.search(HANDSHAKE_FAILED, text):
            raise Refused(f"handshake: {re.findall(HANDSHAKE_FAILED, text)}")
        if code != 0 or not answers:
            raise Missing(f"coap-client: exit {code}: {text[-300:]}")
        return answers[-1]

    async def publish(self, topic, data, content_type, retain=True):
        number = content_format(content_type)
        kind = [] if number is None else ["-t", str(number)]
        with tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as file:
            file.write(data)
            file.flush()
            code, _ = await self.request("put" if retain else "post", topic, *kind, "-f", file.name)
        if not code.startswith("2."):
            raise Refused(code)

    async def clear(self, topic):
        code, _ = await self.request("delete", topic)
        if not code.startswith("2."):
            raise Refused(code)

    async def get(self, topic):
        with tempfile.NamedTemporaryFile(dir=self.gateway.scratch) as file:
            code, options = await self.request("get", topic, "-o", file.name)
            data = file.read()
        if code == "4.04":
            return None
        if not code.startswith("2."):
            raise Refused(code)
        kind = re.search(r"Content-Format:([^, ]+)", options)
        return Received(data, self._type(kind.group(1)) if kind else None, topic)

    @staticmethod
    def _type(shown):
        if shown.isdigit():
            return TYPES.get(int(shown), shown)
        return {"text/plain": "text/plain;charset=utf-8"}.get(shown, shown)
