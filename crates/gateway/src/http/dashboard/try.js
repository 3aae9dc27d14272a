// A place to try the gateway: publish, follow, commands for each door, and a code for phones.

import { get, publish } from '/dashboard/api.js';
import { commands, links } from '/dashboard/commands.js';
import { make, section } from '/dashboard/elements.js';
import { follow } from '/dashboard/follow.js';
import { encode } from '/dashboard/qr.js';

const field = (label, name, attributes = {}) => make('label', {}, label,
  make('input', { name, autocomplete: 'off', spellcheck: 'false', ...attributes }));

// Light modules around a code (ISO/IEC 18004, 6.3.8).
const QUIET = 4;

// A code is dark on light in both colour schemes, as readers expect.
function drawn(text) {
  const rows = encode(text);
  if (!rows) return make('p', { class: 'dim' }, 'This address is too long for a code.');
  const SVG = 'http://www.w3.org/2000/svg';
  const size = rows.length + 2 * QUIET;
  const svg = document.createElementNS(SVG, 'svg');
  const attributes = { viewBox: `0 0 ${size} ${size}`, class: 'qr', role: 'img', 'aria-label': `QR code of ${text}`,
    'shape-rendering': 'crispEdges' };
  Object.entries(attributes).forEach(([key, value]) => svg.setAttribute(key, value));
  const add = (name, given) => {
    const element = document.createElementNS(SVG, name);
    Object.entries(given).forEach(([key, value]) => element.setAttribute(key, value));
    svg.append(element);
  };
  add('rect', { width: size, height: size, fill: '#fff' });
  const squares = rows.flatMap((row, y) => row.map((dark, x) => (dark ? `M${x + QUIET} ${y + QUIET}h1v1h-1z` : '')));
  add('path', { d: squares.join(''), fill: '#000' });
  return svg;
}

function phone(page, topic) {
  const box = make('div');
  const all = links(page, topic);
  const select = make('select', { onchange: () => draw() },
    ...all.map(([name], index) => make('option', { value: index }, name)));
  const draw = () => {
    const [, text] = all[select.value];
    const far = /^[a-z]+:\/\/(localhost|127\.|\[::1\])/.test(text)
      ? [make('p', { class: 'dim' }, 'This is an address of this machine: a phone needs the name or address that it ',
        'has in the network, so open this page by that.')] : [];
    box.replaceChildren(make('p', { class: 'mono name' }, text), drawn(text), ...far);
  };
  draw();
  return section('For a phone', make('label', {}, make('span', { class: 'label' }, 'Code of '), select), box);
}

export function tryIt(main) {
  const said = make('p', { role: 'status', 'aria-live': 'polite' });
  const rest = make('div');
  const topic = field('Topic', 'topic', { required: true, value: 'room/temperature' });
  let page = { listeners: [], visitor: { local: false } };
  const draw = () => {
    const name = topic.querySelector('input').value || 'room/temperature';
    rest.replaceChildren(commands(page, name), phone(page, name));
  };
  const send = async event => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    try {
      await publish(given.topic, given.payload, given.type, given.retain === 'on');
      said.className = 'good';
      said.textContent = given.retain === 'on' ? 'Published and retained.' : 'Published.';
    } catch (error) { said.className = 'bad'; said.textContent = error.message; }
  };
  topic.addEventListener('input', draw);
  main.append(make('h1', {}, 'Try it'), section('Publish a value',
    make('form', { id: 'publish', onsubmit: send }, topic, field('Payload', 'payload', { value: '21.5' }),
      field('Content type, if any', 'type', { value: 'text/plain' }),
      make('label', {}, 'Retain', make('select', { name: 'retain' },
        make('option', { value: 'on' }, 'yes'), make('option', { value: 'off' }, 'no'))),
      make('button', {}, 'Publish')), said));
  const leave = follow(main);
  main.append(rest);
  get('listeners').then(found => { page = found; draw(); }).catch(error => { said.textContent = error.message; });
  return { leave };
}
