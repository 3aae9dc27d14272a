// The last refused logins and actions, each with what the log says of it and a way to test the rule.

import { get } from '/dashboard/api.js';
import { make, number, section, spelt, table, time } from '/dashboard/elements.js';

// Where the rules view is told what to test. A name may look like a credential.
const identity = name => (/^(user|psk|oscore):/.test(name) ? `user:${name}` : name);
const question = ({ action, door, client }) => `#rules?${new URLSearchParams({ identity: identity(action.identity),
  action: action.action, topic: action.topic, door, ...(client ? { client } : {}),
  ...(action.groups ? { groups: action.groups.join(', ') } : {}) })}`;

const who = entry => {
  const name = entry.action?.identity ?? entry.login?.claimed;
  return [name || 'nobody', entry.client && entry.client !== name ? `client ${entry.client}` : '']
    .filter(Boolean).join(', ');
};

const what = entry => (entry.action
  ? `${entry.action.action} ${entry.action.topic}${entry.action.topic_cut ? '…' : ''}`
  : `login by ${entry.login.by}`);

const reason = entry => (entry.action?.file
  ? make('div', {}, spelt(entry.reason),
    make('div', { class: 'dim' }, `${entry.action.file}, line ${entry.action.line}`))
  : entry.reason);

// A topic that is not there whole cannot be tested.
const test = entry => (entry.action && !entry.action.topic_cut
  ? make('a', { href: question(entry), 'aria-label': `Test the rule for ${what(entry)}` }, 'Test') : '');

const times = entry => `${number(entry.count)}${entry.others > 0 ? ` and ${number(entry.others)} others` : ''}`;

export function refusals(main) {
  const list = make('div', { id: 'refusals' });
  const again = make('button', { type: 'button', class: 'plain', onclick: load }, 'Load again');
  main.append(section('Refusals', make('p', { class: 'dim' },
    'The last logins and actions that were refused. Each user and each address has its share of 256 places.'),
  make('div', { class: 'bar' }, again), list));

  async function load() {
    try {
      const { refusals: all } = await get('refusals');
      const columns = ['Last', 'Refused', 'Who', 'Door', 'Address', 'Reason', 'Times', 'Rule'].map(name => ({ name }));
      list.replaceChildren(all.length > 0
        ? table('Refusals', columns, all.map(entry => [time(entry.last), what(entry), who(entry), entry.door,
          entry.address ?? '–', reason(entry), times(entry), test(entry)]), 'acts')
        : make('p', { class: 'dim' }, 'Nothing was refused since the start.'));
    } catch (error) { list.replaceChildren(make('p', { class: 'bad' }, error.message)); }
  }
  load();
}
