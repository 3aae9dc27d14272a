// Measurements from the page: an experiment twice, a table of a document, and the report as a file. Each check returns
// the faults that it found.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { go, until } from './dashboard_page.mjs';

const JOB_MS = 120_000;
// Bytes of messages, which are the same on every machine; it takes a second.
const DOCUMENT = { name: 'seoane2021', table: '5', row: 'CON (request)', cell: '9 | 9 bytes' };

const BOX = `document.querySelector('#job')`;
const ended = job => `${BOX}?.textContent.includes('Job ${job}') && ${BOX}.querySelector('#compare, .problem') ||
  ${BOX}?.textContent.includes('Job ${job}') && ${BOX}.textContent.includes('There is no other job')`;

// Fills in the form of one kind of measurement, and waits for the end of the job.
async function submitted(page, kind, given) {
  const last = await page.run(`(async () => (await (await fetch('/api/v1/bench')).json()).jobs[0]?.id ?? 0)()`);
  await page.run(`(() => {
    const { elements } = document.querySelector('#bench');
    const set = (name, value) => {
      elements[name].value = value;
      elements[name].dispatchEvent(new Event('change', { bubbles: true }));
    };
    set('kind', ${JSON.stringify(kind)});
    for (const [name, value] of Object.entries(${JSON.stringify(given)})) set(name, value);
    elements.anyway.checked = true;
    document.querySelector('#bench').requestSubmit();
  })()`);
  await page.run(until(ended(last + 1), JOB_MS));
  return last + 1;
}

// Measures twice, by the form, and compares the results.
export async function measured(page) {
  await go(page, 'bench');
  for (let time = 0; time < 2; time += 1) {
    await submitted(page, 'run', { to: 'coap', rate: '500', seconds: '2', repeat: '1' });
  }
  const rate = await page.run(`document.querySelector('#job [aria-label="Figures"] td:nth-child(2)')?.textContent`);
  const plots = await page.run(`document.querySelectorAll('#job svg.plot').length`);
  await page.run(`document.querySelector('#compare').requestSubmit()`);
  await page.run(until(`document.querySelector('#compared tbody tr')`));
  const verdict = await page.run(`document.querySelector('#compared tbody tr').cells[4].textContent`);
  return [!/^[0-9.,]+\/s$/.test(rate ?? '') && `the figures say ${rate}`, plots < 2 && `${plots} plots`,
    verdict !== 'too few' && `the comparison says ${verdict}`];
}

// Measures a table of a document, which is shown beside its own numbers.
export async function published(page) {
  await go(page, 'bench');
  const { name, table, row, cell } = DOCUMENT;
  await submitted(page, 'paper', { name, table, link: 'loopback' });
  const rows = await page.run(`[...document.querySelectorAll('#job [aria-label="Table ${table}"] tbody tr')]
    .map(row => [...row.cells].map(cell => cell.textContent))`);
  const found = rows.find(([label]) => label === row)?.[1];
  return [found !== cell && `the table of ${name} says ${found} of ${row}: ${JSON.stringify(rows)}`];
}

// Clicks the link to the report; the file that the browser saves is what the gateway has of the job.
export async function downloaded(page) {
  const link = `[...document.querySelectorAll('#job a[download]')].find(link => link.textContent === 'as JSON')`;
  const address = await page.run(`${link}.href`);
  const job = address.split('/').at(-2);
  const { name, text } = await saved(page, () => page.run(`${link}.click()`));
  const served = await page.run(`(async () => (await fetch(${JSON.stringify(address)})).text())()`);
  const { command } = await page.run(`(async () => (await fetch('/api/v1/bench/${job}')).json())()`);
  const { paper } = JSON.parse(text);
  return [!name.endsWith(`bench-${job}-report.json`) && `the file is called ${name}`,
    text !== served && 'the file is not what the gateway has',
    !command.includes(` ${paper?.name} `) && `the report of "${command}" is of ${paper?.name}`];
}

// The file that a click downloads.
async function saved({ browser }, click) {
  const place = mkdtempSync(join(tmpdir(), 'fogmux-download-'));
  try {
    await browser.call('Browser.setDownloadBehavior', { behavior: 'allow', downloadPath: place, eventsEnabled: true });
    const find = (method, holds) => browser.events.find(event => event.method === method && holds(event.params));
    await click();
    const completed = async () => {
      while (!find('Browser.downloadProgress', ({ state }) => state === 'completed')) {
        await new Promise(done => { browser.wake = done; });
      }
    };
    await browser.within(completed(), 'download');
    const name = find('Browser.downloadWillBegin', () => true).params.suggestedFilename;
    return { name, text: readFileSync(join(place, name), 'utf8') };
  } finally {
    rmSync(place, { recursive: true });
  }
}

// Shows the results of the job before the last.
export async function resulted(page) {
  const button = `[...document.querySelectorAll('#main [aria-label^="Show job"]')].at(-1)`;
  await page.run(until(button));
  await page.run(`${button}.click()`);
  await page.run(until(`document.querySelector('#job #compare')`));
}
