"""paho-mqtt behind the line protocol of `mqtt_programs.py`."""

import asyncio
from types import SimpleNamespace

import paho.mqtt.client as paho

import clients_mqtt
import mqtt_peer


class Connection:
    def __init__(self, request, arrived):
        gateway = SimpleNamespace(
            ca=request["ca"], mqtt_address=lambda transport: (request["host"], request["port"]))
        will = request["will"] and {
            "topic": request["will"]["topic"], "payload": request["will"]["data"], "qos": 1, "retain": True}
        self.client = clients_mqtt.Connection(
            gateway, paho.MQTTv5, request["transport"], client_id=request["client"], clean=not request["expiry"],
            expiry=request["expiry"], will=will, returns=request["returns"])
        self.client.client.reconnect_delay_set(mqtt_peer.PAUSE_SECONDS, mqtt_peer.PAUSE_SECONDS)
        self.client.on_message = lambda message: arrived(message.payload, message.qos)

    async def open(self):
        flags, _ = await self.client.open()
        return flags.session_present

    async def subscribe(self, topic_filter, qos):
        await self.client.subscribe(topic_filter, qos)

    async def publish(self, topic, payloads, qos):
        await asyncio.gather(*(self.client.publish(topic, payload, qos) for payload in payloads))

    async def close(self):
        await self.client.close()


if __name__ == "__main__":
    mqtt_peer.run("paho-mqtt", Connection)
