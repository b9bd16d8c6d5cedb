// ---- The data of the page; data.go describes how it is written.

async function load() {
  const packed = decodeBase64(byId('data').textContent);
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const reader = new Reader(bytes, 4 + length);
  return { ...header, tree: readTree(reader, header), samples: readSamples(reader, header) };
}

function decodeBase64(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

// A Reader reads columns of varints.
class Reader {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }
  // uints fills a column, and ints one of numbers with signs, in units of scale.
  uints(column) {
    for (let i = 0; i < column.length; i++) {
      const byte = this.bytes[this.at++];
      column[i] = byte < 0x80 ? byte : this.rest(byte);
    }
    return column;
  }
  ints(column, scale) {
    for (let i = 0; i < column.length; i++) {
      const byte = this.bytes[this.at++];
      const v = byte < 0x80 ? byte : this.rest(byte);
      column[i] = (v % 2 === 0 ? v / 2 : -(v + 1) / 2) * scale;
    }
    return column;
  }
  // rest reads what follows the first byte of a number. Numbers have more bits
  // than the bit operators of the language.
  rest(byte) {
    let value = byte & 0x7f;
    for (let unit = 0x80; byte >= 0x80; unit *= 0x80) {
      byte = this.bytes[this.at++];
      value += (byte & 0x7f) * unit;
    }
    return value;
  }
}

// readTree returns columns by node, in preorder: the descendants of n are n+1
// to end[n]-1.
function readTree(reader, header) {
  const count = header.nodes;
  const parent = new Uint32Array(count);
  // Columns that are read turn into others in their place: of so many nodes,
  // each one takes the system long to make room for.
  const end = reader.uints(new Uint32Array(count)); // how far up each node stands at first
  const ancestors = []; // by depth
  let depth = 0;
  for (let n = 0; n < count; n++) {
    for (let up = end[n]; up > 0; up--) end[ancestors[--depth]] = n;
    if (n > 0) parent[n] = ancestors[depth - 1];
    ancestors[depth++] = n;
  }
  while (depth > 0) end[ancestors[--depth]] = count;

  const Frames = header.frames.name.length <= 0x10000 ? Uint16Array : Uint32Array;
  const frame = reader.uints(new Frames(count)); // numbers of callees at first
  const unmet = reader.uints(new Uint32Array(header.calls));
  const callees = header.frames.name.map(() => []);
  let next = 0;
  for (let n = 1; n < count; n++) {
    const known = callees[frame[parent[n]]];
    const number = frame[n];
    if (number === 0) known.push(unmet[next++]);
    frame[n] = known[number === 0 ? known.length - 1 : number - 1];
  }
  return { count, parent, end, frame };
}

// readSamples returns columns by sample, ordered by node.
function readSamples(reader, header) {
  const count = header.samples;
  const node = reader.uints(new Uint32Array(count));
  for (let i = 1; i < count; i++) node[i] += node[i - 1];
  const task = reader.uints(new Uint32Array(count));
  const values = header.scales.map((scale) => reader.ints(new Float64Array(count), scale));
  return { count, node, task, values };
}

