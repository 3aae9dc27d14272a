// Measurements: what is to be measured, the queue of jobs, and the one that is chosen.

import { get, post, remove } from '/dashboard/api.js';
import { make, plain, replace, section, spelt, sure, table, time } from '/dashboard/elements.js';
import { brief, results, samples } from '/dashboard/results.js';

const MINUTE = 60;

const field = (label, name, attributes = {}) => make('label', {}, label,
  make('input', { name, autocomplete: 'off', inputmode: 'numeric', ...attributes }));

const number = (label, name, value, most, least = 1) =>
  field(label, name, { type: 'number', min: least, max: most, value, required: value !== '' });

const options = values => values.map(value => (typeof value === 'string' ? make('option', { value }, value)
  : make('option', { value: value.value, selected: value.selected }, value.text)));

const choice = (label, name, values, attributes = {}) => make('label', {}, label,
  make('select', { name, ...attributes }, ...options(values)));

const whole = text => (text === '' || text === undefined ? undefined : Number(text));

// The fields of each kind of measurement, and the request that they make.
function kinds(choices) {
  const { doors, most } = choices;
  const names = doors.map(door => door.door);
  const door = choice('Door of publishers', 'door', names);
  const to = choice('Door of subscribers', 'to', [{ value: '', text: 'the same' }, ...names]);
  const security = choice('Security profile', 'security', []);
  const qos = choice('QoS', 'qos', []);
  const chosen = () => doors.find(one => one.door === door.querySelector('select').value);
  // A door has its own profiles and levels.
  const follow = () => {
    const { securities, qos: levels } = chosen();
    const keep = (label, values, wanted) => {
      const select = label.querySelector('select');
      const before = select.value || wanted;
      select.replaceChildren(...options(values));
      if (values.includes(before)) select.value = before;
    };
    keep(security, securities, 'none');
    keep(qos, levels.map(String), '1');
  };
  door.addEventListener('change', follow);
  follow();
  const link = () => choice('Link', 'link', choices.links);
  const times = () => [number('Seconds each', 'seconds', 2, most.seconds),
    number('Repetitions', 'repeat', 3, most.repeat)];
  const profiles = [...new Set(doors.flatMap(one => one.securities))];
  const many = { multiple: true, size: 6 };
  const paper = choice('Document', 'name', choices.papers.map(one => ({ value: one.name, text: one.title })));
  const part = choice('Table', 'table', []);
  const tables = () => {
    const { tables: all } = choices.papers.find(one => one.name === paper.querySelector('select').value);
    part.querySelector('select').replaceChildren(...options(all.map(one =>
      ({ value: one.table, text: `${one.table}: ${one.title}` }))));
  };
  paper.addEventListener('change', tables);
  tables();
  return {
    run: {
      name: 'One experiment',
      fields: [door, to, security, choice('Operation', 'operation', choices.operations), qos,
        number('Payload, bytes', 'size', 64, most.size), number('Publishers', 'pubs', 1, most.clients),
        number('Subscribers', 'subs', 1, most.clients, 0),
        number('Operations a second, if limited', 'rate', '', most.rate), link(), ...times()],
      request: given => ({
        door: given.get('door'), to: given.get('to') || undefined, security: given.get('security'),
        operation: given.get('operation'), qos: whole(given.get('qos')), size: whole(given.get('size')),
        pubs: whole(given.get('pubs')), subs: whole(given.get('subs')), rate: whole(given.get('rate')),
        link: given.get('link'), seconds: whole(given.get('seconds')), repeat: whole(given.get('repeat')),
      }),
    },
    matrix: {
      name: 'Doors under profiles',
      fields: [choice('Doors; all if none is chosen', 'doors', names, many),
        choice('Profiles; all if none is chosen', 'securities', profiles, many),
        choice('QoS', 'qos', ['0', { value: '1', text: '1', selected: true }, '2'], { multiple: true, size: 3 }),
        field('Payloads, bytes, with commas', 'sizes', { value: '64', required: true, inputmode: 'text' }), link(),
        ...times()],
      request: given => ({
        doors: given.getAll('doors'), securities: given.getAll('securities'), qos: given.getAll('qos').map(Number),
        sizes: given.get('sizes').split(',').map(size => Number(size.trim())), link: given.get('link'),
        seconds: whole(given.get('seconds')), repeat: whole(given.get('repeat')),
      }),
    },
    paper: {
      name: 'A table of a published document',
      fields: [paper, part, choice('Link', 'link', [{ value: '', text: "the document's" }, ...choices.links])],
      request: given => ({ name: given.get('name'), table: given.get('table'), link: given.get('link') || undefined }),
    },
  };
}

