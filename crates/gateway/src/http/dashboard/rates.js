// Deliveries a second, by the doors of publisher and subscriber.

import { make, number, rate, replace, section, table } from '/dashboard/elements.js';

export const called = door => ({ mqtt: 'MQTT', coap: 'CoAP', http: 'HTTP', xmpp: 'XMPP' })[door] ?? door;

const of = (status, from, to) => status?.deliveries.find(pair => pair.from === from && pair.to === to);

export function rates(main) {
  const cells = make('div', { id: 'rates' });
  main.append(section('Deliveries by pair of doors', make('p', { class: 'dim' },
    'From the door of the publisher, in rows, to that of the subscriber. Of many messages each 128th is counted.'),
  cells));
  return (now, before) => {
    const seconds = before ? (now.at - before.at) / 1000 : 0;
    const doors = now.status.doors.map(({ door }) => door);
    const cell = (from, to) => {
      const pair = of(now.status, from, to);
      if (!pair) return '–';
      const fresh = pair.delivered - (of(before?.status, from, to)?.delivered ?? 0);
      const title = `${number(pair.delivered)} since the start, ${pair.mean_ms.toFixed(2)} ms on average`;
      return make('span', { title }, seconds > 0 ? rate(Math.max(0, fresh) / seconds) : number(pair.delivered));
    };
    const columns = [{ name: 'From' }, ...doors.map(door => ({ name: `to ${called(door)}`, number: true }))];
    replace(cells, table('Deliveries by pair of doors', columns,
      doors.map(from => [called(from), ...doors.map(to => cell(from, to))])));
  };
}
