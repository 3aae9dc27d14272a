"""gmqtt behind the line protocol of `mqtt_programs.py`."""

import asyncio
import ssl

import gmqtt
from gmqtt.mqtt.constants import UNLIMITED_RECONNECTS
from gmqtt.storage import PersistentStorage

import mqtt_peer


class Connection:
    def __init__(self, request, arrived):
        self.request, self.session, self.subscribed = request, None, {}
        # Its messages that wait for an acknowledgement; nothing else tells when they have it.
        self.unacknowledged = PersistentStorage()
        will = request["will"]
        self.client = gmqtt.Client(
            request["client"], clean_session=not request["expiry"], persistent_storage=self.unacknowledged,
            will_message=gmqtt.Message(will["topic"], will["data"], qos=1, retain=True) if will else None,
            session_expiry_interval=request["expiry"])
        retries = UNLIMITED_RECONNECTS if request["returns"] else 0
        self.client.set_config({"reconnect_retries": retries, "reconnect_delay": mqtt_peer.PAUSE_SECONDS})
        self.client.on_connect = self._connected
        self.client.on_subscribe = self._granted

        def came(client, topic, payload, qos, properties):
            arrived(payload, qos)
            return 0
        self.client.on_message = came

    def _connected(self, client, flags, code, properties):
        self.session = bool(flags & 1)

    def _granted(self, client, mid, qos, properties):
        self.subscribed.setdefault(mid, asyncio.get_running_loop().create_future()).set_result(qos)

    async def open(self):
        context = ssl.create_default_context(cafile=self.request["ca"]) if self.request["transport"] == "tls" else False
        await self.client.connect(self.request["host"], self.request["port"], ssl=context)
        return self.session

    async def subscribe(self, topic_filter, qos):
        mid = self.client.subscribe(topic_filter, qos=qos)
        codes = await self.subscribed.setdefault(mid, asyncio.get_running_loop().create_future())
        if max(codes) >= 0x80:
            raise ConnectionError(f"granted {codes}")

    async def publish(self, topic, payloads, qos):
        for payload in payloads:
            self.client.publish(topic, payload, qos=qos)
        await self.unacknowledged.wait_empty()

    async def close(self):
        await self.client.disconnect()


if __name__ == "__main__":
    mqtt_peer.run("gmqtt", Connection)
