// The topics: a tree that a stream of events keeps up to date, and the value of the one that is chosen.

import { get, topicPath } from '/dashboard/api.js';
import { bytes, make, plain, replace, spelt, time } from '/dashboard/elements.js';
import { drawn, noted } from '/dashboard/past.js';
import { called as doorName } from '/dashboard/rates.js';

// Bounds on what the page keeps, whatever the gateway has.
const TOPICS_MAX = 2000;
const PREVIEW_CHARS = 40;
const VALUE_CHARS = 64 * 1024;
const DRAW_MS = 250;

// One level of the tree. Names are keys of a Map, so that no name is special.
const level = () => ({ children: new Map(), entry: undefined, past: undefined });

const octets = entry => (entry.encoding === 'base64' ? Uint8Array.from(atob(entry.payload), char => char.charCodeAt(0))
  : new TextEncoder().encode(entry.payload));

const hex = data => [...data.subarray(0, 4096)].map(byte => byte.toString(16).padStart(2, '0')).join(' ');

function written(entry, form) {
  if (form === 'hex') return hex(octets(entry));
  if (entry.encoding === 'base64') return `${octets(entry).length} bytes that are no text; choose hex`;
  const text = entry.payload.slice(0, VALUE_CHARS);
  if (form !== 'json') return text;
  try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return `This is no JSON:\n${text}`; }
}

const preview = entry => (entry.encoding === 'base64' ? 'binary' : plain(entry.payload.slice(0, PREVIEW_CHARS)));

// Where a message came from: its door and its publisher.
function origin({ origin: from }) {
  if (!from) return 'not said';
  const door = from.door ? doorName(from.door) : 'the gateway';
  const client = from.client && from.client !== from.publisher ? `, client ${from.client.slice(0, 300)}` : '';
  return spelt(`${door}, ${from.publisher.slice(0, 300)}${client}`);
}

const called = name => (name === '' ? '(empty level)' : spelt(name.slice(0, 300)));

