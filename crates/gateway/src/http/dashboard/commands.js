// Commands for each door, with the address, port and credential of a listener that the visitor can reach.

import { make, section } from '/dashboard/elements.js';

// A word of a shell, whatever it contains.
const quoted = text => (/^[\w.:/@%+=,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

const host = entry => entry.address.slice(0, entry.address.lastIndexOf(':'));
const isLoopback = entry => /^(127\.|\[::1\]|\[::ffff:127\.)/.test(host(entry));
const isAny = entry => ['0.0.0.0', '[::]'].includes(host(entry));

// The address to use for a listener: the one that the page was reached by, unless it listens elsewhere only.
const address = entry => (isAny(entry) || isLoopback(entry) ? location.hostname : host(entry));

const bare = name => name.replace(/^\[|\]$/g, '');

// The listeners that a visitor can reach: those on this machine's own interface are for visitors on it.
export const reached = ({ listeners, visitor }) => listeners
  .filter(entry => entry.open && entry.port > 0 && (visitor.local || !isLoopback(entry)));

// Whether no credential is needed.
const isOpen = (entry, visitor) => (visitor.local ? entry.anonymous : entry.remote_anonymous);

// The commands of a kind of listener: a title and lines, for an entry, a topic and the options of a credential.
const KINDS = {
  mqtt: mosquitto,
  mqtts: mosquitto,
  coap: libcoap,
  coaps: libcoap,
  coap_tcp: libcoap,
  coaps_tcp: libcoap,
  http: curl,
  https: curl,
  xmpp: fogmux,
  xmpps: fogmux,
};

function mosquitto(entry, topic, { user, psk }) {
  const tls = psk ? ' --psk-identity IDENTITY --psk HEX' : entry.encrypted ? ' --cafile ca.pem' : '';
  const login = user ? ` -u ${quoted(user)} -P PASSWORD` : '';
  const to = `-h ${bare(address(entry))} -p ${entry.port}${tls}${login}`;
  return [`mosquitto_sub ${to} -v -t ${quoted(topic)}`, `mosquitto_pub ${to} -r -t ${quoted(topic)} -m 21.5`];
}

const path = topic => topic.split('/').map(encodeURIComponent).join('/');

function libcoap(entry, topic, { user, psk }) {
  const scheme = { coap: 'coap', coaps: 'coaps', coap_tcp: 'coap+tcp', coaps_tcp: 'coaps+tcp' }[entry.kind];
  const login = psk ? ' -u IDENTITY -k KEY' : entry.encrypted ? ' -R ca.pem' : '';
  const own = user && !psk && entry.encrypted ? ' -c client.pem -j client-key.pem' : '';
  const to = quoted(`${scheme}://${address(entry)}:${entry.port}/ps/${path(topic)}`);
  return [`coap-client${login}${own} -s 60 ${to}`, `coap-client${login}${own} -m put -e 21.5 ${to}`];
}

function curl(entry, topic, { user }) {
  const login = `${entry.encrypted ? ' --cacert ca.pem' : ''}${user ? ` -u ${quoted(user)}` : ''}`;
  const base = `${entry.encrypted ? 'https' : 'http'}://${address(entry)}:${entry.port}`;
  return [`curl -N${login} ${quoted(`${base}/subscribe?filter=${encodeURIComponent(topic)}`)}`,
    `curl -X PUT${login} -d 21.5 ${quoted(`${base}/topics/${path(topic)}`)}`];
}

function fogmux(entry, topic, { user }) {
  const login = `${entry.encrypted ? ' --ca ca.pem' : ''}${user ? ` --user ${quoted(user)} --password-file FILE` : ''}`;
  const to = quoted(`${entry.kind}://${address(entry)}:${entry.port}/${topic}`);
  return [`fogmux sub${login} ${to}`, `fogmux pub -r${login} ${to} 21.5`];
}

// The addresses that a phone may be shown: of this page, of the topic's value, and of MQTT.
export function links(page, topic) {
  const all = reached(page).map(entry => [entry, address(entry)]);
  const shown = [['This page', `${location.origin}/`],
    ['The value of the topic', `${location.origin}/topics/${path(topic)}`]];
  const of = all.filter(([entry]) => ['https', 'mqtt', 'mqtts'].includes(entry.kind));
  return [...shown, ...of.map(([entry, to]) => [`${entry.listener}, port ${entry.port}`,
    `${entry.kind}://${to}:${entry.port}${entry.kind === 'https' ? '/' : ''}`])];
}

export function commands(page, topic) {
  const { visitor } = page;
  const known = reached(page).filter(entry => KINDS[entry.kind]);
  const blocks = known.map(entry => {
    const open = isOpen(entry, visitor);
    const credential = { user: open ? undefined : visitor.user ?? 'USER', psk: entry.profile === 'psk' };
    const lines = KINDS[entry.kind](entry, topic, credential).join('\n');
    const note = [entry.encrypted ? `encrypted, profile ${entry.profile}` : 'not encrypted',
      open ? 'no login needed' : 'with a login'].join(', ');
    return make('div', {}, make('h3', {}, `${entry.listener} `, make('span', { class: 'dim' }, note)),
      make('pre', { tabindex: '0', role: 'region', 'aria-label': `Commands for ${entry.listener} at ${entry.address}` },
        lines));
  });
  const ca = known.some(entry => entry.encrypted)
    ? [make('p', { class: 'dim' },
      'ca.pem is DATA/pki/ca.pem of the gateway, or the authority of its certificate.')] : [];
  return section('Commands', ...ca, ...(blocks.length > 0 ? blocks
    : [make('p', { class: 'dim' }, 'No listener can be reached from here.')]));
}
