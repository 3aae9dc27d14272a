"""The interface of test clients, the same for every door."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field

from credential import NOBODY, Credential
from patience import within

PATIENCE = 60.0
"""Seconds after which an answer that should have come is said to be missing."""


class Refused(Exception):
    """The gateway said no; `code` is the word of the standard: '4.13', '413', '0x97', 'policy-violation' …"""

    def __init__(self, code: str):
        super().__init__(code)
        self.code = code


class Missing(Exception):
    """Nothing came in time."""


@dataclass
class Received:
    """One message as a reader saw it."""

    payload: bytes
    content_type: str | None = None
    topic: str | None = None
    retain: bool | None = None
    as_xml: bool = False
    extra: dict = field(default_factory=dict)


class Client:
    """Both roles share a name, a door and a connection that stays open over all cases."""

    name = "?"
    door = "?"
    content_types = True
    """Whether the protocol has a place for a content type."""

    def __init__(self, gateway, credential: Credential = NOBODY):
        self.gateway, self.credential = gateway, credential

    async def open(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def __aenter__(self):
        await self.open()
        return self

    async def __aexit__(self, *_):
        await self.close()


class Publisher(Client):
    async def publish(self, topic: str, data: bytes, content_type: str | None, retain: bool = True) -> None:
        """Returns once the gateway has acknowledged; raises Refused."""
        raise NotImplementedError

    async def clear(self, topic: str) -> None:
        raise NotImplementedError


class Follower(Client):
    """A reader to which messages come."""

    def __init__(self, gateway, credential: Credential = NOBODY):
        super().__init__(gateway, credential)
        self._inbox: dict[str, asyncio.Queue] = defaultdict(asyncio.Queue)

    async def follow(self, topic: str) -> None:
        """Returns once the gateway has confirmed the subscription."""
        raise NotImplementedError

    def arrived(self, topic: str, received: Received) -> None:
        self._inbox[topic].put_nowait(received)

    def forget(self, topic: str) -> None:
        self._inbox.pop(topic, None)

    async def next(self, topic: str, patience: float = PATIENCE) -> Received:
        try:
            return await within(self._inbox[topic].get(), patience)
        except TimeoutError:
            raise Missing(f"nothing on {topic} in {patience:.0f} s") from None


class Getter(Client):
    """A reader that asks for the latest value."""

    async def get(self, topic: str) -> Received | None:
        """None when the gateway says that there is no value."""
        raise NotImplementedError


async def run(*argv: str, stdin: bytes | None = None, patience: float = 60.0) -> tuple[int, bytes, bytes]:
    """Runs a command-line client to its end."""
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE if stdin is not None else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await within(process.communicate(stdin), patience)
    except TimeoutError:
        process.kill()
        await process.wait()
        raise Missing(f"{argv[0]} did not end in {patience:.0f} s") from None
    return process.returncode, out, err
