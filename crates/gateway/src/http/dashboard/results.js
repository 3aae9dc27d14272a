// The results of a measurement: figures as the generator has them, plots, a document's table and a comparison.

import { get, read } from '/dashboard/api.js';
import { bytes, make, number, plain, plot, section, table } from '/dashboard/elements.js';

const PERCENTILES = [1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99, 99.9];
const REMARKS_MAX = 20;
const FAILURES_MAX = 5;
const NS_PER_US = 1000;

const digits = value => (Math.abs(value) >= 100 ? number(Math.round(value)) : Number(value.toPrecision(3)).toString());
const micro = value => (value >= 1000 ? `${digits(value / 1000)} ms` : `${digits(value)} µs`);

// The figures of a comparison, in words, and how each is written.
const FIGURES = {
  rate: ['rate', value => `${digits(value)}/s`],
  latency_p50: ['median latency', micro],
  latency_p99: ['latency, 99 %', micro],
  connect_p50: ['time to connect', micro],
  gateway_cpu: ['processor of the gateway, a message', micro],
  peak_memory: ['peak memory of the gateway', bytes],
  total_bytes: ['bytes on the wire, a message', bytes],
  handshake_bytes: ['bytes of a handshake', bytes],
  handshake_cpu: ['processor of a handshake', micro],
};
const figure = name => FIGURES[name] ?? [name.replaceAll('_', ' '), digits];
const written = (name, value) => (typeof value === 'number' ? figure(name)[1](value) : '–');

const drawn = (caption, values) => make('figure', {}, make('figcaption', {}, caption), plot(values));

// Plots of what a measurement says each second.
export function samples(all) {
  const rates = all.map(sample => Math.round(sample.per_s));
  const tails = all.map(sample => sample.latency_p99_us).filter(value => value !== undefined).map(Math.round);
  return [
    rates.length > 2 ? drawn('Operations a second, each second', rates) : undefined,
    tails.length > 2 ? drawn('Latency so far, 99 %, microseconds', tails) : undefined,
  ].filter(Boolean);
}

const title = ({ door, reader_door: to, security, qos, payload_bytes: size }) =>
  `${door}${to ? `→${to}` : ''} ${security} q${qos} ${size} B`;

// The latencies at percentiles, of all repetitions together.
function percentiles(outcomes) {
  const counts = new Map();
  for (const outcome of outcomes) {
    const histogram = outcome.delivery?.length > 0 ? outcome.delivery : outcome.answer ?? [];
    for (const [ns, count] of histogram) counts.set(ns, (counts.get(ns) ?? 0) + count);
  }
  const sorted = [...counts].sort(([one], [other]) => one - other);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  let [at, seen] = [0, 0];
  return all === 0 ? [] : PERCENTILES.map(percent => {
    while (at < sorted.length - 1 && seen + sorted[at][1] < (all * percent) / 100) { seen += sorted[at][1]; at += 1; }
    return Math.round(sorted[at][0] / NS_PER_US);
  });
}

// The plots of a report: of one experiment by its latencies, of several beside each other.
function plots(runs, changes) {
  if (runs.length === 1) {
    const [{ experiment, outcomes }] = runs;
    const curve = percentiles(outcomes);
    const tenths = outcomes.at(-1)?.per_tenth ?? [];
    return [
      curve.length > 0 ? drawn(`${title(experiment)}: latency in microseconds, from the 1st percentile to 99.9`, curve)
        : undefined,
      tenths.length > 1 ? drawn('Operations in each tenth of a second, last repetition', tenths) : undefined,
    ].filter(Boolean);
  }
  return ['rate', 'latency_p99'].filter(name => changes.some(change => change.figure === name)).map(name => {
    const found = changes.filter(change => change.figure === name && typeof change.after === 'number');
    const most = Math.max(...found.map(change => change.after), 0) || 1;
    const label = figure(name)[0];
    const rows = found.map(change => [change.experiment, make('meter', { min: 0, max: most, value: change.after,
      'aria-label': `${label} of ${plain(change.experiment)}` }), written(name, change.after)]);
    const columns = [{ name: 'Experiment' }, { name: label }, { name: 'Value', number: true }];
    return table(`Bars: ${label}`, columns, rows, 'bars');
  });
}

function figures(changes) {
  const experiments = [...new Set(changes.map(change => change.experiment))];
  const names = [...new Set(changes.map(change => change.figure))];
  const columns = [{ name: 'Experiment' }, ...names.map(name => ({ name: figure(name)[0], number: true }))];
  const of = (experiment, name) =>
    changes.find(change => change.experiment === experiment && change.figure === name)?.after;
  return table('Figures', columns,
    experiments.map(experiment => [experiment, ...names.map(name => written(name, of(experiment, name)))]));
}

const cell = ({ paper, measured, unit, because }) => {
  const printed = paper === null || paper === undefined ? '–' : `${paper}`;
  const own = typeof measured === 'number' ? `${digits(measured)} ${unit ?? ''}`.trim() : because ?? '–';
  return `${printed} | ${own}`;
};

// A document's tables, each cell with its number and ours, and what its authors conclude.
function published({ title: name, authors, year, differences, tables, claims }) {
  const known = claims.filter(claim => claim.verdict !== 'cannot-be-tested');
  return [section(`${plain(name)} (${plain(authors)}, ${year})`,
    make('p', { class: 'dim' }, 'In each cell the printed number, and the one measured here. ', plain(differences)),
    ...tables.flatMap(one => [make('h3', {}, plain(`${one.id}: ${one.title}${one.unit ? `, ${one.unit}` : ''}`)),
      table(`Table ${one.id}`, [{ name: 'Row' }, ...one.columns.map(column => ({ name: plain(column) }))],
        one.rows.map((row, index) => [row, ...one.cells[index].map(cell)]))]),
    ...(known.length > 0 ? [make('h3', {}, 'Claims'), table('Claims', ['Claim', 'Here', 'Because'].map(called =>
      ({ name: called })), known.map(claim => [claim.text, claim.verdict.replaceAll('-', ' '), claim.because]))]
      : []))];
}

