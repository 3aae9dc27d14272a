// Pictures of the dashboard for README.md and docs/operating/dashboard.md.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { resulted } from './dashboard_bench.mjs';
import { choose, go, picture, until } from './dashboard_page.mjs';

// The overview, as long as nobody was disconnected, and the others, once there are results of measurements: a view, its
// size, and what is done in it before.
export const OVERVIEW = [{ name: 'overview', view: 'overview', scheme: 'light', width: 1280, height: 720 }];
export const OTHERS = [
  { name: 'topics', view: 'topics', scheme: 'dark', width: 1280, height: 830, prepared: plotted },
  { name: 'phone', view: 'clients', scheme: 'light', width: 360, height: 720, isPhone: true },
  { name: 'bench', view: 'bench', scheme: 'light', width: 1280, height: 860, prepared: scrolled },
];

export async function drawn(page, place, pictures) {
  mkdirSync(place, { recursive: true });
  for (const { name, view, scheme, width, height, isPhone = false, prepared } of pictures) {
    await page.call('Emulation.setDeviceMetricsOverride', { width, height, deviceScaleFactor: 1, mobile: isPhone });
    await page.call('Emulation.setEmulatedMedia', { features: [{ name: 'prefers-color-scheme', value: scheme }] });
    await go(page, view);
    await prepared?.(page);
    writeFileSync(join(place, `dashboard-${name}.png`), await picture(page));
  }
  await page.call('Emulation.clearDeviceMetricsOverride');
  await page.call('Emulation.setEmulatedMedia', { features: [] });
}

// A topic with a history, among the topics of a house.
async function plotted(page) {
  await page.run(`(() => {
    document.querySelector('[name=filter]').value = 'room/#';
    document.querySelector('#main form').requestSubmit();
  })()`);
  await choose(page, 'room/temperature');
  await page.run(`(async () => {
    for (let n = 0; n < 60; n += 1) {
      const body = (21.5 + 1.5 * Math.sin(n / 9) + 0.4 * Math.sin(n / 2.3)).toFixed(1);
      await fetch('/topics/room/temperature', { method: 'PUT', body, headers: { 'content-type': 'text/plain' } });
    }
  })()`);
  await page.run(until(`document.querySelector('#main svg.plot')?.getAttribute('aria-label').startsWith('61 ')`));
}

// The results of a measurement.
async function scrolled(page) {
  await resulted(page);
  await page.run(`document.querySelector('#job').scrollIntoView()`);
}
