// Links to other brokers: whether each is connected, what it passes on and drops, and what waits for it.

import { get } from '/dashboard/api.js';
import { bytes, make, number, replace, section, spelt, table, time } from '/dashboard/elements.js';

const way = ({ messages, bytes: payload }) => `${number(messages)}, ${bytes(payload)}`;

function dropped(link) {
  const all = ['out', 'in'].flatMap(direction => link[direction].dropped.filter(({ count }) => count > 0)
    .map(({ reason, count }) => `${direction}: ${number(count)} ${reason.replace('_', ' ')}`));
  return all.length > 0 ? make('span', { class: 'warn' }, all.join(', ')) : '–';
}

function state(link) {
  if (link.connected) return make('span', { class: 'good' }, `connected since ${time(link.since)}`);
  return make('span', { class: 'bad' }, spelt(link.last_error ? `down: ${link.last_error.text}` : 'connecting'));
}

const COLUMNS = [...['Link', 'Broker', 'State'].map(name => ({ name })),
  ...['Out', 'In', 'Waiting'].map(name => ({ name, number: true })), { name: 'Dropped' }];

// Nothing is shown where there are none.
export function links(main) {
  const list = make('div', { id: 'links' });
  const part = section('Links to other brokers', list);
  part.hidden = true;
  main.append(part);
  let asked = false;
  return async () => {
    if (asked) return;
    asked = true;
    try {
      const page = await get('links');
      part.hidden = page.links.length === 0;
      replace(list, table('Links to other brokers', COLUMNS, page.links.map(link => [link.name, link.url,
        state(link), way(link.out), way(link.in), `${number(link.queue.messages)}, ${bytes(link.queue.bytes)}`,
        dropped(link)]), 'rows'));
    } catch { /* The state above says that there is no connection. */ }
    asked = false;
  };
}
