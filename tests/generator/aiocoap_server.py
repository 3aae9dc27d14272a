"""A CoAP server by aiocoap, for the generator to drive: one resource that is set, asked for and observed.

usage: aiocoap_server.py PORT
"""

import asyncio
import sys

import aiocoap
from aiocoap import resource


class Value(resource.ObservableResource):
    """Keeps what was put last."""

    def __init__(self):
        super().__init__()
        self.value = b""

    async def render_get(self, request):
        return aiocoap.Message(payload=self.value)

    async def render_put(self, request):
        self.value = request.payload
        self.updated_state()
        return aiocoap.Message(code=aiocoap.CHANGED)


async def main(port):
    site = resource.Site()
    site.add_resource(["value"], Value())
    # Over UDP alone: the same port may be taken for TCP.
    await aiocoap.Context.create_server_context(site, bind=("127.0.0.1", port), transports=["udp6"])
    await asyncio.get_running_loop().create_future()


asyncio.run(main(int(sys.argv[1])))
