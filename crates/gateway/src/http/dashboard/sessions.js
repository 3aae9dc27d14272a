// MQTT sessions, connected or not: what each holds, its subscriptions, and its end.

import { get, remove } from '/dashboard/api.js';
import { bytes, duration, make, number, plain, replace, spelt, sure, table } from '/dashboard/elements.js';

const PAGE = 100;

const held = (count, size) => (count > 0 ? `${number(count)} (${bytes(size)})` : '0');

function state(session) {
  if (session.connected) return session.transient ? 'connected, ends with its connection' : 'connected';
  return session.expires_seconds === undefined ? 'absent, for ever' : `absent, ${duration(session.expires_seconds)} left`;
}

export function sessions(main) {
  const list = make('div');
  const detail = make('div', { role: 'status', 'aria-live': 'polite' });
  const said = make('p', { role: 'status', 'aria-live': 'polite', class: 'dim' }, 'Loading');
  let after = '';
  const next = make('button', { type: 'button', class: 'plain', onclick: () => load(after) }, 'Next page');
  const first = make('button', { type: 'button', class: 'plain', onclick: () => load('') }, 'First page');
  main.append(make('h1', {}, 'Sessions'), make('section', {},
    make('p', { class: 'dim' }, 'MQTT sessions in the order in which they began, with their connection or without.'),
    make('div', { class: 'bar' }, first, next), said, list), detail);

  async function show(session) {
    try {
      const page = await get(`sessions/${session.id}/subscriptions?limit=1000`);
      const filters = page.subscriptions.map(filter => [filter]);
      detail.replaceChildren(make('section', { id: 'subscriptions' },
        make('h2', {}, 'Subscriptions of ', spelt(session.client)),
        filters.length > 0 ? table('Subscriptions', [{ name: 'Filter' }], filters) : make('p', {}, 'It has none.'),
        page.next === undefined ? undefined : make('p', { class: 'dim' }, 'The first 1000 are shown.')));
    } catch (error) { detail.replaceChildren(make('section', {}, make('p', { class: 'bad' }, error.message))); }
  }

  async function end(session) {
    const loses = session.queued > 0 ? ` Its ${number(session.queued)} waiting messages are lost.` : '';
    if (!await sure(`End the session of ${session.client} and forget it?${loses}`, 'End')) return;
    try {
      await remove(`sessions/${session.id}`);
      detail.replaceChildren();
      await load('', `The session of ${plain(session.client)} has ended.`);
    } catch (error) { said.textContent = error.message; }
  }

  const actions = session => make('div', { class: 'actions' },
    make('button', { type: 'button', class: 'plain', 'aria-label': `Filters of ${session.client}`,
      onclick: () => show(session) }, 'Filters'),
    make('button', { type: 'button', class: 'danger', 'aria-label': `End the session of ${session.client}`,
      onclick: () => end(session) }, 'End'));

  async function load(from, text) {
    try {
      const page = await get(`sessions?limit=${PAGE}${from ? `&after=${encodeURIComponent(from)}` : ''}`);
      after = page.next;
      next.disabled = after === undefined;
      const columns = [{ name: 'Client' }, { name: 'User' }, { name: 'State' },
        ...['Subscriptions', 'Queued', 'In flight'].map(name => ({ name, number: true })), { name: 'Stored' },
        { name: 'Action' }];
      replace(list, table('Sessions', columns, page.sessions.map(session => [session.client, session.principal,
        state(session), number(session.subscriptions), held(session.queued, session.queued_bytes),
        held(session.inflight, session.inflight_bytes), session.stored === 'disk' ? 'on disk' : 'in memory',
        actions(session)]), 'rows acts'));
      said.textContent = text ?? `${page.sessions.length} on this page`;
    } catch (error) { said.textContent = error.message; }
  }
  load('');
  return {};
}
