// QR codes (ISO/IEC 18004): a text in byte mode with error correction level M, versions 1 to 20.

// Codewords of error correction in a block, and blocks, of each version (table 9).
const CORRECTION = [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26];
const BLOCKS = [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16];
const VERSIONS = BLOCKS.length;

// Modules that are no function pattern, in codewords.
function codewords(version) {
  let modules = (16 * version + 128) * version + 64;
  if (version >= 2) {
    const count = Math.floor(version / 7) + 2;
    modules -= (25 * count - 10) * count - 55;
    if (version >= 7) modules -= 36;
  }
  return Math.floor(modules / 8);
}

const capacity = version => codewords(version) - CORRECTION[version - 1] * BLOCKS[version - 1];

// Multiplication in GF(2^8) modulo x^8 + x^4 + x^3 + x^2 + 1.
function multiply(a, b) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit -= 1) {
    product = (product << 1) ^ ((product >>> 7) * 0x11d);
    product ^= ((b >>> bit) & 1) * a;
  }
  return product;
}

// The generator polynomial of Reed and Solomon, without its first coefficient, which is 1.
function generator(degree) {
  const result = new Array(degree).fill(0);
  result[degree - 1] = 1;
  let root = 1;
  for (let count = 0; count < degree; count += 1) {
    for (let index = 0; index < degree; index += 1) {
      result[index] = multiply(result[index], root) ^ (result[index + 1] ?? 0);
    }
    root = multiply(root, 2);
  }
  return result;
}

function remainder(data, divisor) {
  const result = divisor.map(() => 0);
  for (const byte of data) {
    const factor = byte ^ result.shift();
    result.push(0);
    divisor.forEach((coefficient, index) => { result[index] ^= multiply(coefficient, factor); });
  }
  return result;
}

// The data with its mode, length and padding (7.4).
function filled(data, version) {
  const bits = [];
  const push = (value, count) => { for (let bit = count - 1; bit >= 0; bit -= 1) bits.push((value >>> bit) & 1); };
  push(4, 4);
  push(data.length, version < 10 ? 8 : 16);
  data.forEach(byte => push(byte, 8));
  const room = capacity(version) * 8;
  push(0, Math.min(4, room - bits.length));
  push(0, (8 - (bits.length % 8)) % 8);
  for (let pad = 0xec; bits.length < room; pad ^= 0xec ^ 0x11) push(pad, 8);
  const bytes = new Array(bits.length / 8).fill(0);
  bits.forEach((bit, index) => { bytes[index >>> 3] |= bit << (7 - (index & 7)); });
  return bytes;
}

// Blocks with their error correction, interleaved (7.6).
function interleaved(data, version) {
  const [count, length, all] = [BLOCKS[version - 1], CORRECTION[version - 1], codewords(version)];
  const short = Math.floor(all / count) - length;
  const longs = all % count;
  const divisor = generator(length);
  const blocks = [];
  for (let index = 0, at = 0; index < count; index += 1) {
    const end = at + short + (index >= count - longs ? 1 : 0);
    const part = data.slice(at, end);
    blocks.push([part, remainder(part, divisor)]);
    at = end;
  }
  const result = [];
  for (let index = 0; index <= short; index += 1) {
    for (const [part] of blocks) if (index < part.length) result.push(part[index]);
  }
  for (let index = 0; index < length; index += 1) for (const [, correction] of blocks) result.push(correction[index]);
  return result;
}

function places(version) {
  if (version === 1) return [];
  const count = Math.floor(version / 7) + 2;
  const step = Math.ceil((version * 4 + 4) / (count * 2 - 2)) * 2;
  const result = [6];
  for (let at = version * 4 + 10; result.length < count; at -= step) result.splice(1, 0, at);
  return result;
}

const bit = (value, index) => ((value >>> index) & 1) === 1;

