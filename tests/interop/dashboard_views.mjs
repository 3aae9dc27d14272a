// What single views of the dashboard show: origins and histories of topics, refusals, certificates, rates, the machine,
// and the page to try things. Each check returns the faults that it found.

// The topic `from/device` that is chosen says where its value came from, and what came before.
export async function traced(page, until) {
  const facts = await page.run(until(`document.querySelector('#main .facts')?.textContent`));
  const list = await page.run(until(`document.querySelector('.past tbody')?.textContent`));
  return [!/FromCoAP, /.test(facts) && `the origin is said to be ${facts}`,
    !list.includes('{"celsius":21.5}') && `the history says ${list}`];
}

export async function explored(page, tools) {
  return [...await overseen(page, tools), ...await refused(page, tools), ...await tried(page, tools)];
}

// The overview has a row for each door, and the machine; the listeners have their certificates.
async function overseen(page, { go, until, READY }) {
  await go(page, 'overview', READY.overview);
  const rows = await page.run(`document.querySelectorAll('#rates tbody tr').length`);
  const machine = await page.run(until(`document.querySelector('#system')?.textContent`));
  const link = await page.run(until(`document.querySelector('#links tbody')?.textContent.includes('down') &&
    document.querySelector('#links tbody').textContent`));
  await go(page, 'listeners', READY.listeners);
  const certificates = await page.run(`document.querySelector('#certificates').textContent`);
  return [!/away.*127\.0\.0\.1:9.*down/.test(link) && `the links are ${link}`, rows !== 4 && `${rows} rows of doors`, !/Processor.* busy/.test(machine) && `the machine is ${machine}`,
    !/Memory.* available of /.test(machine) && `the memory is ${machine}`,
    !/ of this gateway/.test(certificates) && `no authority: ${certificates}`,
    !/\d+ days left/.test(certificates) && `no end: ${certificates}`,
    /key/.test(certificates) && `a key: ${certificates}`];
}

// A refused login is named, and a refused action leads to the tester, which says the same.
async function refused(page, { go, until, READY }) {
  await go(page, 'clients', READY.clients);
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
async function tried(page, { go, until, READY, jsQR }) {
  const faults = [];
  await go(page, 'try', READY.try);
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