// The form: one kind of measurement at a time.
function wanted(choices, submit) {
  const all = kinds(choices);
  const fields = make('div', { class: 'fields' });
  const kind = choice('Measurement', 'kind', Object.entries(all).map(([value, { name }]) => ({ value, text: name })));
  const select = kind.querySelector('select');
  const show = () => fields.replaceChildren(...all[select.value].fields);
  select.addEventListener('change', show);
  show();
  const send = event => {
    event.preventDefault();
    const given = new FormData(event.target);
    submit({ [select.value]: all[select.value].request(given), anyway: given.get('anyway') === 'on' });
  };
  const { most } = choices;
  return section('Measure',
    make('p', { class: 'dim' }, 'The traffic generator and a gateway of its own run beside this gateway, on the ',
      'loopback interface unless a link is chosen: this measures this hardware, and not the clients of this gateway. ',
      `A job has ${most.repetitions} repetitions and ${most.job_seconds / MINUTE} minutes at most. Links other than `,
      'loopback need a gateway that runs as root, those of documents too.'),
    make('form', { id: 'bench', onsubmit: send }, kind, fields,
      make('label', { class: 'check' }, make('input', { type: 'checkbox', name: 'anyway' }),
        'also while this gateway is at work'),
      make('button', {}, 'Submit')));
}

const hasEnded = job => job.state === 'done' || job.state === 'failed';

const when = job => time(job.ended ?? job.started ?? job.submitted);

function state(job) {
  const kind = { done: 'good', failed: 'bad' }[job.state];
  const words = job.state === 'done' && job.reason ? 'done, with a remark' : job.state;
  return make('span', { class: kind }, words);
}

