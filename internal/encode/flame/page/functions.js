// ---- Functions: what a name and a module tell apart, wherever it stands and
// whether it is called or inlined.

class Functions {
  constructor(data) {
    this.data = data;
    const { name, module, kind } = data.frames;
    const ids = new Map();
    this.frames = []; // by function, one frame of it
    this.ofFrame = Uint32Array.from(name, (_, f) => {
      const key = `${name[f]} ${module[f]} ${kind[f]}`;
      if (!ids.has(key)) ids.set(key, this.frames.push(f) - 1);
      return ids.get(key);
    });
  }

  // weigh returns by function the values in which it is the leaf, self, and in
  // which it is anywhere in the stack, total: once, however often.
  weigh(weights) {
    const { tree: { count, end, frame } } = this.data;
    const columns = () => new Float64Array(this.frames.length);
    const sums = { self: columns(), total: columns(), baseSelf: columns(), baseTotal: columns() };
    weights.eachSample((node, value, base) => {
      const f = this.ofFrame[frame[node]];
      sums.self[f] += value;
      sums.baseSelf[f] += base;
    });
    const until = new Uint32Array(this.frames.length); // the end of the outermost activation
    for (let n = 0; n < count; n++) {
      const f = this.ofFrame[frame[n]];
      if (n < until[f]) continue;
      until[f] = end[n];
      sums.total[f] += weights.total[n];
      if (weights.base) sums.baseTotal[f] += weights.base[n];
    }
    return sums;
  }

  // outermost returns the nodes of function f that have none of it below.
  outermost(f) {
    const { tree: { count, end, frame } } = this.data;
    const nodes = [];
    for (let n = 0; n < count;) {
      if (this.ofFrame[frame[n]] === f) {
        nodes.push(n);
        n = end[n];
      } else {
        n++;
      }
    }
    return nodes;
  }
}

// hash is FNV-1a: it names functions in the page's address, so that the
// address fits another profile of the same program, and chooses shades.
function hash(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

