// What single views of the dashboard show: origins and histories of topics, refusals, certificates, rates, the machine,
// and the page to try things. Each check returns the faults that it found.

import { choose, go, until } from './dashboard_page.mjs';

const DOORS = { 'from/device': 'CoAP', 'from/program': 'HTTP', 'from/person': 'XMPP' };
// How many messages wait for the link that is down.
const WAITING = `Number(document.querySelector('#links td[data-column="Waiting"]').textContent.split(', ')[0]
  .replaceAll(',', ''))`;
const MORE = 7;

// Each topic says where its value came from, and what came before.
export async function traced(page) {
  const faults = [];
  for (const [topic, door] of Object.entries(DOORS)) {
    await choose(page, topic);
    await page.run(until(`document.querySelector('#main h2')?.textContent === '${topic}'`));
    await page.run(until(`document.querySelector('#main pre').textContent === '{"celsius":21.5}'`));
    const facts = await page.run(`document.querySelector('#main .facts').textContent`);
    const cells = await page.run(until(`document.querySelector('.past tbody tr') &&
      [...document.querySelectorAll('.past tbody tr:first-child td')].map(cell => cell.textContent)`));
    if (!facts.includes(`From${door}, `)) faults.push(`the origin of ${topic} is said to be ${facts}`);
    if (cells[1] !== '{"celsius":21.5}' || cells[2] !== door) faults.push(`the history of ${topic} says ${cells}`);
  }
  return faults;
}

export async function explored(page, jsQR) {
  return [...await overseen(page), ...await refused(page), ...await tried(page, jsQR)];
}

// The overview has a row for each door, the machine, and what waits for a link; the listeners have their certificates.
async function overseen(page) {
  await go(page, 'overview');
  const rows = await page.run(`document.querySelectorAll('#rates tbody tr').length`);
  const machine = await page.run(until(`document.querySelector('#system')?.textContent`));
  const link = await page.run(until(`document.querySelector('#links tbody')?.textContent.includes('down') &&
    document.querySelector('#links tbody').textContent`));
  const before = await page.run(WAITING);
  await page.run(`(async () => {
    for (let n = 0; n < ${MORE}; n += 1) await fetch('/topics/from/queue', { method: 'POST', body: String(n) });
  })()`);
  const after = await page.run(until(`${WAITING} >= ${before + MORE} && ${WAITING}`));
  await go(page, 'listeners');
  const certificates = await page.run(`document.querySelector('#certificates').textContent`);
  return [!/away.*127\.0\.0\.1:9.*down/.test(link) && `the links are ${link}`,
    after - before !== MORE && `${before} messages wait for the link, and ${after} after ${MORE} more`,
    rows !== 4 && `${rows} rows of doors`, !/Processor.* busy/.test(machine) && `the machine is ${machine}`,
    !/Memory.* available of /.test(machine) && `the memory is ${machine}`,
    !/ of this gateway/.test(certificates) && `no authority: ${certificates}`,
    !/\d+ days left/.test(certificates) && `no end: ${certificates}`,
    /key/.test(certificates) && `a key: ${certificates}`];
}

// A refused login is named, and a refused action leads to the tester, which says the same.
async function refused(page) {
  await go(page, 'clients');
  const said = await page.run(until(`document.querySelector('#refusals tbody')?.textContent`));
  const link = `[...document.querySelectorAll('#refusals a')].find(link => link.hash.includes('%24SYS%2Fx'))`;
  await page.run(until(link));
  await page.run(`${link}.click()`);
  const decision = await page.run(until(`document.querySelector('#decision')?.textContent`));
  const topic = await page.run(`document.querySelector('#tester [name=topic]').value`);
  return [!said.includes('mallory') && `the refusals are ${said}`, said.includes('guess') && 'a password is shown',
    topic !== '$SYS/x' && `the tester is asked about ${topic}`,
    !decision.startsWith('refused') && `it says ${decision}`];
}

// Follows by both ways what the form publishes, and reads the code as a phone would.
async function tried(page, jsQR) {
  const faults = [];
  await go(page, 'try');
  for (const [index, way] of ['server-sent events', 'WebSocket'].entries()) {
    await page.run(`(() => {
      const form = document.querySelector('#follow');
      Object.assign(form.elements.filter, { value: 'tried/#' });
      Object.assign(form.elements.way, { value: ${JSON.stringify(way)} });
      form.requestSubmit();
    })()`);
    const states = `[...document.querySelectorAll('#main [role=status]')]`;
    await page.run(until(`${states}.some(one => one.textContent === 'Following.')`));
    await page.run(`(() => {
      const form = document.querySelector('#publish');
      Object.assign(form.elements.topic, { value: 'tried/topic' });
      Object.assign(form.elements.payload, { value: 'value ${index}' });
      Object.assign(form.elements.retain, { value: 'off' });
      form.requestSubmit();
    })()`);
    await page.run(until(`document.querySelector('#followed tbody')?.textContent.includes('value ${index}')`));
  }
  const commands = await page.run(`[...document.querySelectorAll('#main pre')].map(pre => pre.textContent).join()`);
  for (const expected of ['mosquitto_sub', 'coap-client', 'curl -N', 'fogmux sub', '--cafile ca.pem', 'https://']) {
    if (!commands.includes(expected)) faults.push(`no ${expected}: ${commands}`);
  }
  const { pixels, side, text } = await page.run(`new Promise((done, fail) => {
    const svg = document.querySelector('svg.qr');
    const copy = svg.cloneNode(true);
    const side = svg.viewBox.baseVal.width * 4;
    copy.setAttribute('width', side);
    copy.setAttribute('height', side);
    const image = new Image(side, side);
    image.onerror = fail;
    image.onload = () => {
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [side, side];
      const context = canvas.getContext('2d');
      context.drawImage(image, 0, 0);
      const pixels = [...context.getImageData(0, 0, side, side).data];
      done({ pixels, side, text: svg.getAttribute('aria-label').replace('QR code of ', '') });
    };
    image.src = 'data:image/svg+xml,' + encodeURIComponent(new XMLSerializer().serializeToString(copy));
  })`);
  const read = jsQR(new Uint8ClampedArray(pixels), side, side)?.data;
  if (read !== text || !/^https?:/.test(text)) faults.push(`the code of ${text} is read as ${read}`);
  return faults;
}
