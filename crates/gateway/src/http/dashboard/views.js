// Views of what there is. Each fills the main element and returns what it does with a new status, and at its end.

import { get, remove } from '/dashboard/api.js';
import { certificates } from '/dashboard/certificates.js';
import { bytes, duration, make, number, rate, replace, section, sure, table, time } from '/dashboard/elements.js';
import { links } from '/dashboard/links.js';
import { called, rates } from '/dashboard/rates.js';
import { refusals } from '/dashboard/refusals.js';
import { system } from '/dashboard/system.js';

const PAGE = 100;

const card = (name, text, note, kind) => make('div', { class: 'card' }, make('dt', {}, name),
  make('dd', { class: kind }, text), note ? make('dd', { class: 'note' }, note) : undefined);

export function overview(main) {
  const cards = make('dl', { class: 'cards' });
  const doors = make('div');
  main.append(make('h1', {}, 'Overview'), cards, section('Doors', doors));
  const [pairs, others, machine] = [rates(main), links(main), system(main)];
  const status = (now, before) => {
    if (!now) return;
    const s = now.status;
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    const per = (read, old) => (seconds > 0 ? rate(Math.max(0, read(now.status) - read(old)) / seconds) : '–');
    const lost = s.store?.lost ? 'it was damaged and has lost something' : undefined;
    const store = s.store ? [s.store.state, lost ?? `${bytes(s.store.disk_bytes)} on disk`]
      : ['in memory', 'nothing survives a restart'];
    const healthy = !s.store || (s.store.state === 'writable' && !lost);
    const memory = s.memory.pressure ? 'publishers wait for slow subscribers'
      : `at most ${bytes(s.memory.resident_bytes_max)}`;
    const since = count => `${number(count)} since the start`;
    const bad = holds => (holds ? 'bad' : undefined);
    cards.replaceChildren(
      card('State', s.ready ? 'ready' : 'not ready', `up ${duration(s.uptime_seconds)}`, s.ready ? 'good' : 'bad'),
      card('Messages in', per(m => m.messages.published, before?.status), since(s.messages.published)),
      card('Messages out', per(m => m.messages.sent, before?.status), since(s.messages.sent)),
      card('Dropped', number(s.messages.dropped), `${number(s.messages.refused)} publications refused`,
        bad(s.messages.dropped > 0)),
      card('Memory', bytes(s.memory.resident_bytes), memory, bad(s.memory.pressure)),
      card('Store', ...store, bad(!healthy)),
      card('Retained', number(s.retained.count), bytes(s.retained.bytes)),
      card('Subscriptions', number(s.subscriptions.count),
        `${number(s.sessions)} MQTT sessions, ${number(s.sessions_away)} away`));
    const columns = [{ name: 'Door' }, ...['Open', 'Messages in', 'Bytes in', 'Bytes out', 'Accepted',
      'Rejected', 'Logins refused', 'Actions refused', 'Faulty', 'Too slow'].map(name => ({ name, number: true }))];
    const flow = (door, index, name) => (seconds > 0
      ? `${bytes(Math.max(0, door[name] - before.status.doors[index][name]) / seconds)}/s` : bytes(door[name]));
    const came = (door, index) => (seconds > 0
      ? rate(Math.max(0, door.published - before.status.doors[index].published) / seconds) : number(door.published));
    const rows = s.doors.map((door, index) => [called(door.door),
      number(door.connections), came(door, index), flow(door, index, 'read_bytes'), flow(door, index, 'written_bytes'),
      number(door.accepted), number(door.rejected), number(door.unauthenticated), number(door.unauthorized),
      number(door.misbehaved), number(door.timed_out)]);
    replace(doors, table('Doors', columns, rows, 'pinned'));
    pairs(now, before);
    others();
    machine();
    document.getElementById('version')?.remove();
    main.append(make('p', { class: 'dim', id: 'version' },
      `fogmux ${s.version}, realm ${s.realm}, started ${time(s.started)}`));
  };
  return { status };
}

export function clients(main) {
  const list = make('div');
  const said = make('p', { role: 'status', 'aria-live': 'polite', class: 'dim' }, 'Loading');
  const cursors = [''];
  const next = make('button', { type: 'button', class: 'plain', onclick: () => load(cursors.at(-1)) }, 'Next page');
  const first = make('button', { type: 'button', class: 'plain', onclick: () => load('') }, 'First page');
  main.append(make('h1', {}, 'Clients'), make('section', {},
    make('p', { class: 'dim' },
      'MQTT and XMPP connections and HTTP event streams, in the order in which they logged in.'),
    make('div', { class: 'bar' }, first, next), said, list));

  async function kick(client) {
    const name = client.client || client.principal;
    if (!await sure(`Disconnect ${name} at ${client.address}? It may connect again.`, 'Disconnect')) return;
    try {
      await remove(`clients/${client.id}`);
      said.textContent = `Client ${client.id} was disconnected.`;
      await load('', said.textContent);
    } catch (error) { said.textContent = error.message; }
  }

  async function load(after, text) {
    try {
      const page = await get(`clients?limit=${PAGE}${after ? `&after=${encodeURIComponent(after)}` : ''}`);
      next.disabled = page.next === undefined;
      if (page.next !== undefined) cursors.push(page.next);
      const columns = ['Client', 'User', 'Listener', 'Address', 'Since', 'Action'].map(name => ({ name }));
      replace(list, table('Clients', columns, page.clients.map(client => [client.client ?? '–',
        client.principal, client.listener ?? client.door, client.address, time(client.since),
        make('button', { type: 'button', class: 'danger', 'aria-label': `Disconnect ${client.client ?? client.address}`,
          onclick: () => kick(client) }, 'Disconnect')]), 'rows acts'));
      said.textContent = text ?? `${page.clients.length} on this page`;
    } catch (error) { said.textContent = error.message; }
  }
  load('');
  refusals(main);
  return {};
}

export function listeners(main) {
  const list = make('div');
  main.append(make('h1', {}, 'Listeners'), make('section', {},
    make('p', { class: 'dim' }, 'Where the gateway listens, and from where clients may come without credentials.'), list));
  certificates(main);
  get('listeners').then(page => {
    const admits = entry => (entry.remote_anonymous ? 'everywhere' : entry.anonymous ? 'on this machine' : 'nowhere');
    const state = entry => (entry.open ? 'open' : `not open: ${entry.error}`);
    const columns = ['Listener', 'Address', 'State', 'Security', 'Anonymous clients'].map(name => ({ name }));
    list.replaceChildren(table('Listeners', columns, page.listeners.map(entry => [entry.listener, entry.address,
      state(entry), entry.encrypted ? entry.profile : 'not encrypted', admits(entry)]), 'rows'));
  }).catch(error => list.replaceChildren(make('p', { class: 'bad' }, error.message)));
  return {};
}
