
// ---- The samples as a profile of pprof, like package pprof writes it. Field numbers are
// those of github.com/google/pprof's proto/profile.proto.

// A Message is a growing message of protocol buffers.
class Message {
  constructor() {
    this.bytes = new Uint8Array(64);
    this.at = 0;
  }
  room(count) {
    if (this.at + count <= this.bytes.length) return;
    const grown = new Uint8Array(Math.max(2 * this.bytes.length, this.at + count));
    grown.set(this.bytes.subarray(0, this.at));
    this.bytes = grown;
  }
  // varint appends an integer, which may be a BigInt.
  varint(value) {
    this.room(10);
    if (value < 0) value = BigInt.asUintN(64, BigInt(value)); // two's complement
    if (typeof value === 'bigint') {
      for (; value > 0x7fn; value >>= 7n) this.bytes[this.at++] = Number(value & 0x7fn) | 0x80;
      this.bytes[this.at++] = Number(value);
      return;
    }
    for (; value > 0x7f; value = Math.floor(value / 0x80)) this.bytes[this.at++] = value % 0x80 | 0x80;
    this.bytes[this.at++] = value;
  }
  // number appends a field, unless it has the default value.
  number(field, value) {
    if (!value) return;
    this.varint(field * 8);
    this.varint(value);
  }
  raw(field, bytes) {
    this.varint(field * 8 + 2);
    this.varint(bytes.length);
    this.room(bytes.length);
    this.bytes.set(bytes, this.at);
    this.at += bytes.length;
  }
  packed(field, values) {
    const part = new Message();
    for (const v of values) part.varint(v);
    if (part.at > 0) this.raw(field, part.done());
  }
  // message appends a message whose fields fill appends.
  message(field, fill) {
    const part = new Message();
    fill(part);
    this.raw(field, part.done());
  }
  done() { return this.bytes.subarray(0, this.at); }
}

const NO_NAME = '""'; // of a task without a name
const ALL_ADDRESSES = (1n << 64n) - 1n;

// pprof returns the samples of the tasks for which keeps is true, with all values. value is
// the one that pprof shows first.
function pprof(data, names, { keeps, value }) {
  const { frames, strings, kinds, values, samples, tasks, builds = {}, meta, run } = data;
  const out = new Message();
  const ids = new Map([['', 0]]);
  const id = (text) => {
    if (!ids.has(text)) ids.set(text, ids.size);
    return ids.get(text);
  };
  const valueType = ({ type, unit }) => (m) => {
    m.number(1, id(type));
    m.number(2, id(unit));
  };
  for (const v of values) out.message(1, valueType(v));
  const locations = new Locations(frames, kinds);
  const columns = samples.values.slice(0, values.length);
  eachSample(data, keeps, (s, path) => {
    const amounts = columns.map((column) => column[s]);
    if (amounts.every((v) => v === 0)) return;
    const t = samples.task[s];
    const label = (m, key, text, number) => m.message(3, (l) => {
      l.number(1, id(key));
      if (text) l.number(2, id(text));
      else {
        l.number(3, number);
        if (number === 0) l.number(4, id(key)); // else there would be no label
      }
    });
    out.message(2, (m) => {
      m.packed(1, locations.of(path()));
      m.packed(2, amounts);
      if (strings[tasks.comm[t]] !== NO_NAME) label(m, 'comm', strings[tasks.comm[t]]);
      if (tasks.pid[t]) label(m, 'pid', '', tasks.pid[t]);
      for (const [key, text] of groupLabels(run, strings[tasks.group?.[t]] ?? '')) label(m, key, text);
      if (tasks.tid[t]) label(m, 'tid', '', tasks.tid[t]);
      const cpu = path().find((f) => kinds[frames.kind[f]] === 'cpu');
      const [, number] = cpu === undefined ? [] : names.of(cpu).match(/^\[CPU (\d+)\]$/) ?? [];
      if (number) label(m, 'cpu', '', Number(number));
    });
  });
  const mappings = new Map([[0, 0]]); // by module
  const functions = new Map(); // by frame
  locations.list.forEach((of, i) => {
    const module = frames.module[of[0]];
    if (!mappings.has(module)) mappings.set(module, mappings.size);
    out.message(4, (m) => {
      m.number(1, i + 1);
      m.number(2, mappings.get(module));
      for (const f of of) {
        if (isNameless(names, f)) {
          m.number(3, BigInt(`0x${frames.address[f]}`));
          continue;
        }
        if (!functions.has(f)) functions.set(f, functions.size + 1);
        m.message(4, (l) => l.number(1, functions.get(f)));
      }
    });
  });
  for (const [module, number] of mappings) {
    if (number === 0) continue;
    out.message(3, (m) => {
      m.number(1, number);
      if (strings[module].startsWith('/')) m.number(3, ALL_ADDRESSES); // addresses are the file's own
      m.number(5, id(strings[module]));
      m.number(6, id(builds[strings[module]] ?? ''));
      for (const has of [7, 8, 10]) m.number(has, 1); // the page has all that is known
    });
  }
  for (const [f, number] of functions) {
    out.message(5, (m) => {
      m.number(1, number);
      m.number(2, id(names.of(f)));
      m.number(3, id(names.of(f)));
      m.number(4, id(strings[frames.file[f]]));
      m.number(5, frames.line[f]);
    });
  }
  if (meta.start) out.number(9, BigInt(Date.parse(meta.start)) * 1_000_000n);
  out.number(10, Math.round(meta.seconds * 1e9));
  out.number(14, id(values[value]?.type ?? ''));
  out.packed(13, [id(`fulgur.run: ${JSON.stringify(run)}`)]);
  const encoder = new TextEncoder();
  for (const text of ids.keys()) out.raw(6, encoder.encode(text));
  return out.done();
}

// groupLabels returns the labels of the processes of a group, as [key, text].
function groupLabels({ grouping, group_label: label }, name) {
  if (!name || name.startsWith('[')) return []; // [no container]
  const parts = name.split('/');
  switch (grouping) {
    case 'label': return [[label, name]];
    case 'pod': return [['namespace', parts[0]], ['pod', parts[1] ?? '']].filter(([, text]) => text);
    case 'container': return parts.length === 3 ? [['container', parts[2]], ['pod', parts[1]], ['namespace', parts[0]]] : [['container', name]];
    case 'unit': return [['unit', name]];
  }
  return [];
}

// isNameless reports whether a frame is code without a function.
const isNameless = (names, f) => names.kinds[names.frames.kind[f]] === 'unresolved' && names.of(f).startsWith('[');

// Locations numbers the locations of stacks from 1 on: functions with those that are inlined
// into them, the innermost first.
class Locations {
  constructor(frames, kinds) {
    Object.assign(this, { frames, kinds, list: [], single: new Map(), several: new Map() });
  }
  // of returns the locations of a path, the innermost first.
  of(path) {
    const found = [];
    let from = 0;
    const code = path.filter((f) => !NOT_CODE.includes(this.kinds[this.frames.kind[f]]));
    code.forEach((f, i) => {
      const isInlined = this.frames.inlined[f] && i + 1 < code.length && this.frames.module[code[i + 1]] === this.frames.module[f];
      if (isInlined) return;
      found.push(this.id(code.slice(from, i + 1)));
      from = i + 1;
    });
    return found;
  }
  id(of) {
    const [known, key] = of.length === 1 ? [this.single, of[0]] : [this.several, of.join()];
    if (!known.has(key)) known.set(key, this.list.push(of));
    return known.get(key);
  }
}