export function topics(main) {
  const root = level();
  const open = new Set();
  const leaves = new Map();
  const summaries = new Map();
  let [count, left, chosen, form, source, filter] = [0, false, undefined, 'text', undefined, '#'];

  const tree = make('div', { class: 'tree', id: 'tree', tabindex: '0', role: 'region', 'aria-label': 'Topics' });
  const note = make('p', { class: 'dim', role: 'status', 'aria-live': 'polite' }, 'Waiting for messages.');
  const nothing = () => make('p', { class: 'dim' }, 'Choose a topic to see its value.');
  const value = make('section', { 'aria-label': 'Value' }, nothing());
  const input = make('input', { name: 'filter', value: filter, autocomplete: 'off', spellcheck: 'false' });
  const choose = event => { event.preventDefault(); filter = input.value || '#'; start(); };
  main.append(make('h1', {}, 'Topics'),
    make('form', { class: 'bar', onsubmit: choose }, make('label', {}, 'Filter, such as room/# or $SYS/#', input),
      make('button', {}, 'Show')), note,
    make('div', { class: 'split' }, make('section', { 'aria-label': 'Tree' }, tree), value));

  // Puts a message into the tree. Says whether its topic is new here; undefined if the page is full.
  function put(entry) {
    let place = root;
    const names = entry.topic.split('/');
    let known = root;
    for (const name of names) known = known?.children.get(name);
    const isNew = !known?.entry;
    if (isNew && count >= TOPICS_MAX) return undefined;
    if (isNew) count += 1;
    for (const name of names) {
      if (!place.children.has(name)) place.children.set(name, level());
      place = place.children.get(name);
    }
    place.entry = entry;
    place.past = noted(place.past, entry, entry.topic === chosen);
    return isNew;
  }

  const placeOf = topic => topic?.split('/').reduce((place, name) => place?.children.get(name), root);
  const find = topic => placeOf(topic)?.entry;

  function pick(topic) {
    leaves.get(chosen)?.setAttribute('aria-pressed', 'false');
    leaves.get(topic)?.setAttribute('aria-pressed', 'true');
    chosen = topic;
    noteValue(find(topic));
  }

  function leaf(name, entry) {
    const button = make('button', { type: 'button', class: 'leaf', title: entry.topic.slice(0, 300),
      'aria-pressed': chosen === entry.topic, onclick: () => pick(entry.topic) },
      make('span', {}, called(name)),
      make('span', { class: 'preview' }, preview(entry)));
    leaves.set(entry.topic, button);
    return button;
  }

  function branch(place, path) {
    return [...place.children].sort(([a], [b]) => (a < b ? -1 : 1)).map(([name, child]) => {
      const here = `${path}/${name}`;
      const parts = child.entry ? [leaf(name, child.entry)] : [];
      if (child.children.size > 0) {
        const summary = make('summary', {}, called(name), '/');
        const details = make('details', { open: open.has(here) }, summary);
        summaries.set(here, summary);
        const fill = () => details.open && details.children.length === 1
          && details.append(make('ul', {}, ...branch(child, here)));
        details.addEventListener('toggle', () => {
          if (details.open) open.add(here); else open.delete(here);
          fill();
        });
        fill();
        parts.push(details);
      }
      return make('li', {}, ...parts);
    });
  }

  // Draws the tree again, with the focus where it was. The first levels of a small tree are open.
  function draw() {
    const focused = elements => [...elements].find(([, element]) => element === document.activeElement)?.[0];
    const [leaf, summary, top] = [focused(leaves), focused(summaries), tree.scrollTop];
    leaves.clear();
    summaries.clear();
    tree.replaceChildren(make('ul', {}, ...branch(root, '')));
    tree.scrollTop = top;
    (leaves.get(leaf) ?? summaries.get(summary))?.focus();
    note.textContent = count >= TOPICS_MAX && left
      ? `The first ${TOPICS_MAX} topics are shown; a narrower filter shows others.`
      : `${count} ${count === 1 ? 'topic' : 'topics'}`;
  }

  let due;
  const later = () => { due ??= setTimeout(() => { due = undefined; draw(); }, DRAW_MS); };

  const select = make('select', { onchange: event => { form = event.target.value; fill(find(chosen)); } },
    ...['text', 'json', 'hex'].map(name => make('option', { value: name }, name)));
  const payload = make('pre', { tabindex: '0', role: 'region', 'aria-label': 'Payload' });
  const facts = make('dl', { class: 'facts' });
  const past = make('div');
  const fill = entry => { if (entry) payload.textContent = written(entry, form); };

  let pastDue;
  function drawPast() {
    clearTimeout(pastDue);
    pastDue = undefined;
    replace(past, ...drawn(placeOf(chosen)?.past ?? []));
  }

  function noteValue(entry) {
    const told = [['Received', time(entry.time)], ['From', origin(entry)], ['Size', bytes(octets(entry).length)],
      ['Content type', entry.content_type ?? 'none'], ['QoS', String(entry.qos)],
      ['Retained', entry.retain ? 'yes' : 'no']];
    facts.replaceChildren(...told.flatMap(([name, text]) => [make('dt', {}, name), make('dd', {}, text)]));
    fill(entry);
    // Values may come faster than a list of them can be drawn.
    if (value.dataset.topic !== entry.topic) drawPast();
    else pastDue ??= setTimeout(drawPast, DRAW_MS);
    if (value.dataset.topic === entry.topic) return;
    value.dataset.topic = entry.topic;
    value.replaceChildren(make('h2', { class: 'name' }, spelt(entry.topic.slice(0, 2000))), facts,
      make('div', { class: 'bar value-bar' }, make('label', {}, make('span', { class: 'label' }, 'Show as '), select),
        make('a', { href: topicPath(entry.topic) }, 'Open')), payload, past);
  }

  function take(event) {
    const entry = JSON.parse(event.data);
    const isNew = put(entry);
    if (isNew === undefined) left = true;
    if (isNew !== false) return later();
    const shown = leaves.get(entry.topic)?.querySelector('.preview');
    if (shown) shown.textContent = preview(entry);
    if (entry.topic === chosen) noteValue(entry);
    return undefined;
  }

  async function start() {
    source?.close();
    root.children.clear();
    [count, left, chosen] = [0, false, undefined];
    delete value.dataset.topic;
    value.replaceChildren(nothing());
    draw();
    note.textContent = 'Waiting for messages.';
    // The browser opens the stream again if it breaks, and says where it was.
    source = new EventSource(`/subscribe?origin=true&filter=${encodeURIComponent(filter)}`);
    source.onmessage = take;
    source.onerror = () => {
      note.textContent = source.readyState === EventSource.CLOSED
        ? 'The gateway refuses this filter.' : 'The stream broke and is opened again.';
    };
  }

  // The first levels are open if the gateway has few topics.
  get('topics?limit=200').then(page => {
    if (page.next === undefined) page.topics.forEach(({ topic }) => open.add(`/${topic.split('/')[0]}`));
    later();
  }).catch(() => {});
  start();
  return { leave: () => { source?.close(); clearTimeout(due); clearTimeout(pastDue); } };
}
