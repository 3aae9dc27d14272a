// Keys, as the browser gets them from a keyboard, and what has the focus.

const CODES = { Tab: 9, Enter: 13, Escape: 27, ' ': 32, ArrowUp: 38, ArrowDown: 40 };
const SHIFT = 8;
// More than any view has to pass.
const STEPS_MAX = 120;

export async function press(page, key, { shift = false } = {}) {
  const text = key === 'Enter' ? '\r' : key.length === 1 ? key : undefined;
  const event = { key, windowsVirtualKeyCode: CODES[key] ?? key.toUpperCase().charCodeAt(0),
    modifiers: shift ? SHIFT : 0 };
  await page.call('Input.dispatchKeyEvent', { type: text ? 'keyDown' : 'rawKeyDown', text, ...event });
  await page.call('Input.dispatchKeyEvent', { type: 'keyUp', ...event });
}

export async function type(page, text) {
  for (const character of text) await press(page, character);
}

// The name of an element, as the page's own labels say it.
const NAME = `(element => !element || element === document.body ? '' : element.getAttribute('aria-label')
  || element.title || element.name || element.textContent.trim().slice(0, 60) || element.id)`;

export const focused = page => page.run(`${NAME}(document.activeElement)`);

// Steps with Tab, or back with Shift and Tab, until an element of this name has the focus.
export async function stepTo(page, name, { shift = false } = {}) {
  const passed = [];
  for (let step = 0; step < STEPS_MAX; step += 1) {
    await press(page, 'Tab', { shift });
    const at = await focused(page);
    if (at === name) return;
    passed.push(at);
  }
  throw new Error(`Tab does not come to ${name}: ${[...new Set(passed)].join(', ')}`);
}

// Notes in the page each element that gets the focus, with its outline and the contrast of that to what is around it
// (WCAG 2.2, 1.4.11 and 2.4.7).
export const note = page => page.run(`(() => {
  const numbers = colour => colour.match(/[0-9.]+/g).map(Number);
  const light = colour => {
    const [r, g, b] = numbers(colour).map(value => value / 255)
      .map(value => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const around = element => {
    for (let at = element.parentElement; at; at = at.parentElement) {
      const { backgroundColor: colour } = getComputedStyle(at);
      if (numbers(colour)[3] !== 0) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  window.passed = [];
  if (window.isNoted) return;
  window.isNoted = true;
  document.addEventListener('focusin', ({ target }) => {
    const style = getComputedStyle(target);
    const [one, other] = [light(style.outlineColor), light(around(target))].sort((a, b) => b - a);
    const { width, height, right, bottom } = target.getBoundingClientRect();
    window.passed.push({ name: ${NAME}(target), outline: style.outlineStyle, pixels: parseFloat(style.outlineWidth),
      contrast: (one + 0.05) / (other + 0.05), isSeen: width > 0 && height > 0 && right > 0 && bottom > 0 });
  });
})()`);

// The names of what a person can act on.
const ACTIVE = `[...document.querySelectorAll('a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter(element => !element.disabled && element.checkVisibility()).map(${NAME})`;

// Goes once through the page with Tab: whether everything is reached, seen and left again.
export async function walked(page, view) {
  await note(page);
  const wanted = await page.run(ACTIVE);
  for (let step = 0; step < wanted.length + 3; step += 1) await press(page, 'Tab');
  const passed = await page.run('window.passed');
  const names = new Set(passed.map(one => one.name));
  const missed = [...new Set(wanted)].filter(name => !names.has(name));
  const pale = passed.filter(one => one.outline === 'none' || one.pixels < 1 || one.contrast < 3 || !one.isSeen);
  return [missed.length > 0 && `Tab passes by ${missed.join(', ')} of ${view}, and comes to ${[...names].join(', ')}`,
    ...pale.map(one => `the focus is not seen in ${view}: ${JSON.stringify(one)}`)];
}
