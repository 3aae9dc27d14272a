// The certificates in use: whose they are, until when, and which listeners show them.

import { get } from '/dashboard/api.js';
import { make, section, table, time } from '/dashboard/elements.js';

const ROLES = { server: 'server', chain: 'between server and authority', acme: 'server, by ACME',
  'client-authority': 'authority of clients', authority: 'authority' };

// The state in words: 30 days before the end, 7 days before and after it, as `fogmux doctor` says it.
function left({ state, days_left: days }) {
  const some = count => (count === 1 ? '1 day' : `${count} days`);
  if (state === 'expired') return ['bad', days < -1 ? `expired ${some(-days - 1)} ago` : 'expired today'];
  if (state === 'early') return ['bad', 'not valid yet: is the clock right?'];
  return [{ month: 'warn', week: 'bad' }[state], days < 1 ? 'expires today' : `${some(days)} left`];
}

export const mark = certificate => {
  const [kind, words] = left(certificate);
  return make('span', { class: kind ? `mark ${kind}` : 'mark' }, words);
};

const day = text => new Date(text).toLocaleDateString();

export function certificates(main) {
  const list = make('div', { id: 'certificates' });
  main.append(section('Certificates', list));
  get('certificates').then(({ certificates: all, revocation_lists: lists, rollover }) => {
    const columns = ['Certificate', 'Issuer', 'Valid', 'State', 'Listeners', 'File'].map(name => ({ name }));
    const rows = all.map(one => [
      make('div', {}, one.subject || '–', make('div', { class: 'dim' },
        `${ROLES[one.role] ?? one.role}${one.own_authority ? ', of this gateway' : ''}`)),
      one.subject === one.issuer ? 'itself' : one.issuer, `${day(one.not_before)} – ${day(one.not_after)}`, mark(one),
      one.listeners.join(', ') || '–', one.file]);
    list.replaceChildren(rows.length > 0 ? table('Certificates', columns, rows)
      : make('p', { class: 'dim' }, 'No listener has a certificate.'));
    if (rollover) {
      list.prepend(make('p', {}, `A rollover has ${rollover.phase}: ${rollover.new} takes the place of ${rollover.old}. `
        + '`fogmux pki rollover status` says what is next.'));
    }
    if (lists.length === 0) return;
    const of = ['Revocation list', 'Revoked', 'Issued', 'Next', 'File'].map(name => ({ name }));
    list.append(table('Revocation lists', of, lists.map(one => [one.issuer, String(one.revoked), time(one.this_update),
      make('span', { class: one.expired ? 'mark bad' : 'mark' }, one.next_update ? time(one.next_update) : 'not said'),
      one.file])));
  }).catch(error => list.replaceChildren(make('p', { class: 'bad' }, error.message)));
}
