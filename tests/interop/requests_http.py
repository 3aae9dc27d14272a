"""Requests over HTTP and the envelope of streams, whichever client carries them."""

import base64
import json
from urllib.parse import quote

from client import Getter, Publisher, Received, Refused

H1, H1S, H2, H2C, H3 = "h1", "h1s", "h2", "h2c", "h3"
HANDSHAKE_FAILED = (35, 52, 55, 56)
"""curl's exit codes when TLS was refused, which TLS 1.3 may tell it only after the request is on its way."""


def topic_path(topic):
    return "/topics/" + "/".join(quote(level, safe="") for level in topic.split("/"))


def base_url(gateway, version):
    return gateway.http_base(secure=version not in (H1, H2C))


def from_envelope(line: str) -> Received:
    """The JSON object that streams carry for a message (design: id, topic, payload, encoding, …)."""
    item = json.loads(line)
    data = base64.b64decode(item["payload"]) if item["encoding"] == "base64" else item["payload"].encode()
    return Received(data, item.get("content_type"), item["topic"], item.get("retain"), extra=item)


class Requests(Publisher, Getter):
    """PUT, POST, DELETE and GET by whatever `request` is."""

    door = "http"
    version = H1

    def authorization(self):
        """The header, for clients that have no other way to be given a password or a token."""
        keys = self.credential
        if keys.token is not None:
            return [("authorization", f"Bearer {keys.token}")]
        if keys.password is not None:
            return [("authorization", "Basic " + base64.b64encode(f"{keys.user}:{keys.password}".encode()).decode())]
        return []

    async def request(self, method, path, headers=(), body=None):
        """(status, headers as a dict of lower-case names, body)"""
        raise NotImplementedError

    async def publish(self, topic, data, content_type, retain=True):
        headers = [] if content_type is None else [("content-type", content_type)]
        status, _, body = await self.request("PUT" if retain else "POST", topic_path(topic), headers, data)
        if status not in ((201, 204) if retain else (202,)):
            raise Refused(str(status))

    async def clear(self, topic):
        status, _, _ = await self.request("DELETE", topic_path(topic))
        if status != 204:
            raise Refused(str(status))

    async def get(self, topic):
        status, headers, body = await self.request("GET", topic_path(topic))
        if status == 404:
            return None
        if status != 200:
            raise Refused(str(status))
        kind = headers.get("content-type")
        return Received(body, kind, topic, extra=headers)
