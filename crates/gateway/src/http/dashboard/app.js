// The program of the page: which view is shown, and the state of the gateway above all of them.

import { rules, users } from '/dashboard/access.js';
import { get } from '/dashboard/api.js';
import { bench } from '/dashboard/bench.js';
import { make } from '/dashboard/elements.js';
import { sessions } from '/dashboard/sessions.js';
import { topics } from '/dashboard/topics.js';
import { tryIt } from '/dashboard/try.js';
import { clients, listeners, overview } from '/dashboard/views.js';

const VIEWS = { overview, topics, clients, sessions, listeners, users, rules, bench, try: tryIt };
const INTERVAL_MS = 3000;
// How long the first answer may take before the page says what it waits for.
const PATIENCE_MS = 1500;

const main = document.getElementById('main');
const state = document.getElementById('state');
let leave = () => {};
let watching = () => {};

// The page that asks for user and password, and leads back to this view.
const login = () => `/login${location.hash}`;

function say(text, kind) {
  if (state.textContent !== text) state.textContent = text;
  state.className = `state ${kind}`;
}

function refused(error) {
  const asked = error.status === 401 || error.status === 403;
  main.replaceChildren(make('section', { class: 'problem' },
    make('h1', {}, asked ? 'Administration needs a login' : 'The gateway does not answer'),
    make('p', {}, error.message),
    asked ? make('p', {}, 'Administrators are the user ', make('code', {}, 'admin'), ' and those whom a rule for ',
      make('code', {}, '$fogmux/admin'), ' names.') : undefined,
    asked ? make('p', {}, make('a', { href: login() }, 'Log in')) : undefined));
}

function show() {
  const [asked] = location.hash.slice(1).split('?');
  const name = Object.hasOwn(VIEWS, asked) ? asked : 'overview';
  for (const link of document.querySelectorAll('#nav a')) {
    if (link.hash === `#${name}`) link.setAttribute('aria-current', 'page');
    else link.removeAttribute('aria-current');
  }
  leave();
  main.replaceChildren();
  const view = VIEWS[name](main);
  leave = view.leave ?? (() => {});
  watching = view.status ?? (() => {});
  document.title = `${document.querySelector('#nav a[aria-current]').textContent} – fogmux`;
}

let shown = false;
let before;
let earlier;

// Asks for the state, one request at a time; a page that is not seen asks nothing.
async function watch() {
  if (!document.hidden || !shown) {
    try {
      const status = await get('status');
      if (!shown) { shown = true; show(); }
      say(status.ready ? 'Ready' : 'Not ready', status.ready ? 'good' : 'bad');
      const now = { status, at: performance.now() };
      watching(now, before);
      [earlier, before] = [before, now];
    } catch (error) {
      if (error.status === 401 || error.status === 403) {
        say('Not logged in', 'bad');
        leave();
        refused(error);
        return;
      }
      say('No connection', 'bad');
      if (!shown) refused(error);
    }
  }
  setTimeout(watch, INTERVAL_MS);
}

addEventListener('hashchange', () => {
  if (!shown) return;
  show();
  watching(before, earlier);
  main.focus();
});

// As a link it would name a view.
document.querySelector('.skip').addEventListener('click', event => {
  event.preventDefault();
  main.focus();
});

// The browser asks for name and password by itself, and the request waits for that.
setTimeout(() => {
  if (shown || main.querySelector('.problem')) return;
  main.replaceChildren(make('section', {}, make('h1', {}, 'Waiting for the gateway'),
    make('p', {}, 'Your browser may be asking for a name and a password. There is also a page to ',
      make('a', { href: login() }, 'log in'), '.')));
}, PATIENCE_MS);
watch();