// The function patterns (6.3), and which modules they take.
function patterned(version) {
  const size = version * 4 + 17;
  const dark = Array.from({ length: size }, () => new Array(size).fill(false));
  const taken = Array.from({ length: size }, () => new Array(size).fill(false));
  const set = (x, y, value) => { dark[y][x] = value; taken[y][x] = true; };
  for (let at = 0; at < size; at += 1) {
    set(6, at, at % 2 === 0);
    set(at, 6, at % 2 === 0);
  }
  for (const [cx, cy] of [[3, 3], [size - 4, 3], [3, size - 4]]) {
    for (let dy = -4; dy <= 4; dy += 1) {
      for (let dx = -4; dx <= 4; dx += 1) {
        const [x, y, ring] = [cx + dx, cy + dy, Math.max(Math.abs(dx), Math.abs(dy))];
        if (x >= 0 && x < size && y >= 0 && y < size) set(x, y, ring !== 2 && ring !== 4);
      }
    }
  }
  const centres = places(version);
  const last = centres.length - 1;
  centres.forEach((cx, i) => centres.forEach((cy, j) => {
    if ((i === 0 && (j === 0 || j === last)) || (i === last && j === 0)) return;
    for (let dy = -2; dy <= 2; dy += 1) {
      for (let dx = -2; dx <= 2; dx += 1) set(cx + dx, cy + dy, Math.max(Math.abs(dx), Math.abs(dy)) !== 1);
    }
  }));
  if (version >= 7) {
    let rest = version;
    for (let count = 0; count < 12; count += 1) rest = (rest << 1) ^ ((rest >>> 11) * 0x1f25);
    const bits = (version << 12) | rest;
    for (let index = 0; index < 18; index += 1) {
      const [a, b] = [size - 11 + (index % 3), Math.floor(index / 3)];
      set(a, b, bit(bits, index));
      set(b, a, bit(bits, index));
    }
  }
  return { size, dark, taken, set };
}

// Level M and the mask, with their error correction (7.9).
function format({ size, set }, mask) {
  let rest = mask;
  for (let count = 0; count < 10; count += 1) rest = (rest << 1) ^ ((rest >>> 9) * 0x537);
  const bits = ((mask << 10) | rest) ^ 0x5412;
  for (let index = 0; index <= 5; index += 1) set(8, index, bit(bits, index));
  set(8, 7, bit(bits, 6));
  set(8, 8, bit(bits, 7));
  set(7, 8, bit(bits, 8));
  for (let index = 9; index < 15; index += 1) set(14 - index, 8, bit(bits, index));
  for (let index = 0; index < 8; index += 1) set(size - 1 - index, 8, bit(bits, index));
  for (let index = 8; index < 15; index += 1) set(8, size - 15 + index, bit(bits, index));
  set(8, size - 8, true);
}

// The modules in the order in which they take data (7.7.3).
function* zigzag({ size, taken }) {
  for (let right = size - 1; right >= 1; right -= 2) {
    if (right === 6) right = 5;
    for (let step = 0; step < size; step += 1) {
      const y = ((right + 1) & 2) === 0 ? size - 1 - step : step;
      for (const x of [right, right - 1]) if (!taken[y][x]) yield [x, y];
    }
  }
}

const MASKS = [(x, y) => (x + y) % 2, (x, y) => y % 2, x => x % 3, (x, y) => (x + y) % 3,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2, (x, y) => ((x * y) % 2) + ((x * y) % 3),
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2, (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2];

// How badly a code is read (7.8.3): runs, blocks, patterns like a finder, and too many dark modules.
function penalty(dark) {
  const size = dark.length;
  let [sum, count] = [0, 0];
  const lines = [...dark, ...dark.map((_, x) => dark.map(row => row[x]))];
  for (const line of lines) {
    let run = 1;
    for (let at = 1; at <= size; at += 1) {
      if (at < size && line[at] === line[at - 1]) { run += 1; continue; }
      if (run >= 5) sum += run - 2;
      run = 1;
    }
    const text = line.map(value => (value ? 1 : 0)).join('');
    for (let at = 0; at + 11 <= size; at += 1) {
      const part = text.slice(at, at + 11);
      if (part === '10111010000' || part === '00001011101') sum += 40;
    }
  }
  for (let y = 0; y < size; y += 1) {
    for (let x = 0; x < size; x += 1) {
      count += dark[y][x] ? 1 : 0;
      const same = y + 1 < size && x + 1 < size && dark[y][x] === dark[y][x + 1] && dark[y][x] === dark[y + 1][x]
        && dark[y][x] === dark[y + 1][x + 1];
      if (same) sum += 3;
    }
  }
  return sum + Math.floor(Math.abs(count * 20 - size * size * 10) / (size * size)) * 10;
}

// The rows of a code, true for dark modules; undefined if the text is too long for it.
export function encode(text) {
  const data = [...new TextEncoder().encode(text)];
  let version = 1;
  while (version <= VERSIONS && data.length + (version < 10 ? 2 : 3) > capacity(version)) version += 1;
  if (version > VERSIONS) return undefined;
  const stream = interleaved(filled(data, version), version);
  let best;
  for (let mask = 0; mask < MASKS.length; mask += 1) {
    const code = patterned(version);
    format(code, mask);
    let at = 0;
    for (const [x, y] of zigzag(code)) {
      const value = at < stream.length * 8 && bit(stream[at >>> 3], 7 - (at & 7));
      code.dark[y][x] = value !== (MASKS[mask](x, y) === 0);
      at += 1;
    }
    const bad = penalty(code.dark);
    if (!best || bad < best.bad) best = { bad, dark: code.dark };
  }
  return best.dark;
}
