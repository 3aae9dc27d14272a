// The npm clients behind a line protocol: one JSON object a line in, one a line out. `node bridge.mjs mqtt|xmpp URL`.
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";

const [, , kind, url] = process.argv;
const load = (path) => import(pathToFileURL(`${process.env.FOGMUX_CLIENTS}/npm/node_modules/${path}`));
const say = (object) => process.stdout.write(JSON.stringify(object) + "\n");
const arrived = (topic, data, rest) => say({ topic, data: Buffer.from(data).toString("base64"), ...rest });

async function mqttClient() {
  const { default: mqtt } = await load("mqtt/build/index.js");
  const client = await mqtt.connectAsync(url, { protocolVersion: 5, reconnectPeriod: 0, clean: true });
  client.on("message", (topic, payload, packet) =>
    arrived(topic, payload, { content_type: packet.properties?.contentType ?? null, retain: packet.retain }));
  return {
    publish: ({ topic, data, content_type, retain }) => client.publishAsync(topic, data, {
      qos: 2, retain, properties: content_type === null ? {} : { contentType: content_type } }),
    clear: ({ topic }) => client.publishAsync(topic, "", { qos: 1, retain: true }),
    follow: ({ topic }) => client.subscribeAsync(topic, { qos: 1 }),
    close: () => client.endAsync(),
  };
}

const JSON_NS = "urn:xmpp:json:0";
const DATA_NS = "urn:fogmux:0";
const PUBSUB = "http://jabber.org/protocol/pubsub";
const SERVICE = "pubsub.localhost";

async function xmppClient() {
  const { client: connect, xml } = await load("@xmpp/client/index.js");
  const { default: parse } = await load("@xmpp/xml/lib/parse.js");
  const client = connect({ service: url, domain: "localhost" });
  client.on("error", (error) => say({ fatal: String(error) }));
  client.on("stanza", (stanza) => {
    const items = stanza.is("message") && stanza.getChild("event", `${PUBSUB}#event`)?.getChild("items");
    for (const item of items ? items.getChildren("item") : []) {
      if (item.children.length) arrived(items.attrs.node, ...unwrap(item.children[0]));
    }
  });
  await client.start();
  await client.send(xml("presence"));
  const ask = (child) => client.iqCaller.request(
    xml("iq", { type: "set", to: SERVICE }, xml("pubsub", { xmlns: PUBSUB }, ...child)), 20_000);
  const wrap = (data, type) => {
    const text = data.toString("utf8");
    // eslint-disable-next-line no-control-regex
    const clean = Buffer.from(text).equals(data) && !/[\x00-\x08\x0b-\x1f]/.test(text);
    if (clean && type === "application/json") return xml("json", { xmlns: JSON_NS }, text);
    if (clean && type === "application/xml" && !text.startsWith("<?")) return parse(text);
    const attributes = { xmlns: DATA_NS, encoding: clean ? "utf8" : "base64" };
    if (type !== null) attributes["content-type"] = type;
    return xml("data", attributes, clean ? text : data.toString("base64"));
  };
  const unwrap = (element) => {
    if (element.is("json", JSON_NS)) return [element.text(), { content_type: "application/json" }];
    if (element.is("data", DATA_NS)) {
      const data = element.attrs.encoding === "base64" ? Buffer.from(element.text(), "base64") : element.text();
      return [data, { content_type: element.attrs["content-type"] ?? null }];
    }
    return [element.toString(), { content_type: "application/xml", as_xml: true }];
  };
  return {
    publish: ({ topic, data, content_type }) =>
      ask([xml("publish", { node: topic }, xml("item", {}, wrap(data, content_type)))]),
    clear: ({ topic }) => client.iqCaller.request(xml("iq", { type: "set", to: SERVICE },
      xml("pubsub", { xmlns: `${PUBSUB}#owner` }, xml("purge", { node: topic })))),
    follow: ({ topic }) => ask([xml("subscribe", { node: topic, jid: client.jid.toString() })]),
    close: () => client.stop(),
  };
}

try {
  const client = await (kind === "mqtt" ? mqttClient() : xmppClient());
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const request = JSON.parse(line);
    if (request.data !== undefined) request.data = Buffer.from(request.data, "base64");
    client[request.do](request).then(
      () => say({ done: request.id }),
      (error) => say({ done: request.id, error: String(error.condition ?? error.code ?? error.message) }));
  }
  process.exit(0);
} catch (error) {
  say({ fatal: String(error.stack ?? error) });
  process.exit(1);
}
