// Users and rules: who may log in, and what the access rules allow; changed here where the configuration allows it.

import { get, post, put, read, remove } from '/dashboard/api.js';
import { make, plain, replace, section, spelt, sure, table } from '/dashboard/elements.js';

const PAGE = 100;
const OFF = 'Changes are switched off: auth.api_changes = true in the configuration allows them.';

const field = (label, name, attributes = {}) => make('label', {}, label,
  make('input', { name, autocomplete: 'off', spellcheck: 'false', ...attributes }));

const choice = (label, name, options) => make('label', {}, label,
  make('select', { name }, ...options.map(option => make('option', { value: option }, option))));

// Makes a change. One that the requester could not take back is made after a question.
async function changed(change) {
  try {
    return await change('');
  } catch (error) {
    if (!error.type?.endsWith(':loses-administration')) throw error;
    const question = 'After this change you could not take it back yourself. Make it nevertheless?';
    if (!await sure(question, 'Make it')) throw error;
    return change('?force=true');
  }
}

const path = name => `users/${encodeURIComponent(name)}`;

export function users(main) {
  const list = make('div');
  const off = make('p', { class: 'dim', hidden: true }, OFF);
  const said = make('p', { role: 'status', 'aria-live': 'polite', class: 'dim' }, 'Loading');
  let after = '';
  const next = make('button', { type: 'button', class: 'plain', onclick: () => load(after) }, 'Next page');
  const first = make('button', { type: 'button', class: 'plain', onclick: () => load('') }, 'First page');
  const save = async event => {
    event.preventDefault();
    const form = event.target;
    const given = Object.fromEntries(new FormData(form));
    const change = { disabled: given.state === 'shut out' };
    if (given.password) change.password = given.password;
    change.groups = given.groups.split(',').map(group => group.trim()).filter(Boolean);
    try {
      const response = await changed(force => put(`${path(given.user)}${force}`, change));
      form.reset();
      await load('', `${plain(given.user)} was ${response.status === 201 ? 'added' : 'changed'}.`);
    } catch (error) { said.textContent = error.message; }
  };
  const form = make('form', { id: 'user', onsubmit: save },
    field('User', 'user', { required: true, maxlength: 255 }),
    field('New password', 'password', { type: 'password', autocomplete: 'new-password', maxlength: 1024 }),
    field('Groups, with commas', 'groups'), choice('May log in', 'state', ['yes', 'shut out']),
    make('button', {}, 'Save'));
  main.append(make('h1', {}, 'Users'), make('section', {}, off, make('div', { class: 'bar' }, first, next), said, list),
    section('Add or change a user', make('p', { class: 'dim' },
      'Without a new password, that of a user stays. It holds at once, for connections that are open as well.'), form));

  function edit(user) {
    const { elements } = form;
    elements.user.value = user.user;
    elements.password.value = '';
    elements.groups.value = user.groups.join(', ');
    elements.state.value = user.disabled ? 'shut out' : 'yes';
    elements.password.focus();
  }

  async function drop(user) {
    if (!await sure(`Remove ${user.user}? Its connections end.`, 'Remove')) return;
    try {
      await changed(force => remove(`${path(user.user)}${force}`));
      await load('', `${plain(user.user)} was removed.`);
    } catch (error) { said.textContent = error.message; }
  }

  const actions = (user, changeable) => make('div', { class: 'actions' },
    make('button', { type: 'button', class: 'plain', disabled: !changeable, 'aria-label': `Change ${user.user}`,
      onclick: () => edit(user) }, 'Change'),
    make('button', { type: 'button', class: 'danger', disabled: !changeable, 'aria-label': `Remove ${user.user}`,
      onclick: () => drop(user) }, 'Remove'));

  async function load(from, text) {
    try {
      const page = await get(`users?limit=${PAGE}${from ? `&after=${encodeURIComponent(from)}` : ''}`);
      after = page.next;
      next.disabled = after === undefined;
      off.hidden = page.changeable;
      form.querySelector('button').disabled = !page.changeable;
      const columns = ['User', 'Groups', 'Password', 'May log in', 'Action'].map(name => ({ name }));
      replace(list, table('Users', columns, page.users.map(user => [user.user, user.groups.join(', ') || '–',
        user.password ? (user.scram ? 'yes' : 'yes, without SCRAM') : 'none', user.disabled ? 'shut out' : 'yes',
        actions(user, page.changeable)]), 'rows acts'));
      said.textContent = text ?? `${page.users.length} on this page`;
    } catch (error) { said.textContent = error.message; }
  }
  load('');
  return {};
}

