// mqtt.js behind the line protocol of `mqtt_programs.py`.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const place = `${process.env.FOGMUX_CLIENTS}/npm/node_modules/mqtt`;
const { default: mqtt } = await import(pathToFileURL(`${place}/build/index.js`));
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");
const connections = new Map();
const SCHEMES = { tcp: "mqtt", tls: "mqtts", ws: "ws" };

function open({ name, transport, host, port, ca, client, expiry, will, returns }) {
  const connection = mqtt.connect(`${SCHEMES[transport]}://${host}:${port}/mqtt`, {
    clientId: client, protocolVersion: 5, reconnectPeriod: returns ? 200 : 0, clean: expiry === 0,
    properties: { sessionExpiryInterval: expiry }, ca: readFileSync(ca),
    will: will ? { topic: will.topic, payload: Buffer.from(will.data), qos: 1, retain: true } : undefined,
  });
  // Before CONNACK: the messages of a session follow it at once.
  connection.on("message", (_topic, payload, packet) => say({ name, data: payload.toString(), qos: packet.qos }));
  connections.set(name, connection);
  return new Promise((resolve, reject) => {
    connection.on("connect", (connack) => resolve(connack.sessionPresent));
    connection.on("error", reject);
    connection.on("close", () => reject(new Error("the connection was closed")));
  });
}

const does = {
  open,
  subscribe: async ({ name, filter, qos }) => {
    await connections.get(name).subscribeAsync(filter, { qos });
  },
  publish: async ({ name, topic, data, qos }) => {
    await Promise.all(data.map((payload) => connections.get(name).publishAsync(topic, payload, { qos })));
  },
  close: ({ name }) => connections.get(name).endAsync(),
};

say({ ready: true, version: JSON.parse(readFileSync(`${place}/package.json`)).version });
for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line);
  does[request.do](request).then(
    (session) => say({ done: request.id, error: null, session: session ?? null }),
    (error) => say({ done: request.id, error: String(error.message ?? error) }));
}
process.exit(0);
