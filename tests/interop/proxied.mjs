// mqtt.js over a WebSocket through a proxy with TLS: node proxied.mjs PACKAGE CA URL USER PASSWORD
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [place, ca, url, username, password] = process.argv.slice(2);
const { default: mqtt } = await import(pathToFileURL(`${place}/build/index.js`));
const local = { address: "127.0.0.1", family: 4 };
// The name of the page is nobody's here.
const lookup = (_name, { all }, done) => (all ? done(null, [local]) : done(null, local.address, local.family));
const options = { protocolVersion: 5, reconnectPeriod: 0, wsOptions: { ca: readFileSync(ca), lookup } };

const open = (credentials) => mqtt.connectAsync(url, { ...options, ...credentials }, false);
const refused = await open({}).then((client) => client.endAsync().then(() => false), () => true);
const client = await open({ username, password });
const message = new Promise((resolve) => client.on("message", (_topic, payload) => resolve(payload.toString())));
await client.subscribeAsync("plant/socket", { qos: 1 });
await client.publishAsync("plant/socket", "21.5", { qos: 1 });
console.log(`${refused ? "refused without a password" : "let in without a password"}, then: ${await message}`);
await client.endAsync();
