// ---- Formatting of numbers.

const digits = new Intl.NumberFormat('en');
const capital = (text) => (text.charAt(0).toUpperCase() + text.slice(1)).replace(/\bcpu\b/gi, 'CPU');

// scaled formats v in the first of steps, [size, unit], that it reaches.
function scaled(v, steps) {
  for (const [size, unit] of steps) {
    if (Math.abs(v) >= size) return `${Number((v / size).toPrecision(3)).toLocaleString('en')} ${unit}`;
  }
  return `${digits.format(v)} ${steps[steps.length - 1][1]}`;
}

const UNITS = {
  nanoseconds: [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']],
  microseconds: [[1e6, 's'], [1e3, 'ms'], [1, 'µs']],
  bytes: [[2 ** 40, 'TiB'], [2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']],
};

// amount formats a value of a value type.
function amount(v, { unit }) {
  if (Object.hasOwn(UNITS, unit)) return scaled(v, UNITS[unit]);
  return unit === 'count' ? digits.format(v) : `${digits.format(v)} ${unit}`;
}

// spokenAmount is amount with the name of the counted things.
function spokenAmount(v, { type, unit }) {
  const text = amount(v, { unit });
  return unit === 'count' ? `${text} ${v === 1 ? type.replace(/s$/, '') : type}` : text;
}

function percent(part, whole) {
  const p = whole > 0 ? 100 * part / whole : 0;
  const size = Math.abs(p);
  return `${p.toFixed(size === 0 || size >= 99.95 ? 0 : size >= 10 ? 1 : 2)}%`;
}

// valueName returns the display name of a value type.
function valueName({ type, unit }) {
  const what = { __proto__: null, nanoseconds: 'time', microseconds: 'time' }[unit] ?? unit;
  const of = type.replace(/^block-io(?=$|-time$)/, 'disk request').replace(what === 'time' ? /-time$/ : '', '');
  return capital(unit === 'count' || of === what ? of : `${of} ${what}`);
}

// nameInText is valueName within a sentence.
const nameInText = (type) => valueName(type).replace(/^[A-Z](?=[a-z])/, (c) => c.toLowerCase());

// pointsChange formats the change of a share in percentage points.
function pointsChange(share, before) {
  const points = 100 * (share - before);
  return `${points < 0 ? '−' : '+'}${Math.abs(points).toFixed(2)} points`;
}

const duration = (seconds) => seconds >= 1
  ? `${Number(seconds.toFixed(2))} s` : `${Number((seconds * 1000).toPrecision(3))} ms`;

