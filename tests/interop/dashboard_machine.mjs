// The dashboard of a machine that becomes hot, short of power and worn.
//
//   node dashboard_machine.mjs BASE
//
// Reads what the page should say of the machine, as JSON: text and class of each fact. Prints `["on"]` when it says so,
// to be told what is next, until that is null; then a JSON array of faults.
import { createInterface } from 'node:readline';
import { complaints, judged, open, READY, until } from './dashboard_page.mjs';

const [base] = process.argv.slice(2);
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const told = async () => JSON.parse((await lines.next()).value);

const SHOWN = `Object.fromEntries([...document.querySelectorAll('#system dt')]
  .map(name => [name.textContent, [name.nextElementSibling.textContent, name.nextElementSibling.className]]))`;

await judged(async (browser, faults) => {
  const page = await open(browser, `${base}/`);
  await page.run(until(READY.overview));
  for (let facts = await told(); facts; facts = await told()) {
    for (const [name, wanted] of Object.entries(facts)) {
      const shown = `JSON.stringify(${SHOWN}[${JSON.stringify(name)}])`;
      await page.run(until(`${shown} === ${JSON.stringify(JSON.stringify(wanted))}`));
    }
    console.log(JSON.stringify(['on']));
  }
  faults.push(...complaints(browser, page, base, () => false));
});
