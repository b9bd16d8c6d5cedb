// ---- Functions. A function is a name and a module, at any place in a stack, called
// or inlined.

// NOT_CODE lists the kinds of the levels below all functions.
const NOT_CODE = ['root', 'cpu', 'process'];

class Functions {
  constructor(data) {
    this.data = data;
    this.tree = data.tree;
    const { name, module, kind } = data.frames;
    const ids = new Map();
    this.frames = []; // by function, one of its frames
    this.ofFrame = Uint32Array.from(name, (_, f) => {
      const key = `${name[f]} ${module[f]} ${kind[f]}`;
      if (!ids.has(key)) ids.set(key, this.frames.push(f) - 1);
      return ids.get(key);
    });
  }

  // isCode reports whether f is a function rather than a process, CPU or the root.
  isCode(f) { return !NOT_CODE.includes(this.data.kinds[this.data.frames.kind[this.frames[f]]]); }

  // selfSums returns the self value by function.
  selfSums(weights) {
    const { count, first, frame } = this.tree;
    const sums = new Float64Array(this.frames.length);
    for (let k = 0; k < count; k++) sums[this.ofFrame[frame[first[k + 1] - 1]]] += weights.self(k);
    return sums;
  }
  // totalSums returns the total values by function, in the profile and in the base.
  // A stack counts once per function, also with recursion.
  totalSums(weights) {
    const { ofFrame, tree: { count, first, end, frame } } = this;
    const columns = () => new Float64Array(this.frames.length);
    const sums = { values: columns(), base: columns() };
    const until = new Uint32Array(this.frames.length); // end of the outermost activation
    for (let k = 0; k < count; k++) {
      const total = weights.total(k);
      const base = weights.baseTotal(k);
      if (total === 0 && base === 0) continue;
      for (let n = first[k]; n < first[k + 1]; n++) {
        const f = ofFrame[frame[n]];
        if (k < until[f]) continue;
        until[f] = end[k];
        sums.values[f] += total;
        sums.base[f] += base;
      }
    }
    return sums;
  }

  // follow takes the values from another tree of the same frames.
  follow(tree) {
    this.tree = tree;
    this.last = null;
  }

  // outermost returns the nodes of function f that have no node of f below them,
  // with their chains.
  outermost(f) {
    if (this.last?.f !== f) this.last = { f, ...nodesWhere(this.tree, this.ofFrame.map((g) => g === f ? 1 : 0)) };
    return this.last;
  }
}

// hash is FNV-1a. It identifies functions in the page's address, so that the address
// also works for another profile of the same program, and selects shades.
function hash(text) {
  let h = 0x811c9dc5;
  for (let i = 0; i < text.length; i++) h = Math.imul(h ^ text.charCodeAt(i), 0x01000193);
  return h >>> 0;
}

