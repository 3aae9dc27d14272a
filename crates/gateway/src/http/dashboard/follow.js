// Messages that are followed in the browser, by server-sent events or over a WebSocket.

import { make, plain, replace, section, table, time } from '/dashboard/elements.js';

// Messages that are shown, and characters of each.
const SHOWN_MAX = 100;
const CHARS_MAX = 200;
const DRAW_MS = 250;

const query = filter => `/subscribe?filter=${encodeURIComponent(filter)}`;

// Each opens a stream: it is given what takes a message and what is told of the state, and returns what closes it.
const WAYS = {
  'server-sent events': (filter, take, say) => {
    const source = new EventSource(query(filter));
    source.onopen = () => say('Following.');
    source.onmessage = event => take(JSON.parse(event.data));
    source.onerror = () => say(source.readyState === EventSource.CLOSED
      ? 'The gateway refuses this filter.' : 'The stream broke and is opened again.');
    return () => source.close();
  },
  WebSocket: (filter, take, say) => {
    const socket = new WebSocket(`${location.origin.replace(/^http/, 'ws')}${query(filter)}`);
    let asked = false;
    socket.onopen = () => say('Following.');
    socket.onmessage = event => {
      const entry = JSON.parse(event.data);
      // A notice, such as of a gap, has no topic.
      if (entry.topic !== undefined) take(entry);
    };
    socket.onclose = () => { if (!asked) say('The gateway refuses this filter, or the connection broke.'); };
    return () => { asked = true; socket.close(); };
  },
};

export function follow(main) {
  const said = make('p', { role: 'status', 'aria-live': 'polite', class: 'dim' }, 'Nothing is followed.');
  const list = make('div', { id: 'followed' });
  const filter = make('input', { name: 'filter', value: 'room/#', required: true, autocomplete: 'off',
    spellcheck: 'false' });
  const way = make('select', { name: 'way' }, ...Object.keys(WAYS).map(name => make('option', { value: name }, name)));
  const stop = make('button', { type: 'button', class: 'plain', disabled: true,
    onclick: () => { end(); say('Stopped.'); } }, 'Stop');
  let [close, shown, due] = [undefined, [], undefined];
  const say = text => { said.textContent = text; };

  function draw() {
    due = undefined;
    const columns = ['Time', 'Topic', 'Payload'].map(name => ({ name }));
    replace(list, table('Messages, the newest first', columns, shown.map(entry => [time(entry.time),
      entry.topic.slice(0, CHARS_MAX), entry.encoding === 'base64' ? 'binary' : entry.payload.slice(0, CHARS_MAX)])));
  }

  function take(entry) {
    shown = [entry, ...shown].slice(0, SHOWN_MAX);
    due ??= setTimeout(draw, DRAW_MS);
  }

  function end() {
    close?.();
    close = undefined;
    stop.disabled = true;
  }

  const begin = event => {
    event.preventDefault();
    end();
    shown = [];
    list.replaceChildren();
    say('Connecting.');
    close = WAYS[way.value](filter.value, take, say);
    stop.disabled = false;
  };
  main.append(section('Follow', make('form', { id: 'follow', onsubmit: begin },
    make('label', {}, 'Filter', filter), make('label', {}, 'By', way), make('button', {}, 'Follow'), stop),
  said, list));
  return () => { end(); clearTimeout(due); };
}
