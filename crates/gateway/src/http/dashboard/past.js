// The last values of topics since the page was opened: numbers and texts, as a plot and as a list with their times.

import { make, plot, table } from '/dashboard/elements.js';
import { called } from '/dashboard/rates.js';

// Values that are kept of the topic that is shown, and of each other topic; characters of each value.
const SHOWN_MAX = 200;
const KEPT_MAX = 25;
const CHARS_MAX = 120;

const numeric = entry => {
  if (entry.encoding === 'base64' || entry.payload.length > 40 || entry.payload.trim() === '') return undefined;
  const value = Number(entry.payload);
  return Number.isFinite(value) ? value : undefined;
};

const shortened = entry => {
  if (entry.encoding === 'base64') return 'binary';
  return entry.payload.length > CHARS_MAX ? `${entry.payload.slice(0, CHARS_MAX)}…` : entry.payload;
};

// Adds a value to those of a topic. The topic that is shown keeps more of them.
export const noted = (past, entry, isShown) => [...(past ?? []),
  { time: entry.time, text: shortened(entry), number: numeric(entry), from: entry.origin?.door }]
  .slice(isShown ? -SHOWN_MAX : -KEPT_MAX);

const clock = text => {
  const date = new Date(text);
  const parts = { hour: 'numeric', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 };
  return Number.isNaN(date.getTime()) ? '' : date.toLocaleTimeString(undefined, parts);
};

// The plot of the numbers, if there are two, and the list, the newest first.
export function drawn(past) {
  const numbers = past.map(one => one.number).filter(value => value !== undefined);
  const columns = ['Time', 'Value', 'Door'].map(name => ({ name }));
  return [make('h2', {}, 'History'), ...(numbers.length > 1 ? [plot(numbers)] : []),
    make('div', { class: 'past' }, table('Last values, the newest first', columns,
      [...past].reverse().map(one => [clock(one.time), one.text, one.from ? called(one.from) : '–'])))];
}
