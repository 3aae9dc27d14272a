// A page of one origin that uses a gateway of another: fetch, EventSource and WebSocket in Chromium.
//
// Prints the page's origin, reads the bases of gateways as a JSON array, prints what the page could do with each.
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';
import { Browser } from '../bench/chromium.mjs';

// Run in the page. Anything that the browser or the gateway keeps from it is `refused`.
async function used(base) {
  const outcome = {};
  const note = async (name, act) => {
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error('late')), 10_000));
    outcome[name] = await Promise.race([act(), late]).catch(() => 'refused');
  };
  const topic = `${base}/topics/from/page`;
  const live = (open, heard) => new Promise((done, fail) => {
    open.onerror = () => fail(new Error('error'));
    open.onopen = () => fetch(`${base}/topics/from/live`, { method: 'POST', body: 'live' }).catch(fail);
    open.onmessage = event => { open.close(); done(heard(event)); };
  });
  await note('put', async () => (await fetch(topic, {
    method: 'PUT', body: 'value', headers: { 'content-type': 'text/x', 'if-none-match': '*' } })).status);
  await note('get', async () => (await fetch(topic)).text());
  await note('etag', async () => /^"[0-9a-f]{16}"$/.test((await fetch(topic)).headers.get('etag') ?? ''));
  await note('delete', async () => (await fetch(topic, { method: 'DELETE' })).status);
  await note('post', async () => (await fetch(topic, { method: 'POST', body: 'x', headers: { 'idempotency-key': 'k' } })).status);
  await note('missing', async () => (await fetch(topic)).status);
  await note('credentials', async () => (await fetch(topic, { credentials: 'include' })).status);
  const payload = event => JSON.parse(event.data).payload;
  await note('events', () => live(new EventSource(`${base}/subscribe?filter=from/live`, { withCredentials: true }), payload));
  await note('socket', () => live(new WebSocket(`${base.replace(/^http/, 'ws')}/subscribe?filter=from/live`), payload));
  return outcome;
}

const server = createServer((_, response) => response.setHeader('content-type', 'text/html').end('<!doctype html><title>page</title>'));
await new Promise(done => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;
console.log(origin);
const line = await new Promise(done => createInterface({ input: process.stdin }).once('line', done));
const browser = new Browser();
try {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  for (const domain of ['Page', 'Runtime']) await browser.call(`${domain}.enable`, {}, sessionId);
  await browser.call('Page.navigate', { url: `${origin}/` }, sessionId);
  await browser.event(sessionId, 'Page.loadEventFired');
  const outcomes = [];
  for (const base of JSON.parse(line)) {
    const expression = `(${used})(${JSON.stringify(base)})`;
    const { result } = await browser.call('Runtime.evaluate',
      { expression, awaitPromise: true, returnByValue: true }, sessionId, 100_000);
    outcomes.push(result.value);
  }
  console.log(JSON.stringify(outcomes));
} finally {
  await browser.close();
  server.close();
  process.stdin.destroy();
}
