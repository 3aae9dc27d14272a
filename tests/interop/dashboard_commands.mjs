// The commands that `Try it` prints for each listener. The other side runs them as a person would, and the page sees
// what they do.
import { choose, go, until } from './dashboard_page.mjs';

// `coap-client` of the system has no TLS.
const KINDS = { mqtt: 'MQTT', mqtts: 'MQTT', http: 'HTTP', https: 'HTTP', coap: 'CoAP', coap_tcp: 'CoAP', xmpp: 'XMPP',
  xmpps: 'XMPP' };

// Has the commands of these listeners run, with a topic for each, and follows what they publish.
export async function typed(page, ask, listeners = Object.keys(KINDS)) {
  const faults = [];
  await go(page, 'try');
  const topics = listeners.map(listener => [listener, `typed/${listener}`]);
  const commands = [];
  for (const [listener, topic] of topics) {
    const block = `document.querySelector('pre[aria-label^="Commands for ${listener} at "]')`;
    await page.run(`(() => {
      const input = document.querySelector('#publish [name=topic]');
      input.value = ${JSON.stringify(topic)};
      input.dispatchEvent(new Event('input', { bubbles: true }));
    })()`);
    commands.push((await page.run(`${block}.textContent`)).split('\n'));
  }
  await page.run(`(() => {
    const form = document.querySelector('#follow');
    form.elements.filter.value = 'typed/#';
    form.requestSubmit();
  })()`);
  await page.run(until(`document.querySelector('#follow ~ [role=status]').textContent === 'Following.'`));
  faults.push(...await ask('run', commands));
  const rows = `[...document.querySelectorAll('#followed tbody tr')].map(row => row.cells[1].textContent + ' '
    + row.cells[2].textContent)`;
  for (const [, topic] of topics) await page.run(until(`${rows}.includes('${topic} 21.5')`));
  await go(page, 'topics');
  for (const [listener, topic] of topics) {
    await choose(page, topic);
    const facts = await page.run(until(`document.querySelector('#main h2')?.textContent === '${topic}' &&
      document.querySelector('#main .facts').textContent`));
    if (!facts.includes(`From${KINDS[listener]}, `)) faults.push(`what came by ${listener} has ${facts}`);
  }
  return faults;
}
