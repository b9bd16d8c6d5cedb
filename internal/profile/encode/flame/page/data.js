// ---- Decodes the page's data; data.go describes the encoding.

async function load() {
  const bytes = await inflate(decodeBase64(byId('data').textContent));
  const length = new DataView(bytes.buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
  const reader = new Reader(bytes, 4 + length);
  return withLibraries({ ...header, tree: readTree(reader, header), samples: readSamples(reader, header), times: readTimes(reader, header) });
}

async function inflate(packed) {
  const stream = new DecompressionStream('gzip');
  const writer = stream.writable.getWriter();
  const [buffer] = await Promise.all([new Response(stream.readable).arrayBuffer(), writer.write(packed), writer.close()]);
  return new Uint8Array(buffer);
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
  // uints reads a column. It avoids bit operators, which are limited to 32 bits.
  uints(column) {
    const { bytes } = this;
    let { at } = this;
    for (let i = 0; i < column.length; i++) {
      let value = bytes[at++];
      if (value >= 0x80) {
        value &= 0x7f;
        for (let byte = 0x80, unit = 0x80; byte >= 0x80; unit *= 0x80) {
          byte = bytes[at++];
          value += (byte & 0x7f) * unit;
        }
      }
      column[i] = value;
    }
    this.at = at;
    return column;
  }
  // ints reads a column of signed numbers, in units of scale.
  ints(column, scale) {
    this.uints(column);
    for (let i = 0; i < column.length; i++) {
      const v = column[i];
      column[i] = (v % 2 === 0 ? v / 2 : -(v + 1) / 2) * scale;
    }
    return column;
  }
  // starts reads a column of counts and returns the running sums: the start index of
  // each group, and finally the end of the last one.
  starts(count) {
    const column = new Uint32Array(count + 1);
    this.uints(column.subarray(1));
    for (let i = 1; i <= count; i++) column[i] += column[i - 1];
    return column;
  }
}

// readTree returns the frames of nodes in preorder, and columns by chain. The nodes
// first[k] to first[k+1]-1 are chain k: they have all their samples in common.
// parent[k] is the chain below chain k; the first chain is its own parent. Chains
// k+1 to end[k]-1 are above chain k. Samples from[k] to from[k+1]-1 end on its last
// node.
function readTree(reader, header) {
  const frames = header.frames.name.length;
  const calls = reader.starts(frames);
  const callees = reader.uints(new Uint32Array(calls[frames]));

  const count = header.chains;
  const first = reader.starts(count);
  const parent = new Uint32Array(count);
  const end = reader.uints(new Uint32Array(count)); // at first, the number of chains above each chain
  const ancestors = []; // by depth
  let depth = 0;
  for (let k = 0; k < count; k++) {
    for (let up = end[k]; up > 0; up--) end[ancestors[--depth]] = k;
    if (k > 0) parent[k] = ancestors[depth - 1];
    ancestors[depth++] = k;
  }
  while (depth > 0) end[ancestors[--depth]] = count;
  const from = reader.starts(count);

  const Frames = frames <= 0x10000 ? Uint16Array : Uint32Array;
  const frame = reader.uints(new Frames(header.nodes)); // at first, callee numbers
  for (let k = 0, n = 1; k < count; k++) {
    let f = frame[k === 0 ? 0 : first[parent[k] + 1] - 1];
    for (; n < first[k + 1]; n++) {
      f = callees[calls[f] + frame[n]];
      frame[n] = f;
    }
  }
  return { count, first, parent, end, from, frame };
}

// readSamples returns columns by sample. A filter adds kept, whether each sample counts.
function readSamples(reader, header) {
  const count = header.samples;
  const task = reader.uints(new Uint32Array(count));
  const values = header.scales.map((scale) => reader.ints(new Float64Array(count), scale));
  return { count, task, values };
}