// What a job measures, in fewer words than its command has.
export function brief(job) {
  const words = job.command.split(' ');
  const of = (flag, otherwise) => (words.includes(flag) ? words[words.indexOf(flag) + 1] : otherwise);
  const list = (flag, otherwise) => of(flag, otherwise).replaceAll(',', ', ');
  const link = of('--link', 'loopback') === 'loopback' ? '' : `, ${of('--link')}`;
  const times = `${of('--seconds')} s × ${of('--repeat')}${link}`;
  if (words[2] === 'matrix') {
    return `${list('--doors', 'all doors')} under ${list('--securities', 'all profiles')}, ${list('--sizes')} B, `
      + `QoS ${list('--qos')}, ${times}`;
  }
  if (words[2] === 'paper') return `${words[4]}, table ${of('--table')}${link}`;
  if (words[2] !== 'run') return job.command;
  const to = of('--to') ? `→${of('--to')}` : '';
  const rate = of('--rate') ? `, ${of('--rate')}/s` : '';
  return `${of('--door')}${to} ${of('--security')}, ${of('--operation')}, QoS ${of('--qos')}, ${of('--size')} B, `
    + `${of('--pubs')} to ${of('--subs')}${rate}, ${times}`;
}

// A job beside another one.
function comparison(job, jobs) {
  const others = jobs.filter(other => other.report && other.id !== job.id);
  if (others.length === 0) return section('Compare', make('p', {}, 'There is no other job with a report yet.'));
  const answer = make('div', { id: 'compared', role: 'status', 'aria-live': 'polite' });
  const select = make('select', { name: 'other' }, ...others.map(other =>
    make('option', { value: other.id }, `${other.id}: ${plain(brief(other))}`)));
  const ask = async event => {
    event.preventDefault();
    const other = Number(select.value);
    const [before, after] = [Math.min(other, job.id), Math.max(other, job.id)];
    try {
      const found = await get(`bench/${after}/compare/${before}`);
      const columns = ['Experiment', 'Figure', `Job ${before}`, `Job ${after}`, 'Verdict'].map(name => ({ name }));
      const rows = found.changes.map(change => [change.experiment, figure(change.figure)[0],
        written(change.figure, change.before), written(change.figure, change.after),
        change.verdict.replaceAll('_', ' ')]);
      const only = [...found.only_before, ...found.only_after];
      answer.replaceChildren(
        rows.length > 0 ? table('Comparison', columns, rows) : make('p', {}, 'No experiment is in both.'),
        only.length > 0 ? make('p', { class: 'dim' }, plain(`Only in one of them: ${only.join('; ')}`)) : '');
    } catch (error) { answer.replaceChildren(make('p', { class: 'bad' }, error.message)); }
  };
  return section('Compare', make('form', { id: 'compare', onsubmit: ask }, make('label', {}, 'With job', select),
    make('button', {}, 'Compare')), answer);
}

// What keeps the figures from being what they seem: the list in the report, such as other work of the machine.
async function remarked(place) {
  const text = await (await read(`${place}/report.md`)).text();
  // Markdown has a backslash before what would be markup.
  const plainly = line => line.slice(2).replace(/\\(.)/g, '$1');
  return text.split('\n').filter(line => line.startsWith('- ')).map(plainly).slice(0, REMARKS_MAX);
}

// Everything about a job that has a report, and whether it is complete.
export async function results(job, jobs) {
  const place = `bench/${job.id}`;
  const link = (file, text) =>
    make('a', { href: `/api/v1/${place}/${file}`, download: `bench-${job.id}-${file}` }, text);
  const files = make('p', { class: 'files' }, make('a', { href: `/api/v1/${place}/report.html`, target: '_blank',
    rel: 'noopener' }, 'The whole report'), link('report.html', 'Download as a page'),
  link('report.md', 'as Markdown'), link('report.json', 'as JSON'));
  try {
    const report = await (await read(`${place}/report.json`)).json();
    // Beside itself it has the generator's own figures.
    const { changes } = await get(`${place}/compare/${job.id}`);
    const remarks = await remarked(place);
    const runs = report.runs.filter(run => run.outcomes.length > 0);
    const why = ({ failed = [], problem = [] }) => [failed, problem].flat();
    const failures = report.runs.flatMap(run => why(run).map(text => `${title(run.experiment)}: ${text}`));
    const shown = changes.length > 0 ? figures(changes) : undefined;
    const broken = plain([...new Set(failures)].slice(0, FAILURES_MAX).join('; '));
    const found = make('div', {}, section('Results', files, ...plots(runs, changes), shown,
      ...(remarks.length > 0 ? [make('h3', {}, 'Remarks of the generator'),
        make('ul', {}, ...remarks.map(remark => make('li', { class: 'name' }, plain(remark))))] : []),
      failures.length > 0 ? make('p', { class: 'bad name' }, broken) : undefined),
    ...(report.paper ? published(report.paper) : []), comparison(job, jobs));
    return { found, complete: true };
  } catch (error) {
    return { found: section('Results', files, make('p', { class: 'bad' }, error.message)), complete: false };
  }
}