// The tester: a decision of the rules in force.
function tester() {
  const answer = make('div', { role: 'status', 'aria-live': 'polite' });
  const ask = async event => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    if (!given.client) delete given.client;
    given.groups = given.groups.split(',').map(group => group.trim()).filter(Boolean);
    try {
      const decision = await post('rules/test', given);
      answer.replaceChildren(section('Decision',
        make('p', { class: decision.allowed ? 'good' : 'bad', id: 'decision' }, decision.text),
        decision.note ? make('p', { id: 'note' }, spelt(decision.note)) : undefined,
        decision.file ? make('p', { class: 'dim name' }, `${decision.file}, line ${decision.line}`) : undefined));
    } catch (error) { answer.replaceChildren(section('Decision', make('p', { class: 'bad' }, error.message))); }
  };
  const form = make('form', { id: 'tester', onsubmit: ask },
    field('Identity, or anonymous', 'identity', { required: true, value: 'anonymous' }),
    choice('Action', 'action', ['read', 'write']), field('Topic, or a filter to read', 'topic', { required: true }),
    choice('Door', 'door', ['mqtt', 'coap', 'http', 'xmpp']), field('Client identifier, if not the user', 'client'),
    field('Groups of the credential, with commas', 'groups'),
    make('button', {}, 'Test'));
  // The list of refusals leads here with the question filled in.
  const given = new URLSearchParams(location.hash.split('?')[1]);
  for (const name of ['identity', 'action', 'topic', 'door', 'client', 'groups']) {
    if (given.has(name)) form.elements[name].value = given.get(name);
  }
  if (given.has('topic')) queueMicrotask(() => form.requestSubmit());
  return make('div', {}, section('Test a rule',
    make('p', { class: 'dim' }, 'Asks the access rules, as fogmux acl test does. Nothing is published or read. ',
      'An identity need be in no file. Others are link:NAME, psk:IDENTITY and oscore:USER.'),
    form), answer);
}

// Puts the cursor at the beginning of a line.
function toLine(text, line) {
  const before = text.value.split('\n').slice(0, Math.max(0, line - 1)).join('\n').length;
  const at = line > 1 ? before + 1 : 0;
  text.focus();
  text.setSelectionRange(at, at);
}

export function rules(main) {
  const text = make('textarea', { name: 'text', rows: 22, spellcheck: 'false', autocomplete: 'off', wrap: 'off',
    'aria-label': 'Access rules', readonly: true });
  const said = make('div', { id: 'rules-said', role: 'status', 'aria-live': 'polite' }, 'Loading');
  const name = make('p', { class: 'dim name' });
  const button = make('button', { disabled: true }, 'Save');
  let tag;
  const say = (words, kind) => said.replaceChildren(make('p', { class: kind }, words));

  async function load() {
    try {
      const response = await read('rules');
      const document = await response.json();
      tag = response.headers.get('etag');
      text.value = document.text;
      text.readOnly = !document.changeable;
      button.disabled = !document.changeable;
      const none = 'There is no access file: every user may read and write all topics. Rules that are saved make one.';
      name.textContent = document.exists ? document.file : none;
      say(document.changeable ? '' : `It may not be changed here. ${document.reason}.`);
    } catch (error) { say(error.message, 'bad'); }
  }

  const mistake = ({ line, message }) => make('li', {},
    make('button', { type: 'button', class: 'plain', onclick: () => toLine(text, line) }, `Line ${line}`),
    ' ', spelt(message));

  const save = async event => {
    event.preventDefault();
    try {
      const response = await changed(force => put(`rules${force}`, { text: text.value }, { 'if-match': tag }));
      tag = response.headers.get('etag');
      await load();
      say('Saved. The rules hold now.', 'good');
    } catch (error) {
      if (error.problems) {
        said.replaceChildren(make('p', { class: 'bad' }, 'Nothing was changed. These lines have mistakes:'),
          make('ul', { class: 'mistakes' }, ...error.problems.map(mistake)));
      } else if (error.status === 412) {
        say('The file was changed meanwhile. Load it again, and make your change once more.', 'bad');
      } else {
        say(error.message, 'bad');
      }
    }
  };
  const again = make('button', { type: 'button', class: 'plain', onclick: load }, 'Load again');
  main.append(make('h1', {}, 'Rules'), make('div', { class: 'split rules' }, section('Access rules', name,
    make('form', { id: 'rules', onsubmit: save }, text, make('div', { class: 'bar' }, button, again)), said), tester()));
  load();
  return {};
}
