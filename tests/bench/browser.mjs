// Opens the pages of `fogmux bench` in Chromium: on a phone and a desktop, in light and dark mode, and printed.
//
//   node tests/bench/browser.mjs OUTPUT PAGE…
import { mkdirSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, resolve } from 'node:path';
import { pathToFileURL } from 'node:url';
import { Browser } from './chromium.mjs';

const VIEWS = [
  { name: 'phone', width: 390, height: 844, scale: 2, mobile: true, scheme: 'light' },
  { name: 'desk', width: 1280, height: 900, scale: 1, mobile: false, scheme: 'light' },
  { name: 'dark', width: 1280, height: 900, scale: 1, mobile: false, scheme: 'dark' },
];

// Measures a page; runs inside the page.
function looked() {
  const all = [...document.querySelectorAll('svg.plot')];
  const shown = all.filter(plot => plot.checkVisibility());
  const boxes = shown.map(plot => plot.getBoundingClientRect());
  const overflows = [];
  for (const plot of shown) {
    const outer = plot.getBoundingClientRect();
    for (const text of plot.querySelectorAll('text')) {
      const box = text.getBoundingClientRect();
      if (box.left < outer.left - 1 || box.right > outer.right + 1 || box.bottom > outer.bottom + 1) {
        overflows.push(`${plot.querySelector('title').textContent}: ${text.textContent}`);
      }
    }
  }
  return {
    width: innerWidth,
    scrolls: document.documentElement.scrollWidth,
    plots: all.length,
    empty: boxes.filter(box => box.width < 200 || box.height < 60).length,
    overflows,
    small: shown.filter(plot => plot.getBoundingClientRect().width / plot.viewBox.baseVal.width < 0.85).length,
    unnamed: all.filter(plot => !plot.querySelector('title')?.textContent).length,
    text: document.body.innerText.length,
  };
}

async function open(browser, page, view) {
  const { targetId } = await browser.call('Target.createTarget', { url: 'about:blank' });
  const { sessionId } = await browser.call('Target.attachToTarget', { targetId, flatten: true });
  const call = (method, params) => browser.call(method, params, sessionId);
  for (const domain of ['Page', 'Runtime', 'Log', 'Network']) await call(`${domain}.enable`);
  await call('Emulation.setDeviceMetricsOverride',
    { width: view.width, height: view.height, deviceScaleFactor: view.scale, mobile: view.mobile });
  await call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: view.scheme }] });
  await call('Page.navigate', { url: page });
  await browser.event(sessionId, 'Page.loadEventFired');
  return { call, targetId, sessionId };
}

// Returns the faults of a page in a view. Screenshots, and the print of the desktop view, go to the output directory.
async function faults(browser, path, view, output) {
  const page = pathToFileURL(resolve(path)).href;
  const { call, targetId, sessionId } = await open(browser, page, view);
  const { result } = await call('Runtime.evaluate', { expression: `(${looked})()`, returnByValue: true });
  const found = result.value;
  const name = join(output, `${basename(dirname(resolve(path)))}-${view.name}`);
  const shot = await call('Page.captureScreenshot', { format: 'png', captureBeyondViewport: true });
  writeFileSync(`${name}.png`, Buffer.from(shot.data, 'base64'));
  if (view.name === 'desk') {
    const paper = await call('Page.printToPDF', { preferCSSPageSize: true, printBackground: false });
    writeFileSync(`${name}.pdf`, Buffer.from(paper.data, 'base64'));
  }
  const events = browser.events.filter(event => event.sessionId === sessionId);
  const said = events.filter(event => ['Runtime.exceptionThrown', 'Runtime.consoleAPICalled', 'Log.entryAdded'].includes(event.method));
  const loaded = events.filter(event => event.method === 'Network.requestWillBeSent').map(event => event.params.request.url);
  const others = loaded.filter(url => url !== page && !url.startsWith('data:'));
  await browser.call('Target.closeTarget', { targetId });
  console.log(`${path} as ${view.name}: ${found.plots} plots, ${found.scrolls} of ${found.width} px wide`);
  return [
    ...said.map(event => `the console says ${JSON.stringify(event.params)}`),
    ...others.map(url => `it loads ${url}`),
    ...found.overflows.map(text => `words run out of their plot: ${text}`),
    found.scrolls > found.width && `it is ${found.scrolls} px wide, the screen ${found.width}`,
    found.plots === 0 && 'it has no plot',
    found.empty > 0 && `${found.empty} plots have no size`,
    found.small > 0 && `${found.small} plots are too small to read`,
    found.unnamed > 0 && `${found.unnamed} plots have no title`,
    found.text < 500 && 'it has no text',
  ].filter(Boolean).map(fault => `${path} as ${view.name}: ${fault}`);
}

const [output, ...pages] = process.argv.slice(2);
if (pages.length === 0) throw new Error('node browser.mjs OUTPUT PAGE…');
mkdirSync(output, { recursive: true });
const browser = new Browser();
const wrong = [];
try {
  for (const page of pages) {
    for (const view of VIEWS) wrong.push(...await faults(browser, page, view, output));
  }
} finally {
  await browser.close();
}
wrong.forEach(fault => console.error(`FAULT ${fault}`));
process.exitCode = wrong.length === 0 ? 0 : 1;
