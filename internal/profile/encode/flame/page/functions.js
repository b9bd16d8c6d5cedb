// ---- Functions. A function is a name and a module, at any place in a stack, called
// or inlined.

// WAITS_IN are libraries whose functions say nothing about why a program waits, and
// RUNTIME such functions of Go. In SCHEDULER, all threads wait. innermost.go has the same.
const WAITS_IN = /^(libc|libpthread|ld-linux|ld-musl|libstdc\+\+|\[vdso\])([-.].*)?$/;
const SCHEDULER = /^(__|io_|preempt_)?schedule(_|$)/;
const RUNTIME = /^(runtime|syscall|internal\/[\w/]+)\./;

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

  // selfSums returns the self value by function.
  selfSums(weights) {
    const { count, first, frame } = this.tree;
    const sums = new Float64Array(this.frames.length);
    for (let k = 0; k < count; k++) sums[this.ofFrame[frame[first[k + 1] - 1]]] += weights.self(k);
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
    const rank = this.ranks();
    const [inner, ends] = [0, 1].map(() => new Float64Array(this.frames.length));
    const end = new Int32Array(count).fill(-1); // by chain
    const woken = new Uint8Array(count);
    const isWoken = this.frames.map((frame, f) => this.isNote(f) && this.data.strings[this.data.frames.name[frame]] === WOKEN_BY);
    const ranked = [1, 2, 3, 4].map(() => new Int32Array(count).fill(-1)); // by rank and chain
    for (let k = 0; k < count; k++) {
      if (k > 0) for (const of of [end, woken, ...ranked]) of[k] = of[parent[k]];
      for (let n = first[k]; n < first[k + 1] && !woken[k]; n++) {
        const f = ofFrame[frame[n]];
        if (isWoken[f]) {
          woken[k] = 1;
          break;
        }
        end[k] = f;
        if (rank[f] > 0) ranked[rank[f] - 1][k] = f;
      }
      const best = ranked.findLast((of) => of[k] >= 0);
      if (best) inner[best[k]] += weights.self(k);
      if (end[k] >= 0) ends[end[k]] += weights.self(k);
    }
    return { inner, ends };
  }
  // ranks returns by function 4 if it belongs to the program, 3 if to a library that
  // programs wait in, 2 if to the kernel, 1 if to its scheduler, 0 if it is no function.
  ranks() {
    const { strings, kinds, frames: { name, module, kind } } = this.data;
    return Uint8Array.from(this.frames, (f) => {
      const of = kinds[kind[f]];
      if (!this.isCode(this.ofFrame[f]) || of === 'marker') return 0;
      if (of === 'kernel' || strings[module[f]].startsWith('[kernel')) return SCHEDULER.test(strings[name[f]]) ? 1 : 2;
      return WAITS_IN.test(moduleName(strings[module[f]])) || RUNTIME.test(strings[name[f]]) ? 3 : 4;
    });
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

