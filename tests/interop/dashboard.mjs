// The dashboard in Chromium, over HTTP and HTTPS: each view, on a phone and a desktop, in light and dark mode.
//
//   node dashboard.mjs OUTPUT MODULES PASSWORD
//
// Reads the bases of a gateway as a JSON array. Prints `open` when the topics of a page are followed, so that the
// other side publishes to `from/device`, `ruled` when rules were saved that let anonymous clients read `open/#` only,
// and at the end a JSON array of faults. MODULES is the directory of axe-core and of jsqr, a foreign reader of QR codes. Measures twice and compares. Disconnects the MQTT client `victim` and ends the session of `meter-3`.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { Browser } from '../bench/chromium.mjs';
import { explored, traced } from './dashboard_views.mjs';

const VIEWS = ['overview', 'topics', 'clients', 'sessions', 'listeners', 'users', 'rules', 'bench', 'try'];
const SCREENS = [
  { name: 'desk', width: 1280, height: 900, scale: 1, mobile: false },
  { name: 'phone', width: 360, height: 780, scale: 2, mobile: true },
];

// Waits in the page until an expression holds; what it was is returned.
const until = (expression, patience = 15_000) => `new Promise((done, fail) => {
  const end = performance.now() + ${patience};
  const look = () => {
    const found = ${expression};
    if (found) return done(found);
    if (performance.now() > end) return fail(new Error('it stays at: ' + document.body.innerText.slice(0, 300)));
    setTimeout(look, 20);
  };
  look();
})`;

async function open(browser, page) {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  const call = (method, params, patience) => browser.call(method, params, sessionId, patience);
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await call(`${domain}.enable`);
  await call('Security.setIgnoreCertificateErrors', { ignore: true });
  const run = async expression => {
    const question = { expression, awaitPromise: true, returnByValue: true };
    const { result, exceptionDetails } = await call('Runtime.evaluate', question, 150_000);
    if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
    return result.value;
  };
  await call('Page.navigate', { url: page });
  await browser.event(sessionId, 'Page.loadEventFired');
  return { call, run, sessionId };
}

const go = async (page, view, ready) => {
  await page.run(`location.hash = '#${view}'`);
  await page.run(until(ready));
};

