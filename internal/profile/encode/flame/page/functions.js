// ---- Functions. A function is a name and a module, at any place in a stack, called
// or inlined.

// The classes of frames, and the other parts of their codes: package own has the same.
const NOTE = 0;
const RUNTIME = 4;
const OTHER = 5;
const SCRIPT = 6;
const SCRIPTED = 8; // of a node: a script function called it, or is it
const MAY_BE_BUNDLED = 1 << 7;
const BUNDLED = 1 << 8;
const BUILTIN = 1 << 9;
const classOf = (code) => code & 7;
const languagesOf = (code) => code >> 3 & 15;

// WOKEN_BY is the note between the stack of a wait and the stack of the thread that ended it,
// which is on top, upside down.
const WOKEN_BY = '[woken by]';

// NOT_CODE lists the kinds of the levels below all functions.
const NOT_CODE = ['root', 'cpu', 'group', 'process'];

class Functions {
  constructor(data) {
    this.data = data;
    this.tree = data.tree;
    const { name, module, kind } = data.frames;
    this.hasScripts = data.frames.code.some((code) => classOf(code) === SCRIPT || code & BUILTIN);
    const ids = new Map();
    this.frames = []; // by function, one of its frames
    this.ofFrame = Uint32Array.from(name, (_, f) => {
      const key = `${name[f]} ${module[f]} ${kind[f]}`;
      if (!ids.has(key)) ids.set(key, this.frames.push(f) - 1);
      return ids.get(key);
    });
  }

  // isCode reports whether f is a function rather than a process, group, CPU or the root.
  isCode(f) { return !NOT_CODE.includes(this.data.kinds[this.data.frames.kind[this.frames[f]]]); }

  // classes returns by node its class, and SCRIPTED. Functions of a language's runtime are
  // of class RUNTIME only if a function in that language called them.
  classes() {
    if (this.known) return this.known;
    const { data: { frames: { code, module } }, tree: { count, first, parent, frame } } = this;
    const classes = new Uint8Array(frame.length);
    const languages = new Uint8Array(count); // by chain, of the functions in it and below
    const library = new Int32Array(count).fill(-1); // by chain, the module in which a library was called
    for (let k = 0; k < count; k++) {
      let within = k > 0 ? languages[parent[k]] : 0;
      let bundle = k > 0 ? library[parent[k]] : -1;
      for (let n = first[k]; n < first[k + 1]; n++) {
        const of = code[frame[n]];
        let is = classOf(of);
        if (is === RUNTIME && !(within & languagesOf(of))) is = of & BUILTIN ? SCRIPT : OTHER;
        if (is === SCRIPT) {
          within |= languagesOf(of);
          bundle = -1;
        } else if (of & BUNDLED) {
          bundle = module[frame[n]];
        } else if (is === RUNTIME && of & MAY_BE_BUNDLED && bundle === module[frame[n]]) {
          is = OTHER;
        } else if (is >= RUNTIME) {
          bundle = -1;
        }
        classes[n] = within ? is | SCRIPTED : is;
      }
      languages[k] = within;
      library[k] = bundle;
    }
    return this.known = classes;
  }

  // selfSums returns the self value by function: the value of the stacks that end in it or,
  // if they have script functions and isNative is not set, that it owns.
  selfSums(weights, isNative) {
    const { ofFrame, tree: { count, first, parent, frame } } = this;
    if (isNative || !this.hasScripts) return this.leafSums(weights);
    const classes = this.classes();
    const sums = new Float64Array(this.frames.length);
    const inner = new Int32Array(count); // by chain
    for (let k = 0; k < count; k++) {
      let owner = k > 0 ? inner[parent[k]] : 0;
      for (let n = first[k]; n < first[k + 1]; n++) {
        if (!(classes[n] & SCRIPTED) || classOf(classes[n]) >= OTHER) owner = ofFrame[frame[n]];
      }
      inner[k] = owner;
      const leaf = first[k + 1] - 1;
      sums[classOf(classes[leaf]) === NOTE ? ofFrame[frame[leaf]] : owner] += weights.self(k);
    }
    return sums;
  }
  leafSums(weights) {
    const { ofFrame, tree: { count, first, frame } } = this;
    const sums = new Float64Array(this.frames.length);
    for (let k = 0; k < count; k++) sums[ofFrame[frame[first[k + 1] - 1]]] += weights.self(k);
    return sums;
  }
  // waitSums returns by function the values of the stacks in which it is the innermost
  // one of the program: neither of the kernel, nor of the C library or a runtime below
  // it, nor a note. Stacks without such a function count for the innermost one in user
  // space, or else in the kernel, if possible outside the scheduler. It also returns the
  // values of the stacks that end in each function or note. Both leave out the threads
  // that ended waits.
  waitSums(weights) {
    const { ofFrame, tree: { count, first, parent, frame } } = this;
    const classes = this.classes();
    const [inner, ends] = [0, 1].map(() => new Float64Array(this.frames.length));
    const end = new Int32Array(count).fill(-1); // by chain
    const woken = new Uint8Array(count);
    const isWoken = this.frames.map((frame, f) => this.isNote(f) && this.data.strings[this.data.frames.name[frame]] === WOKEN_BY);
    const ranked = [1, 2, 3, 4, 5].map(() => new Int32Array(count).fill(-1)); // by rank and chain
    for (let k = 0; k < count; k++) {
      if (k > 0) for (const of of [end, woken, ...ranked]) of[k] = of[parent[k]];
      for (let n = first[k]; n < first[k + 1] && !woken[k]; n++) {
        const f = ofFrame[frame[n]];
        if (isWoken[f]) {
          woken[k] = 1;
          break;
        }
        end[k] = f;
        let rank = Math.min(classOf(classes[n]), OTHER);
        if (rank === RUNTIME && !(classes[n] & SCRIPTED)) rank = OTHER;
        if (rank > NOTE && this.isCode(f)) ranked[rank - 1][k] = f;
      }
      const best = ranked.findLast((of) => of[k] >= 0);
      if (best) inner[best[k]] += weights.self(k);
      if (end[k] >= 0) ends[end[k]] += weights.self(k);
    }
    return { inner, ends };
  }
  // isNote reports whether f is a note rather than a function.
  isNote(f) { return this.data.kinds[this.data.frames.kind[this.frames[f]]] === 'marker'; }

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
    this.last = this.known = null;
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

