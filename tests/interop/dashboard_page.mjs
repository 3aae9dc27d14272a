// A page of the dashboard in Chromium: opened, led from view to view, and listened to.
import { Browser } from '../bench/chromium.mjs';

export const VIEWS = ['overview', 'topics', 'clients', 'sessions', 'listeners', 'users', 'rules', 'bench', 'try'];

// Expressions that hold in the page once a view shows its contents.
export const READY = {
  overview: `document.querySelector('#rates tbody') && document.querySelector('#system dd')`,
  topics: `document.querySelector('#tree li')`,
  clients: `document.querySelector('#main table') && document.querySelector('#refusals table')`,
  sessions: `document.querySelector('#main table')`,
  listeners: `document.querySelectorAll('#main tbody tr').length > 3 && document.querySelector('#certificates table')`,
  users: `document.querySelector('#main table')`,
  rules: `document.querySelector('#tester') && document.querySelector('#rules-said').textContent !== 'Loading'`,
  bench: `document.querySelector('#bench')`,
  try: `document.querySelector('#main pre') && document.querySelector('svg.qr')`,
};

// Waits in the page until an expression holds; what it was is returned.
export const until = (expression, patience = 15_000) => `new Promise((done, fail) => {
  const end = performance.now() + ${patience};
  const look = () => {
    const found = ${expression};
    if (found) return done(found);
    if (performance.now() > end) return fail(new Error('it stays at: ' + document.body.innerText.slice(0, 300)));
    setTimeout(look, 20);
  };
  look();
})`;

// The leaf of a topic in the tree.
export const leafOf = topic =>
  `[...document.querySelectorAll('#tree .leaf')].find(leaf => leaf.title === ${JSON.stringify(topic)})`;

export async function open(browser, address) {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  const call = (method, params, patience) => browser.call(method, params, sessionId, patience);
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await call(`${domain}.enable`);
  await call('Security.setIgnoreCertificateErrors', { ignore: true });
  // Without it the focus is where nobody sees it, in a window behind others.
  await call('Emulation.setFocusEmulationEnabled', { enabled: true });
  const run = async expression => {
    const question = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await call('Runtime.evaluate', question, 150_000);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  await call('Page.navigate', { url: address });
  await browser.event(sessionId, 'Page.loadEventFired');
  return { browser, call, run, sessionId };
}

// A view has taken the place of the one before, and shows its contents.
export const at = view => `document.querySelector('#nav a[aria-current]')?.hash === '#${view}' && ${READY[view]}`;

export async function go(page, view) {
  await page.run(`location.hash = '#${view}'`);
  await page.run(until(at(view)));
}

// Chooses a topic that the tree shows, once it does. Its levels are opened.
export async function choose(page, topic) {
  const above = topic.split('/').slice(0, -1);
  for (const [depth, level] of above.entries()) {
    const name = JSON.stringify(`${level}/`);
    const branch = `[...document.querySelectorAll('#tree ${'ul '.repeat(depth + 1)}summary')]
      .find(summary => summary.textContent === ${name})`;
    await page.run(until(branch));
    await page.run(`if (!${branch}.parentElement.open) ${branch}.click()`);
  }
  await page.run(until(leafOf(topic)));
  await page.run(`${leafOf(topic)}.click()`);
}

// Presses a button that asks first, and says yes.
export async function agreed(page, button) {
  await page.run(until(button));
  await page.run(`${button}.click()`);
  await page.run(until(`document.querySelector('dialog[open]')`));
  await page.run(`document.querySelector('dialog .danger').click()`);
}

// Exceptions, lines of the console and requests to others. `isMeant` is told of each request that failed.
export function complaints(browser, page, base, isMeant) {
  const events = browser.events.filter(event => event.sessionId === page.sessionId);
  const said = events.filter(event =>
    ['Runtime.exceptionThrown', 'Runtime.consoleAPICalled', 'Log.entryAdded'].includes(event.method));
  const meant = ({ params: { entry } }) => entry?.source === 'network' && isMeant(entry.url);
  const asked = events.filter(event => event.method === 'Network.requestWillBeSent')
    .map(event => event.params.request.url);
  return [
    ...said.filter(event => !meant(event))
      .map(event => `the console says ${JSON.stringify(event.params).slice(0, 500)}`),
    ...asked.filter(url => !url.startsWith(`${base}/`) && !url.startsWith('data:')).map(url => `it asks ${url}`),
  ];
}

export async function picture(page) {
  const shot = await page.call('Page.captureScreenshot', { format: 'png' });
  return Buffer.from(shot.data, 'base64');
}

// Runs checks in a browser, which are given an array for their faults, and prints it as the last line.
export async function judged(checks) {
  const browser = new Browser();
  const faults = [];
  try {
    await checks(browser, faults);
  } catch (error) {
    faults.push(error.stack ?? String(error));
  } finally {
    await browser.close();
    process.stdin.destroy();
  }
  console.log(JSON.stringify(faults.filter(Boolean)));
}
