"""A TCP relay that stays where it is while the gateway behind it comes and goes."""

import asyncio
import contextlib


class Relay:
    """As a context; a connection waits while there is no gateway."""

    def __init__(self, gateway):
        self.ca = gateway.ca
        self.gateway = asyncio.get_running_loop().create_future()
        self.gateway.set_result(gateway)

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_):
        self.server.close()

    def hold(self):
        """The gateway goes."""
        self.gateway = asyncio.get_running_loop().create_future()

    def mqtt_address(self, _transport):
        """In place of the gateway's, for its clients."""
        return self.server.sockets[0].getsockname()

    async def _carry(self, reader, writer):
        with contextlib.closing(writer), contextlib.suppress(OSError):
            gateway = await asyncio.shield(self.gateway)
            inner, outer = await asyncio.open_connection(*gateway.mqtt_address("tcp"))
            with contextlib.closing(outer):
                ways = [asyncio.create_task(_pump(*way)) for way in ((reader, outer), (inner, writer))]
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
                for way in ways:
                    way.cancel()


async def _pump(reader, writer):
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
