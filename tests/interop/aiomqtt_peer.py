"""aiomqtt behind the line protocol of `mqtt_programs.py`."""

import asyncio
import contextlib
import ssl

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import mqtt_peer


class Connection:
    def __init__(self, request, arrived):
        self.arrived, self.returns, self.session, self.reader = arrived, request["returns"], None, None
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = request["expiry"]
        will, transport = request["will"], request["transport"]
        self.client = aiomqtt.Client(
            request["host"], request["port"], identifier=request["client"], protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=not request["expiry"], properties=properties, timeout=60,
            will=aiomqtt.Will(will["topic"], will["data"], qos=1, retain=True) if will else None,
            transport="websockets" if transport == "ws" else "tcp",
            websocket_path="/mqtt" if transport == "ws" else None,
            tls_context=ssl.create_default_context(cafile=request["ca"]) if transport == "tls" else None)
        # It tells nobody whether there was a session; the client of paho inside does.
        inner, connected = self.client._client, self.client._client.on_connect

        def note(client, data, flags, *rest):
            self.session = flags.session_present
            connected(client, data, flags, *rest)
        inner.on_connect = note

    async def open(self):
        await self.client.__aenter__()
        self.reader = asyncio.create_task(self._read())
        return self.session

    async def _read(self):
        while True:
            try:
                async for message in self.client.messages:
                    self.arrived(message.payload, message.qos)
            except aiomqtt.MqttError:
                if not self.returns:
                    raise
                await self._return()

    async def _return(self):
        """The client can be entered again, which is all that it does for a connection that was lost."""
        while True:
            await self.client.__aexit__(None, None, None)
            # It waits for CONNACK again only after a connection that it has ended itself.
            self.client._connected = asyncio.get_running_loop().create_future()
            await asyncio.sleep(mqtt_peer.PAUSE_SECONDS)
            with contextlib.suppress(aiomqtt.MqttError):
                return await self.client.__aenter__()

    async def subscribe(self, topic_filter, qos):
        for code in await self.client.subscribe(topic_filter, qos):
            if code.is_failure:
                raise aiomqtt.MqttError(str(code))

    async def publish(self, topic, payloads, qos):
        await asyncio.gather(*(self.client.publish(topic, payload, qos) for payload in payloads))

    async def close(self):
        self.reader.cancel()
        await self.client.__aexit__(None, None, None)


if __name__ == "__main__":
    mqtt_peer.run("aiomqtt", Connection)
