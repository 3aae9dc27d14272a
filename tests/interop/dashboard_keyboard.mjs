// The dashboard without a pointer (WCAG 2.2, 2.1.1, 2.1.2, 2.4.3 and 2.4.7). Each check returns the faults that it
// found.
import { focused, press, stepTo, walked } from './dashboard_keys.mjs';
import { at, leafOf, until, VIEWS } from './dashboard_page.mjs';

const NAMES = ['Overview', 'Topics', 'Clients', 'Sessions', 'Listeners', 'Users', 'Rules', 'Bench', 'Try it'];

// Goes through all views, chooses a topic and disconnects the client of this name.
export async function keyed(page, victim, faults) {
  for (const check of [visited, kept, skipped, chosen, disconnected]) faults.push(...await check(page, victim));
}

async function visit(page, view) {
  // From wherever the focus is: back to the end of the navigation and on to the link.
  await stepTo(page, NAMES[VIEWS.indexOf(view)], { shift: true });
  await press(page, 'Enter');
  await page.run(until(at(view)));
}

// Comes to each view by its link, and through all that it has.
async function visited(page) {
  const faults = [];
  for (const view of VIEWS) {
    await visit(page, view);
    const place = await page.run(`location.hash + ' ' + document.activeElement.id`);
    if (place !== `#${view} main`) faults.push(`Enter at the link of ${view} leads to ${place}`);
    faults.push(...await walked(page, view));
    await page.run(`document.querySelector('#main').focus()`);
  }
  return faults;
}

// A table that is drawn anew, as every three seconds, takes the focus away from nobody.
async function kept(page) {
  await visit(page, 'overview');
  await stepTo(page, 'Doors');
  await page.run(`document.activeElement.dataset.old = 'yes'`);
  await page.run(until(`document.querySelector('[aria-label="Doors"]').dataset.old !== 'yes'`));
  const last = await focused(page);
  return [last !== 'Doors' && `after a new table the focus is at "${last}"`];
}

// The first step of a page skips the navigation and stays in the view.
async function skipped(page) {
  await visit(page, 'topics');
  await stepTo(page, 'Skip to content', { shift: true });
  await press(page, 'Enter');
  const place = await page.run(`[location.hash, document.querySelector('h1').textContent, document.activeElement.id]`);
  await press(page, 'Tab');
  const next = await focused(page);
  return [place.join() !== '#topics,Topics,main' && `the skip link leads to ${place}`,
    next !== 'filter' && `after the skip link Tab leads to ${next}`];
}

// Closes and opens a branch of the tree, chooses a topic in it and another form of its value.
async function chosen(page) {
  const branch = `[...document.querySelectorAll('summary')].find(one => one.textContent === 'room/')`;
  const isOpen = `${branch}.parentElement.open`;
  await stepTo(page, 'room/');
  const before = await page.run(isOpen);
  await press(page, before ? 'Enter' : ' ');
  await page.run(until(`${isOpen} === ${!before}`));
  if (before) {
    await press(page, ' ');
    await page.run(until(isOpen));
  }
  await stepTo(page, 'room/temperature');
  await press(page, ' ');
  const payload = `document.querySelector('#main pre')?.textContent`;
  await page.run(until(`${payload} === '21.5'`));
  const isPressed = await page.run(`${leafOf('room/temperature')}.getAttribute('aria-pressed')`);
  // The levels of the tree that follow are passed.
  for (let step = 0; await page.run(`document.activeElement.localName`) !== 'select' && step < 60; step += 1) {
    await press(page, 'Tab');
  }
  await press(page, 'ArrowDown');
  await press(page, 'ArrowDown');
  await page.run(until(`${payload} === '32 31 2e 35'`));
  await press(page, 'ArrowUp');
  await press(page, 'ArrowUp');
  await page.run(until(`${payload} === '21.5'`));
  return [isPressed !== 'true' && 'the chosen topic is not marked'];
}

// Is asked first: Escape, and the first button, do nothing and return the focus; the second one disconnects.
async function disconnected(page, victim) {
  const faults = [];
  const button = `Disconnect ${victim}`;
  await visit(page, 'clients');
  await stepTo(page, button);
  for (const key of ['Escape', 'Enter']) {
    await press(page, 'Enter');
    await page.run(until(`document.querySelector('dialog[open]')`));
    const first = await focused(page);
    if (first !== 'Do nothing') faults.push(`the question begins at ${first}`);
    await press(page, key);
    await page.run(until(`!document.querySelector('dialog')`));
    const last = await focused(page);
    if (last !== button) faults.push(`after ${key} the focus is at "${last}"`);
  }
  const row = `document.querySelector('[aria-label="${button}"]')`;
  if (!await page.run(`!!${row}`)) faults.push('the client is gone without an answer');
  await press(page, ' ');
  await page.run(until(`document.querySelector('dialog[open]')`));
  await press(page, 'Tab');
  await press(page, 'Enter');
  await page.run(until(`!${row}`));
  const last = await focused(page);
  if (last !== 'Clients') faults.push(`after the end of ${victim} the focus is at "${last}"`);
  return faults;
}
