// Opens the dashboard of a gateway in Chromium and goes through its views; stays at the overview until the input ends.
//
//   node dashboard_open.mjs BASE TIMES
//
// Prints `open` when the overview has asked for the state of the gateway TIMES times.
import { Browser } from '../bench/chromium.mjs';

const VIEWS = ['topics', 'clients', 'sessions', 'listeners', 'users', 'rules', 'bench', 'try', 'overview'];
const PATIENCE_MS = 120_000;

const [base, times] = process.argv.slice(2);
const browser = new Browser();
try {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  for (const domain of ['Page', 'Runtime', 'Network']) await browser.call(`${domain}.enable`, {}, sessionId);
  const run = expression =>
    browser.call('Runtime.evaluate', { expression, awaitPromise: true }, sessionId, PATIENCE_MS);
  await browser.call('Page.navigate', { url: `${base}/` }, sessionId);
  await browser.event(sessionId, 'Page.loadEventFired');
  const shown = `new Promise(done => {
    const look = () => (document.querySelector('#main h1') ? done() : setTimeout(look, 20));
    look();
  })`;
  await run(shown);
  for (const view of VIEWS) {
    await run(`location.hash = '#${view}'`);
    await run(`${shown}.then(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))))`);
  }
  const asked = () => browser.events.filter(({ method, params }) =>
    method === 'Network.requestWillBeSent' && params.request.url === `${base}/api/v1/status`).length;
  const before = asked();
  while (asked() < before + Number(times)) await new Promise(done => { browser.wake = done; });
  console.log('open');
  for await (const _ of process.stdin) { /* Until it ends. */ }
} finally {
  await browser.close();
}
