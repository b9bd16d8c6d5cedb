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

// A Reader reads varints.
class Reader {
  constructor(bytes, at) {
    this.bytes = bytes;
    this.at = at;
  }
  uint() {
    let byte = this.bytes[this.at++];
    if (byte < 0x80) return byte;
    // Values have more bits than the bit operators of the language.
    let value = byte & 0x7f;
    for (let unit = 0x80; byte >= 0x80; unit *= 0x80) {
      byte = this.bytes[this.at++];
      value += (byte & 0x7f) * unit;
    }
    return value;
  }
  int() {
    const v = this.uint();
    return v % 2 === 0 ? v / 2 : -(v + 1) / 2;
  }
}

// readTree returns columns by node, in preorder: the descendants of n are n+1
// to end[n]-1.
function readTree(reader, header) {
  const count = header.nodes;
  const parent = new Uint32Array(count);
  const end = new Uint32Array(count);
  const open = []; // by depth, the ancestors of the node before
  for (let n = 0; n < count; n++) {
    for (let up = reader.uint(); up > 0; up--) end[open.pop()] = n;
    if (n > 0) parent[n] = open[open.length - 1];
    open.push(n);
  }
  for (const n of open) end[n] = count;

  const frame = new Uint32Array(count);
  const callees = header.frames.name.map(() => []);
  if (count > 0) frame[0] = reader.uint();
  for (let n = 1; n < count; n++) {
    const known = callees[frame[parent[n]]];
    const number = reader.uint();
    if (number === 0) known.push(reader.uint());
    frame[n] = known[number === 0 ? known.length - 1 : number - 1];
  }
  return { count, parent, end, frame };
}

// readSamples returns columns by sample, ordered by node.
function readSamples(reader, header) {
  const count = header.samples;
  const node = new Uint32Array(count);
  const task = new Uint32Array(count);
  for (let i = 0, n = 0; i < count; i++) node[i] = n += reader.uint();
  for (let i = 0; i < count; i++) task[i] = reader.uint();
  const values = header.scales.map((scale) => {
    const column = new Float64Array(count);
    for (let i = 0; i < count; i++) column[i] = reader.int() * scale;
    return column;
  });
  return { count, node, task, values };
}

