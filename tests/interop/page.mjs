// Opens a page of the working directory in Chromium, from http://127.0.0.1:8000, and prints the text that it shows:
// `publish` and `read` until there is some, `follow` whenever it has changed, without an end.
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { Browser } from '../bench/chromium.mjs';

const [file, role] = process.argv.slice(2);
const WAIT_MS = 60_000;

// Run in the page: its text, once that is another than before.
const changed = before => new Promise(done => {
  const look = () => {
    const text = document.body?.innerText.trim() ?? '';
    if (text !== before) { observer.disconnect(); done(text); }
  };
  const observer = new MutationObserver(look);
  observer.observe(document, { childList: true, subtree: true, characterData: true });
  look();
});

const server = createServer((request, response) => {
  const path = request.url.slice(1);
  const type = path.endsWith('.js') ? 'text/javascript' : 'text/html';
  try { response.setHeader('content-type', type).end(readFileSync(path)); } catch { response.writeHead(404).end(); }
});
await new Promise(done => server.listen(8000, '127.0.0.1', done));
const browser = new Browser();
try {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  for (const domain of ['Page', 'Runtime']) await browser.call(`${domain}.enable`, {}, sessionId);
  await browser.call('Page.navigate', { url: `http://127.0.0.1:8000/${file}` }, sessionId);
  await browser.event(sessionId, 'Page.loadEventFired');
  for (let text = ''; role === 'follow' || text === '';) {
    const expression = `(${changed})(${JSON.stringify(text)})`;
    const { result } = await browser.call('Runtime.evaluate',
      { expression, awaitPromise: true, returnByValue: true }, sessionId, WAIT_MS);
    text = result.value;
    console.log(text);
  }
} finally {
  await browser.close();
  server.close();
}
