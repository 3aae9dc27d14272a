// The dashboard in Chromium, over HTTP and HTTPS: each view, on a phone and a desktop, in light and dark mode, with and
// without a pointer.
//
//   node dashboard.mjs OUTPUT MODULES PASSWORD DOCS
//
// Reads the bases of a gateway as a JSON array, and asks the other side for what the page cannot do by itself, by an
// array of a word and a detail; the answer is an array of faults, or null:
//
//   ["open"]              publish to `from/device`, `from/program` and `from/person` over CoAP, HTTP and XMPP
//   ["run", COMMANDS]     run pairs of commands, of a publisher and of a subscriber, and see `21.5` in the output
//   ["ruled"]             rules were saved that let anonymous clients read `open/#` only
//
// The last line is the array of all faults. MODULES is the directory of axe-core and of jsqr, a foreign reader of QR
// codes; DOCS, if there is one, that of the pictures in the documentation. Disconnects the MQTT clients `victim` and
// `keyed`, and ends the session of `meter-3`.
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { downloaded, measured, published, resulted } from './dashboard_bench.mjs';
import { typed } from './dashboard_commands.mjs';
import { keyed } from './dashboard_keyboard.mjs';
import { agreed, choose, complaints, go, judged, open, picture, READY, until, VIEWS } from './dashboard_page.mjs';
import { drawn, OTHERS, OVERVIEW } from './dashboard_pictures.mjs';
import { explored, traced } from './dashboard_views.mjs';

const SCREENS = [
  { name: 'desk', width: 1280, height: 900, scale: 1, mobile: false },
  { name: 'phone', width: 360, height: 780, scale: 2, mobile: true },
];

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
async function used(page, base, faults) {
  await go(page, 'topics');
  faults.push(...await ask('open'), ...await traced(page));
  await page.run(`fetch('/topics/from/number', { method: 'PUT', body: '20' }).then(() => true)`);
  const hostile = await page.run(`document.querySelectorAll('#main img').length`);
  faults.push(...await unspelt(page, '#tree', '\\u{202e}gnp.exe'), ...await unspelt(page, '#tree', UNSEEN));
  await go(page, 'rules');
  await page.run(`document.querySelector('#tester [name=topic]').value = '$SYS/x';
    document.querySelector('[name=action]').value = 'write';
    document.querySelector('#tester').requestSubmit()`);
  const decision = await page.run(until(`document.querySelector('#decision')?.textContent`));
  faults.push(hostile > 0 && 'a topic became an image', !decision.startsWith('refused') && `the rules say ${decision}`,
    ...await explored(page, jsQR));
  if (docs && base === bases[0]) await drawn(page, docs, OVERVIEW);
  await go(page, 'sessions');
  faults.push(...await unspelt(page, '#main table', UNSEEN));
  await go(page, 'clients');
  faults.push(...await unspelt(page, '#main table', UNSEEN));
  if (base.startsWith('http:')) {
    const button = `document.querySelector('[aria-label="Disconnect victim"]')`;
    await agreed(page, button);
    await page.run(until(`!${button}`));
    faults.push(...await ended(page), ...await typed(page, ask));
    await keyed(page, 'keyed', faults);
    faults.push(...await measured(page), ...await published(page), ...await downloaded(page));
  } else {
    faults.push(...await changed(page));
  }
}

// Looks at the subscriptions of a session, and ends another one.
async function ended(page) {
  await go(page, 'sessions');
  await page.run(`document.querySelector('[aria-label="Filters of pump-7"]').click()`);
  const filters = await page.run(until(`document.querySelector('#subscriptions tbody')?.textContent`));
  const button = `document.querySelector('[aria-label="End the session of meter-3"]')`;
  await agreed(page, button);
  await page.run(until(`!${button}`));
  return [filters !== 'nothing' && `pump-7 is said to have ${filters}`];
}

const saveRules = (page, text) => page.run(`document.querySelector('#rules textarea').value = ${JSON.stringify(text)};
  document.querySelector('#rules').requestSubmit()`);
const saidOfRules = (page, word) =>
  page.run(until(`document.querySelector('#rules-said').textContent.includes(${JSON.stringify(word)})`));