const READY = {
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

// The name of a topic and of a client that has characters that nobody sees, as it is shown.
const UNSEEN = 'un\\u{200b}seen\\u{ad}\\u{2028}\\u{2069}\\u{feff}\\u{2060}';

// Whether a name is shown, and what nobody sees in it apart from the rest; its accessible name has none of it either.
async function unspelt(page, place, name) {
  const { text, apart, read } = await page.run(`(() => {
    const place = document.querySelector(${JSON.stringify(place)});
    return { text: place.textContent, apart: [...place.querySelectorAll('.unseen')].map(one => one.textContent),
      read: [...place.querySelectorAll('[aria-label], [title]')].map(one => one.ariaLabel ?? one.title).join() };
  })()`);
  const unseen = name.match(/\\u\{[0-9a-f]+\}/g);
  return [!text.includes(name) && `${place} does not show ${name}`,
    !unseen.every(one => apart.includes(one)) && `${place} does not set ${unseen} apart, but ${apart}`,
    /[\u200b\u00ad\u2028\u2069\ufeff\u2060\u202e]/.test(text + read) && `${place} has what nobody sees`];
}

// What is used as a person would.
async function used(page, base, lines) {
  await go(page, 'topics', READY.topics);
  console.log('open');
  await lines.next();
  const leaf = `[...document.querySelectorAll('#tree .leaf')].find(leaf => leaf.title === 'from/device')`;
  const branch = `[...document.querySelectorAll('#tree summary')].find(summary => summary.textContent === 'from/')`;
  await page.run(until(branch));
  await page.run(`if (!${branch}.parentElement.open) ${branch}.click()`);
  await page.run(until(leaf));
  await page.run(`${leaf}.click()`);
  await page.run(until(`document.querySelector('#main pre')?.textContent === '{"celsius":21.5}'`));
  const untraced = await traced(page, until);
  await page.run(`fetch('/topics/from/number', { method: 'PUT', body: '20' }).then(() => true)`);
  const hostile = await page.run(`document.querySelectorAll('#main img').length`);
  const spelt = [...await unspelt(page, '#tree', '\\u{202e}gnp.exe'), ...await unspelt(page, '#tree', UNSEEN)];
  await go(page, 'rules', READY.rules);
  await page.run(`document.querySelector('#tester [name=topic]').value = '$SYS/x';
    document.querySelector('[name=action]').value = 'write';
    document.querySelector('#tester').requestSubmit()`);
  const decision = await page.run(until(`document.querySelector('#decision')?.textContent`));
  const more = await explored(page, { go, until, READY, jsQR });
  await go(page, 'sessions', READY.sessions);
  spelt.push(...await unspelt(page, '#main table', UNSEEN));
  await go(page, 'clients', READY.clients);
  spelt.push(...await unspelt(page, '#main table', UNSEEN));
  const faults = [...untraced, ...more, ...spelt, hostile > 0 && 'a topic became an image',
    !decision.startsWith('refused') && `the rules say ${decision}`];
  if (base.startsWith('http:')) {
    const button = `document.querySelector('[aria-label="Disconnect victim"]')`;
    await page.run(until(button));
    await page.run(`window.confirm = () => true; ${button}.click()`);
    await page.run(until(`!${button}`));
    faults.push(...await ended(page), ...await measured(page));
  } else {
    faults.push(...await changed(page, lines));
  }
  return faults;
}

// Looks at the subscriptions of a session, and ends another one.
async function ended(page) {
  await go(page, 'sessions', READY.sessions);
  await page.run(`document.querySelector('[aria-label="Filters of pump-7"]').click()`);
  const filters = await page.run(until(`document.querySelector('#subscriptions tbody')?.textContent`));
  const button = `document.querySelector('[aria-label="End the session of meter-3"]')`;
  await page.run(`window.confirm = () => true; ${button}.click()`);
  await page.run(until(`!${button}`));
  return [filters !== 'nothing' && `pump-7 is said to have ${filters}`];
}

// Measures twice, by the form, and compares the results.
async function measured(page) {
  await go(page, 'bench', READY.bench);
  const last = await page.run(`(async () => (await (await fetch('/api/v1/bench')).json()).jobs[0]?.id ?? 0)()`);
  for (const job of [last + 1, last + 2]) {
    await page.run(`(() => {
      const { elements } = document.querySelector('#bench');
      Object.assign(elements.to, { value: 'coap' });
      Object.assign(elements.rate, { value: '500' });
      Object.assign(elements.seconds, { value: '2' });
      Object.assign(elements.repeat, { value: '1' });
      elements.anyway.checked = true;
      document.querySelector('#bench').requestSubmit();
    })()`);
    const box = `document.querySelector('#job')`;
    await page.run(until(`${box}?.textContent.includes('Job ${job}') && ${box}.querySelector('#compare, .problem') ||
      ${job} === ${last + 1} && ${box}?.textContent.includes('There is no other job')`, 120_000));
  }
  const rate = await page.run(`document.querySelector('#job [aria-label="Figures"] td:nth-child(2)')?.textContent`);
  const plots = await page.run(`document.querySelectorAll('#job svg.plot').length`);
  await page.run(`document.querySelector('#compare').requestSubmit()`);
  await page.run(until(`document.querySelector('#compared tbody tr')`));
  const verdict = await page.run(`document.querySelector('#compared tbody tr').cells[4].textContent`);
  return [!/^[0-9.,]+\/s$/.test(rate ?? '') && `the figures say ${rate}`, plots < 2 && `${plots} plots`,
    verdict !== 'too few' && `the comparison says ${verdict}`];
}

// Shows the results of a job.
async function resulted(page) {
  const button = `[...document.querySelectorAll('#main [aria-label^="Show job"]')].at(-1)`;
  await page.run(until(button));
  await page.run(`${button}.click()`);
  await page.run(until(`document.querySelector('#job #compare')`));
}

const saveRules = (page, text) => page.run(`document.querySelector('#rules textarea').value = ${JSON.stringify(text)};
  document.querySelector('#rules').requestSubmit()`);
const saidOfRules = (page, word) =>
  page.run(until(`document.querySelector('#rules-said').textContent.includes(${JSON.stringify(word)})`));

// Adds a user and changes the rules, as an administrator who has logged in.
async function changed(page, lines) {
  const faults = [];
  await go(page, 'users', READY.users);
  await page.run(`(() => {
    const { elements } = document.querySelector('#user');
    Object.assign(elements.user, { value: 'carol' });
    Object.assign(elements.password, { value: 'pass phrase' });
    Object.assign(elements.groups, { value: 'night shift, operators' });
    document.querySelector('#user').requestSubmit();
  })()`);
  const carol = `[...document.querySelectorAll('#main tbody tr')].find(row => row.cells[0].textContent === 'carol')`;
  const groups = await page.run(until(`${carol}?.cells[1].textContent`));
  if (groups !== 'night shift, operators') faults.push(`carol is in ${groups}`);
  await page.run(`window.confirm = () => true; document.querySelector('[aria-label="Remove carol"]').click()`);
  await page.run(until(`!${carol}`));
  await go(page, 'rules', READY.rules);
  const admin = '# For us.\n[[allow]]\nuser = "admin"\nboth = ["#", "$fogmux/admin", "$SYS/#"]\n';
  const anonymous = words => `${admin}[[allow]]\nanonymous = true\n${words}\n`;
  await saveRules(page, anonymous('read = "open/#/x"'));
  await saidOfRules(page, 'Line 7');
  // Without a question to the person there is no way to give the own right away.
  await page.run(`window.confirm = () => false`);
  await saveRules(page, '[[deny]]\nuser = "admin"\nboth = "$fogmux/admin"\n');
  await saidOfRules(page, 'take the change back');
  await saveRules(page, anonymous('read = "open/#"'));
  await saidOfRules(page, 'Saved');
  console.log('ruled');
  await lines.next();
  await page.run(`document.querySelector('#tester').elements.topic.value = 'closed/x';
    document.querySelector('#tester').requestSubmit()`);
  const decision = await page.run(until(`document.querySelector('#decision')?.textContent`));
  if (!decision.startsWith('refused')) faults.push(`the rules say ${decision}`);
  await saveRules(page, anonymous('both = ["#", "$fogmux/admin"]'));
  await saidOfRules(page, 'Saved');
  return faults;
}

// Chooses a topic whose values are numbers, so that there is a plot.
async function plotted(page) {
  const leaf = `[...document.querySelectorAll('#tree .leaf')].find(leaf => leaf.title === 'from/number')`;
  await page.run(until(leaf));
  await page.run(`${leaf}.click()`);
  await page.run(`(async () => {
    for (let n = 0; n < 30; n++) {
      const body = (20 + 3 * Math.sin(n / 4)).toFixed(2);
      await fetch('/topics/from/number', { method: 'PUT', body });
    }
  })()`);
  await page.run(until(`document.querySelector('#main svg.plot')`));
  await page.run(until(`document.querySelector('#main pre').textContent === '22.47'`));
}

// What lies beyond the sides of the screen. A table may, in its region, which scrolls and shows that there is more.
const beyond = `(() => {
  const { clientWidth: width, scrollWidth } = document.documentElement;
  const found = scrollWidth > width ? ['the page is ' + scrollWidth + ' px wide'] : [];
  for (const element of document.querySelectorAll('header, header *, main, main *')) {
    const { left, right } = element.getBoundingClientRect();
    if ((left < -0.5 || right > width + 0.5) && !element.closest('.scroll table')) {
      found.push(element.localName + ' "' + element.textContent.slice(0, 20) + '" lies from ' + left + ' to ' + right);
    }
  }
  const links = [...document.querySelectorAll('#nav a')];
  const current = links.filter(link => link.hasAttribute('aria-current'));
  if (current.length !== 1) found.push(current.length + ' views are the current one');
  return found;
})()`;

async function looked(page, base, output, axe) {
  const faults = [];
  for (const screen of SCREENS) {
    await page.call('Emulation.setDeviceMetricsOverride',
      { width: screen.width, height: screen.height, deviceScaleFactor: screen.scale, mobile: screen.mobile });
    for (const scheme of ['light', 'dark']) {
      await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
      for (const view of VIEWS) {
        await go(page, view, READY[view]);
        if (view === 'topics') await plotted(page);
        if (view === 'bench') await resulted(page);
        faults.push(...(await page.run(beyond)).map(what => `${view}, ${screen.name}, ${scheme}: ${what}`));
        await page.run(`if (!window.axe) { ${axe} }`);
        const found = await page.run(`axe.run().then(({ violations }) =>
          violations.map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 120)).join(' | ')))`);
        faults.push(...found.map(fault => `axe on ${view}, ${screen.name}, ${scheme}: ${fault}`));
        const shot = await page.call('Page.captureScreenshot', { format: 'png' });
        writeFileSync(join(output, `dashboard-${screen.name}-${scheme}-${view}.png`), Buffer.from(shot.data, 'base64'));
      }
    }
  }
  return faults;
}

const [output, modules, password] = process.argv.slice(2);
mkdirSync(output, { recursive: true });
const axe = readFileSync(join(modules, 'axe-core/axe.min.js'), 'utf8');
const jsQR = createRequire(import.meta.url)(join(modules, 'jsqr'));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const bases = JSON.parse((await lines.next()).value);
const browser = new Browser();
const faults = [];
try {
  for (const base of bases) {
    const page = await open(browser, `${base}/`);
    await page.run(until(READY.overview));
    if (base.startsWith('https:')) {
      const login = JSON.stringify(JSON.stringify({ user: 'admin', password }));
      const headers = "{ 'content-type': 'application/json' }";
      const status = await page.run(`fetch('/login', { method: 'POST', headers: ${headers}, body: ${login} })
        .then(response => response.status)`);
      if (status !== 204) faults.push(`the login says ${status}`);
    }
    faults.push(...await used(page, base, lines));
    if (base === bases.at(-1)) faults.push(...await looked(page, base, output, axe));
    const events = browser.events.filter(event => event.sessionId === page.sessionId);
    const said = events.filter(event =>
      ['Runtime.exceptionThrown', 'Runtime.consoleAPICalled', 'Log.entryAdded'].includes(event.method));
    // The browser notes refused changes of rules as well, which are meant.
    const meant = ({ params }) => params.entry?.source === 'network' && params.entry.url === `${base}/api/v1/rules`;
    const asked = events.filter(event => event.method === 'Network.requestWillBeSent')
      .map(event => event.params.request.url);
    faults.push(...said.filter(event => !meant(event)).map(event => `the console says ${JSON.stringify(event.params).slice(0, 500)}`),
      ...asked.filter(url => !url.startsWith(`${base}/`) && !url.startsWith('data:')).map(url => `it asks ${url}`));
  }
} catch (error) {
  faults.push(String(error));
} finally {
  await browser.close();
  process.stdin.destroy();
}
console.log(JSON.stringify(faults.filter(Boolean)));
