// The dashboard of a gateway that nobody administers without a login: the form at /login, by the keyboard.
//
//   node dashboard_login.mjs BASE USER PASSWORD
//
// Prints an array of the commands of the page to run, reads an array of their faults, and prints that of all faults.
import { createInterface } from 'node:readline';
import { typed } from './dashboard_commands.mjs';
import { focused, press, stepTo, type } from './dashboard_keys.mjs';
import { at, complaints, judged, open } from './dashboard_page.mjs';

const [base, user, password] = process.argv.slice(2);
const PATIENCE_MS = 15_000;
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const ask = async (what, detail) => {
  console.log(JSON.stringify([what, detail]));
  return JSON.parse((await lines.next()).value);
};

// Asks again until an expression holds, also of the page that takes the place of another one meanwhile.
async function reached(page, expression) {
  for (const end = performance.now() + PATIENCE_MS; performance.now() < end;) {
    const found = await page.run(expression).catch(() => undefined);
    if (found) return found;
    await new Promise(done => setTimeout(done, 20));
  }
  throw new Error(`not within ${PATIENCE_MS} ms: ${expression}; ${await page.run('document.body.innerText')}`);
}

async function filled(page, secret) {
  await reached(page, `document.querySelector('form #user') && document.activeElement.id === 'user'`);
  await type(page, user);
  await press(page, 'Tab');
  await type(page, secret);
  await press(page, 'Enter');
}

// Cancels the window in which the browser itself asks for user and password, as Escape does.
async function cancelling({ browser, call, sessionId }) {
  await call('Fetch.enable', { handleAuthRequests: true, patterns: [{ urlPattern: '*/api/v1/status' }] });
  const answers = {
    'Fetch.requestPaused': requestId => call('Fetch.continueRequest', { requestId }),
    'Fetch.authRequired': requestId => call('Fetch.continueWithAuth',
      { requestId, authChallengeResponse: { response: 'CancelAuth' } }),
  };
  let next = browser.events.length;
  const look = () => {
    for (; next < browser.events.length; next += 1) {
      const { method, params, sessionId: of } = browser.events[next];
      if (of === sessionId) answers[method]?.(params.requestId).catch(() => {});
    }
  };
  const timer = setInterval(look, 20).unref();
  return () => clearInterval(timer);
}

await judged(async (browser, faults) => {
  const page = await open(browser, `${base}/login`);
  const end = await cancelling(page);
  await page.call('Page.navigate', { url: `${base}/#users` });
  await reached(page, `document.querySelector('#main .problem')`);
  await stepTo(page, 'Log in');
  await press(page, 'Enter');
  await filled(page, 'guess');
  const said = await reached(page, `document.querySelector('[role=alert]')?.textContent`);
  if (!said.includes('password is wrong')) faults.push(`a wrong password is answered: ${said}`);
  await filled(page, password);
  await reached(page, at('users'));
  end();
  await page.call('Fetch.disable');
  const place = await page.run('location.href');
  if (place !== `${base}/#users`) faults.push(`the login leads to ${place}`);
  const first = await focused(page);
  if (first !== '') faults.push(`the page begins at ${first}`);
  const changeable = await page.run(`!document.querySelector('#user button').disabled`);
  if (!changeable) faults.push('who has logged in may change nothing');
  faults.push(...await typed(page, ask, ['mqtts', 'https', 'xmpps']));
  // The browser notes the refused requests, which are meant.
  const isMeant = url => url.startsWith(`${base}/login`) || url.startsWith(`${base}/api/v1/status`);
  faults.push(...complaints(browser, page, base, isMeant));
});