// Adds a user and changes the rules, as an administrator who has logged in.
async function changed(page) {
  const faults = [];
  await go(page, 'users');
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
  await agreed(page, `document.querySelector('[aria-label="Remove carol"]')`);
  await page.run(until(`!${carol}`));
  await go(page, 'rules');
  const admin = '# For us.\n[[allow]]\nuser = "admin"\nboth = ["#", "$fogmux/admin", "$SYS/#"]\n';
  const anonymous = words => `${admin}[[allow]]\nanonymous = true\n${words}\n`;
  await saveRules(page, anonymous('read = "open/#/x"'));
  await saidOfRules(page, 'Line 7');
  // Without a question to the person there is no way to give the own right away.
  await saveRules(page, '[[deny]]\nuser = "admin"\nboth = "$fogmux/admin"\n');
  await page.run(until(`document.querySelector('dialog[open] button')`));
  await page.run(`document.querySelector('dialog button').click()`);
  await saidOfRules(page, 'take the change back');
  await saveRules(page, anonymous('read = "open/#"'));
  await saidOfRules(page, 'Saved');
  faults.push(...await ask('ruled'));
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
  await choose(page, 'from/number');
  await page.run(`(async () => {
    for (let n = 0; n < 30; n++) {
      const body = (20 + 3 * Math.sin(n / 4)).toFixed(2);
      await fetch('/topics/from/number', { method: 'PUT', body });
    }
  })()`);
  await page.run(until(`document.querySelector('#main svg.plot')`));
  await page.run(until(`document.querySelector('#main pre').textContent === '22.47'`));
}

// What lies beyond the sides of the screen. A table may, in its region, which scrolls and shows that there is more, and
// what a name in the tree spells out, whose end is cut off.
const beyond = `(() => {
  const { clientWidth: width, scrollWidth } = document.documentElement;
  const found = scrollWidth > width ? ['the page is ' + scrollWidth + ' px wide'] : [];
  for (const element of document.querySelectorAll('header, header *, main, main *')) {
    const { left, right } = element.getBoundingClientRect();
    if ((left < -0.5 || right > width + 0.5) && !element.closest('.scroll table, .leaf .unseen')) {
      found.push(element.localName + ' "' + element.textContent.slice(0, 20) + '" lies from ' + left + ' to ' + right);
    }
  }
  const links = [...document.querySelectorAll('#nav a')];
  const current = links.filter(link => link.hasAttribute('aria-current'));
  if (current.length !== 1) found.push(current.length + ' views are the current one');
  return found;
})()`;

async function looked(page) {
  const faults = [];
  for (const screen of SCREENS) {
    await page.call('Emulation.setDeviceMetricsOverride',
      { width: screen.width, height: screen.height, deviceScaleFactor: screen.scale, mobile: screen.mobile });
    for (const scheme of ['light', 'dark']) {
      await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
      for (const view of VIEWS) {
        await go(page, view);
        if (view === 'topics') await plotted(page);
        if (view === 'bench') await resulted(page);
        faults.push(...(await page.run(beyond)).map(what => `${view}, ${screen.name}, ${scheme}: ${what}`));
        await page.run(`if (!window.axe) { ${axe} }`);
        const found = await page.run(`axe.run().then(({ violations }) =>
          violations.map(one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 120)).join(' | ')))`);
        faults.push(...found.map(fault => `axe on ${view}, ${screen.name}, ${scheme}: ${fault}`));
        writeFileSync(join(output, `dashboard-${screen.name}-${scheme}-${view}.png`), await picture(page));
      }
    }
  }
  return faults;
}

const [output, modules, password, docs] = process.argv.slice(2);
mkdirSync(output, { recursive: true });
const axe = readFileSync(join(modules, 'axe-core/axe.min.js'), 'utf8');
const jsQR = createRequire(import.meta.url)(join(modules, 'jsqr'));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const bases = JSON.parse((await lines.next()).value);

async function ask(...question) {
  console.log(JSON.stringify(question));
  return JSON.parse((await lines.next()).value) ?? [];
}

await judged(async (browser, faults) => {
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
    await used(page, base, faults);
    if (base === bases.at(-1)) {
      faults.push(...await looked(page));
      if (docs) await drawn(page, docs, OTHERS);
    }
    // The browser notes refused changes of rules as well, which are meant.
    faults.push(...complaints(browser, page, base, url => url === `${base}/api/v1/rules`));
  }
});
