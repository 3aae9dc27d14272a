"""The line protocol of `mqtt_programs.py`, as a client in Python speaks it."""

import asyncio
import importlib.metadata
import json
import sys

PAUSE_SECONDS = 0.2
"""Between two attempts of a client that connects again by itself."""


def say(**line):
    print(json.dumps(line), flush=True)


def run(package, connection):
    """Does as the lines say. `connection(request, arrived)` has `open`, `subscribe`, `publish` and `close`; messages
    that come are given to `arrived`, with their QoS."""
    asyncio.run(_serve(importlib.metadata.version(package), connection))


async def _serve(version, connection):
    lines = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say(ready=True, version=version)
    connections, tasks = {}, set()
    while line := await lines.readline():
        request = json.loads(line)
        if request["do"] == "open":
            connections[request["name"]] = connection(request, _arrival(request["name"]))
        task = asyncio.create_task(_carry_out(connections[request["name"]], request))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


def _arrival(name):
    return lambda payload, qos: say(name=name, data=payload.decode(), qos=qos)


async def _carry_out(connection, request):
    error = session = None
    try:
        match request["do"]:
            case "open":
                session = await connection.open()
            case "subscribe":
                await connection.subscribe(request["filter"], request["qos"])
            case "publish":
                await connection.publish(request["topic"], [data.encode() for data in request["data"]], request["qos"])
            case "close":
                await connection.close()
    except Exception as failure:
        error = f"{type(failure).__name__}: {failure}"
    say(done=request["id"], error=error, session=session)
