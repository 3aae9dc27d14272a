// The machine below the gateway: processor, memory, temperature, power supply, and the disk with its wear.

import { get } from '/dashboard/api.js';
import { bytes, make, section } from '/dashboard/elements.js';

const fact = (name, text, kind) => [make('dt', {}, name), make('dd', { class: kind }, text)];

const percent = share => `${(100 * Math.min(1, Math.max(0, share))).toFixed(0)} %`;

function processor(now, before) {
  const { count, load } = now.system.processor;
  const [busy, total] = ['busy_ticks', 'total_ticks'].map(name =>
    now.system.processor[name] - (before?.system.processor?.[name] ?? 0));
  const used = before?.system.gateway_cpu_seconds === undefined ? undefined
    : (now.system.gateway_cpu_seconds - before.system.gateway_cpu_seconds) / ((now.at - before.at) / 1000);
  return [`${total > 0 ? percent(busy / total) : '–'} of ${count} busy`, load === undefined ? '' : `load ${load}`,
    used === undefined ? '' : `gateway ${percent(used)} of one`].filter(Boolean).join(', ');
}

function power({ now, before }) {
  if (now.length > 0) return fact('Power', `now: ${now.join('; ')}`, 'bad');
  if (before.length > 0) return fact('Power', `since the machine started: ${before.join('; ')}`, 'warn');
  return fact('Power', 'voltage and frequency are right', 'good');
}

function disk(of) {
  const scarce = of.free_bytes < 64 << 20;
  const room = `${bytes(of.free_bytes)} free of ${bytes(of.total_bytes)}`;
  const facts = fact('Disk', `${room}${of.read_only ? ', read-only' : ''}`,
    scarce || of.read_only ? 'bad' : undefined);
  const wear = [of.life_used_percent === undefined ? '' : `at most ${of.life_used_percent} % of its life used`,
    of.written_bytes_a_day === undefined ? '' : `${bytes(of.written_bytes_a_day)} written a day`,
    of.errors ? `${of.errors} errors of the file system` : ''].filter(Boolean);
  if (wear.length > 0) {
    const worn = of.life_used_percent >= 100 || of.errors > 0;
    facts.push(...fact('Wear', `${of.device}: ${wear.join(', ')}`,
      worn ? 'bad' : of.life_used_percent >= 80 ? 'warn' : undefined));
  }
  return facts;
}

export function system(main) {
  const facts = make('dl', { class: 'facts', id: 'system' });
  main.append(section('Machine', facts));
  let [before, asked] = [undefined, false];
  return async () => {
    if (asked) return;
    asked = true;
    try {
      const now = { system: await get('system'), at: performance.now() };
      const s = now.system;
      const hot = s.temperature_celsius > 80;
      facts.replaceChildren(
        ...(s.model ? fact('Board', s.model) : []),
        ...(s.processor ? fact('Processor', processor(now, before)) : []),
        ...(s.memory ? fact('Memory', `${bytes(s.memory.available_bytes)} available of ${bytes(s.memory.total_bytes)}`,
          s.memory.available_bytes < s.memory.total_bytes / 20 ? 'bad' : undefined) : []),
        ...fact('Temperature', s.temperature_celsius === undefined ? 'the machine does not say'
          : `${s.temperature_celsius.toFixed(1)} °C`, hot ? 'bad' : undefined),
        ...(s.throttling ? power(s.throttling) : []),
        ...(s.disk ? disk(s.disk) : []));
      before = now;
    } catch { /* The state above says that there is no connection. */ }
    asked = false;
  };
}