export function bench(main) {
  const form = make('div');
  const list = make('div');
  const detail = make('div', { id: 'job' });
  const said = make('p', { role: 'status', 'aria-live': 'polite', class: 'dim' }, 'Loading');
  const bounds = make('p', { class: 'dim' });
  let [chosen, shown, drawn, jobs, left, tries] = [undefined, '', '', [], false, 0];
  main.append(make('h1', {}, 'Bench'), form, section('Jobs', bounds, said, list), detail);

  async function submit(request) {
    said.textContent = 'Submitting';
    try {
      const job = await post('bench', request);
      chosen = job.id;
      await load(`Job ${job.id} waits.`);
    } catch (error) { said.textContent = error.message; }
  }

  async function drop(job) {
    const ended = hasEnded(job);
    const question = ended ? `Remove job ${job.id} and its results?` : `Cancel job ${job.id}?`;
    if (!await sure(question, ended ? 'Remove' : 'Cancel the job')) return;
    try {
      await remove(`bench/${job.id}`);
      if (ended && chosen === job.id) chosen = undefined;
      await load(ended ? `Job ${job.id} was removed.` : `Job ${job.id} was cancelled.`);
    } catch (error) { said.textContent = error.message; }
  }

  const pick = job => { [chosen, shown, tries] = [job.id, '', 0]; load(`Job ${job.id} is shown below.`); };

  const actions = job => {
    const word = hasEnded(job) ? 'Remove' : 'Cancel';
    return make('div', { class: 'actions' },
      make('button', { type: 'button', class: 'plain', 'aria-label': `Show job ${job.id}`, onclick: () => pick(job) },
        'Show'),
      make('button', { type: 'button', class: 'danger', 'aria-label': `${word} job ${job.id}`,
        onclick: () => drop(job) }, word));
  };

  // Draws the list again if it is another one: a button that somebody is about to use stays in its place.
  function draw() {
    const now = JSON.stringify([jobs.map(job => [job.id, job.state, job.reason]), chosen]);
    if (now === drawn) return;
    drawn = now;
    const columns = ['Job', 'State', 'Measured', 'By', 'When', 'Action'].map(name => ({ name }));
    const rows = jobs.map(job => [`${job.id}`, state(job), brief(job), job.by, when(job), actions(job)]);
    replace(list, jobs.length > 0 ? table('Jobs', columns, rows, 'rows acts') : make('p', {}, 'There are none yet.'));
  }

  const facts = job => make('dl', { class: 'facts' }, make('dt', {}, 'State'), make('dd', {}, state(job)),
    make('dt', {}, 'Command'), make('dd', {}, make('code', {}, spelt(job.command))),
    make('dt', {}, 'Submitted'), make('dd', {}, `${time(job.submitted)} by `, spelt(job.by)),
    ...(job.reason ? [make('dt', {}, 'Remark'), make('dd', { class: 'name' }, spelt(job.reason))] : []));

  function moving(job) {
    const { ended, failed, experiment } = job.progress;
    const words = `${ended} of ${job.repetitions} repetitions${failed > 0 ? `, ${failed} failed` : ''}`;
    return make('div', {}, make('progress', { max: Math.max(1, job.repetitions), value: ended,
      'aria-label': `Progress of job ${job.id}` }), make('p', { class: 'dim' },
      experiment ? `${words}; last: ${plain(experiment)}` : words));
  }

  // Shows the chosen job. One that has ended does not change any more.
  async function look() {
    if (chosen === undefined) { detail.replaceChildren(); shown = ''; return; }
    const listed = jobs.find(job => job.id === chosen);
    if (hasEnded(listed) && shown === `${listed.id} ${listed.state}`) return;
    const job = await get(`bench/${chosen}`);
    if (left || job.id !== chosen) return;
    const ended = hasEnded(job);
    shown = `${job.id} ${job.state}`;
    const box = section(`Job ${job.id}`, facts(job));
    if (!ended) box.append(moving(job));
    box.append(...samples(job.progress.samples));
    detail.replaceChildren(box);
    if (!ended || !job.report) return;
    const { found, complete } = await results(job, jobs);
    // Another job may have been chosen meanwhile.
    if (left || chosen !== job.id || !box.isConnected) return;
    detail.replaceChildren(box, found);
    // What could not be had is asked for again, a few times.
    if (!complete && tries < 3) [shown, tries] = ['', tries + 1];
  }

  async function load(text) {
    try {
      const document = await get('bench');
      if (left) return;
      jobs = document.jobs;
      if (!jobs.some(job => job.id === chosen)) chosen = undefined;
      const running = jobs.find(job => job.state === 'running');
      if (chosen === undefined && running) chosen = running.id;
      bounds.textContent = `One job is measured at a time, ${document.waiting_max} may wait. The last `
        + `${document.kept_max} are kept, and ${Math.round(document.kept_bytes_max / 1048576)} MiB of their files.`;
      draw();
      if (text) said.textContent = text;
      else if (said.textContent === 'Loading') said.textContent = '';
      await look();
    } catch (error) { said.textContent = error.message; }
  }

  async function open() {
    try {
      const document = await get('bench');
      if (!document.available) {
        said.textContent = `This gateway cannot measure: ${document.reason}.`;
        return;
      }
      form.replaceChildren(wanted(await get('bench/choices'), submit));
      await load();
      ready = true;
    } catch (error) { said.textContent = error.message; }
  }

  let ready = false;
  let loading = false;
  // With each status of the gateway, as long as the page is seen.
  async function status() {
    if (!ready || loading) return;
    loading = true;
    await load();
    loading = false;
  }
  open();
  return { status, leave: () => { left = true; } };
}
