// Elements and texts. Whatever a peer has chosen becomes text here and never markup, and characters in it that nobody
// sees are spelt out: with them one name looks like another.

// Makes an element: attributes and listeners by name, then children; a string is a text.
export function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value);
    else if (value === true) element.setAttribute(key, '');
    else if (value !== false && value !== undefined) {
      element.setAttribute(key, READ.has(key) ? plain(value) : String(value));
    }
  }
  element.append(...children.filter(child => child !== undefined && child !== null).map(node));
  return element;
}

// Attributes that people read.
const READ = new Set(['aria-label', 'title']);

// What is not seen, or changes how others are: control and format characters, separators of lines and paragraphs, what
// a font may leave out, and halves of a pair. In texts of several lines breaks are what they are.
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;
const UNSEEN_IN_LINES = /(?![\n\t])[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\p{Default_Ignorable_Code_Point}]/gu;

const code = char => `\\u{${char.codePointAt(0).toString(16)}}`;

// A text for what takes no elements, such as an attribute or a question.
export const plain = text => String(text).replace(UNSEEN, code);

// A name: what is spelt out is told apart from a name that has these very letters.
export function spelt(text, unseen = UNSEEN) {
  const parts = new DocumentFragment();
  let end = 0;
  for (const { 0: char, index } of text.matchAll(unseen)) {
    parts.append(text.slice(end, index), make('span', { class: 'unseen' }, code(char)));
    end = index + char.length;
  }
  parts.append(text.slice(end));
  return parts;
}

const node = child => (child instanceof Node ? child : spelt(String(child), UNSEEN_IN_LINES));

// A table with a caption that is read aloud; rows are arrays of texts or elements. On a phone a table of the kind
// `rows` has a line for each cell, with the name of its column before it; the roles are those that it loses thereby.
export function table(label, columns, rows, kind) {
  const head = columns.map(({ name, number }) =>
    make('th', { scope: 'col', role: 'columnheader', class: number ? 'number' : undefined }, name));
  const body = rows.map(row => make('tr', { role: 'row' }, ...row.map((cell, index) =>
    make('td', { role: 'cell', 'data-column': columns[index].name, class: columns[index].number ? 'number' : 'name' },
      typeof cell === 'string' ? spelt(cell) : cell))));
  return make('div', { class: 'scroll', tabindex: '0', role: 'region', 'aria-label': label },
    make('table', { 'aria-label': label, role: 'table', class: kind },
      make('thead', { role: 'rowgroup' }, make('tr', { role: 'row' }, ...head)),
      make('tbody', { role: 'rowgroup' }, ...body)));
}

// Replaces what a list shows. The focus stays at what has the same name, or goes to the list where that has gone, and
// the table stays as far to the side as it was.
export function replace(list, ...children) {
  const focused = list.contains(document.activeElement);
  const name = focused && document.activeElement.getAttribute('aria-label');
  const aside = list.querySelector('.scroll')?.scrollLeft;
  list.replaceChildren(...children);
  const region = list.querySelector('.scroll');
  if (region) region.scrollLeft = aside ?? 0;
  if (focused) (list.querySelector(`[aria-label="${CSS.escape(name ?? '')}"]`) ?? region)?.focus();
}

// Asks before something is done that cannot be taken back. The focus begins at the way out, Escape is another one, and
// the browser returns it to where it was.
export function sure(question, word) {
  return new Promise(done => {
    const close = answer => () => { done(answer); box.close(); };
    const box = make('dialog', { 'aria-labelledby': 'question', onclose: () => { done(false); box.remove(); } },
      make('p', { id: 'question' }, plain(question)), make('div', { class: 'bar' },
        make('button', { type: 'button', class: 'plain', autofocus: true, onclick: close(false) }, 'Do nothing'),
        make('button', { type: 'button', class: 'danger', onclick: close(true) }, word)));
    document.body.append(box);
    box.showModal();
  });
}

export const section = (title, ...children) => make('section', {}, make('h2', {}, title), ...children);

const UNITS = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];

export function bytes(count) {
  let unit = 0;
  let value = count ?? 0;
  while (value >= 1024 && unit < UNITS.length - 1) { value /= 1024; unit += 1; }
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${UNITS[unit]}`;
}

export const number = value => (value ?? 0).toLocaleString('en');

export const rate = value => `${value >= 100 ? number(Math.round(value)) : value.toFixed(1)}/s`;

export function duration(seconds) {
  const days = Math.floor(seconds / 86400);
  const [hours, minutes] = [Math.floor(seconds / 3600) % 24, Math.floor(seconds / 60) % 60];
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${seconds % 60} s` : `${seconds} s`;
}

export const time = text => {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleString();
};

// A line of numbers, the oldest first.
export function plot(values) {
  const SVG = 'http://www.w3.org/2000/svg';
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const span = high - low || 1;
  const step = values.length > 1 ? 100 / (values.length - 1) : 0;
  const y = value => (96 - ((value - low) / span) * 92).toFixed(2);
  const points = values.map((value, index) => `${(index * step).toFixed(2)},${y(value)}`);
  const svg = document.createElementNS(SVG, 'svg');
  const draw = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    svg.append(element);
  };
  Object.entries({ viewBox: '0 0 100 100', preserveAspectRatio: 'none', class: 'plot', role: 'img',
    'aria-label': `${values.length} values from ${low} to ${high}, the last is ${values.at(-1)}` })
    .forEach(([key, value]) => svg.setAttribute(key, value));
  [4, 50, 96].forEach(at => draw('line', { x1: 0, x2: 100, y1: at, y2: at }));
  draw('path', { d: `M${points.join('L')}` });
  const scale = make('p', { class: 'plot-scale' }, make('span', {}, `lowest ${low}`),
    make('span', {}, `${values.length} values`), make('span', {}, `highest ${high}`));
  return make('div', {}, svg, scale);
}
