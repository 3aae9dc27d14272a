"""Payloads that are sent through every door, and when two of them are the same bytes."""

import random
import xml.etree.ElementTree as ET
from dataclasses import dataclass

TEXT = "text/plain;charset=utf-8"
JSON = "application/json"
XML = "application/xml"
BINARY = "application/octet-stream"


@dataclass(frozen=True)
class Payload:
    name: str
    data: bytes
    content_type: str


def _noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


PAYLOADS = [
    Payload("byte", b"\xa7", BINARY),
    Payload("text", "Grüße, 世界 & <b> 🌡".encode(), TEXT),
    # XML may neither carry these nor fold them on the way (XML 1.0 §2.2, §2.11).
    Payload("lines", b"one\r\ntwo\rthree\tfour\x01\n", TEXT),
    Payload("json", b'{ "t": 21.5, "unit": "\\u00b0C", "ok": true,\n  "list": [1, 2, 3] } ', JSON),
    Payload("xml", b'<reading xmlns="urn:example:r"><t unit="C">21.5</t><e>a &amp; b</e></reading>', XML),
    # A declaration cannot stand inside a stanza: the document has to travel another way, whole.
    Payload("xmldecl", b'<?xml version="1.0" encoding="UTF-8"?>\n<!-- kept --><r a="1"/>\n', XML),
    Payload("binary", b"\x00\xff\x00\xfe nul and ff \x00\xff", BINARY),
    Payload("1000", _noise(1000), BINARY),
    Payload("100000", _noise(100_000), BINARY),
    Payload("1MiB", _noise(1 << 20), BINARY),
]


def same_xml(left: bytes, right: bytes) -> bool:
    """Whether two documents are one by canonical XML: a client with an XML tree never shows the bytes themselves."""
    try:
        canonical = [ET.canonicalize(data.decode(), rewrite_prefixes=True) for data in (left, right)]
        return canonical[0] == canonical[1]
    except (ET.ParseError, UnicodeDecodeError):
        return False


def normal_type(content_type: str | None) -> str | None:
    """A media type without the optional blanks around its parameters (RFC 9110 §5.6.6), in lower case."""
    if content_type is None:
        return None
    return ";".join(part.strip() for part in content_type.lower().split(";"))


def brief(data: bytes | None) -> str:
    if data is None:
        return "nothing"
    return repr(data) if len(data) <= 60 else f"{len(data)} bytes {data[:24]!r}…"
