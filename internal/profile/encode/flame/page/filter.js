// ---- Filters. Each selects stacks or leaves out frames, one after the other, in the
// order in which the user chose them.

const MAX_FILTERS = 32;

// A Filters applies filters, which the page's address holds as lines "kind:argument".
// The argument of focus, ignore and hide is an expression of the search; of focus-fn,
// ignore-fn, hide-fn the key of a function; of library the path of a module; of under
// and ending the path of a box, from the root, or from the leaf; of recursion nothing. A
// path that begins with * leaves out processes and CPUs. That of process and thread is an ID, or
// an expression for the name. Package internal/profile/filter has the same filters.
class Filters {
  constructor(data, functions, names) {
    Object.assign(this, { data, functions, names });
    this.isCode = Uint8Array.from(data.frames.kind, (k) => NOT_CODE.includes(data.kinds[k]) ? 0 : 1);
  }

  // parse returns the filters in a text, as {line, text, apply}: apply returns data with
  // the filter applied. It is null if the filter has no meaning here.
  parse(lines) {
    return lines.split('\n').filter(Boolean).slice(0, MAX_FILTERS).map((line) => {
      const [, kind, argument] = line.match(/^([^:]*):?([^]*)$/);
      return { line, ...this.filter(kind, argument) };
    });
  }
  filter(kind, argument) {
    switch (kind) {
      case 'focus': case 'ignore': case 'hide': {
        let matches;
        try {
          matches = parseSearch(argument, this.data);
        } catch {
          return { text: `${argument}: invalid regular expression`, apply: null };
        }
        return this.of(kind, argument, matches);
      }
      case 'focus-fn': case 'ignore-fn': case 'hide-fn': {
        const frame = this.frameOf(argument);
        if (frame < 0) return { text: `${kind.replace('-fn', '')} a function of another profile`, apply: null };
        const f = this.functions.ofFrame[frame];
        return this.of(kind.replace('-fn', ''), this.names.shown(frame), this.functions.ofFrame.map((g) => g === f ? 1 : 0));
      }
      case 'process': case 'thread': {
        try {
          return { text: `only ${kind} ${argument}`, apply: this.ofTask(kind, argument) };
        } catch {
          return { text: `${argument}: invalid regular expression`, apply: null };
        }
      }
      case 'label': return { text: `label ${argument}: only in fulgur's commands`, apply: null };
      case 'recursion': return { text: 'recursion collapsed', apply: (data) => this.collapseRecursion(data) };
      case 'library': {
        const library = this.data.libraries.get(this.data.strings.indexOf(argument));
        return {
          text: `${moduleName(argument)} collapsed`,
          apply: library === undefined ? null : (data) => this.collapseLibrary(data, library),
        };
      }
      case 'under': case 'ending': {
        const steps = argument.split('.');
        const frame = this.frameOf(steps[steps.length - 1]);
        const name = frame < 0 ? 'a box of another profile' : this.names.shown(frame);
        return {
          text: kind === 'under' ? `only above ${name}` : `only callers of ${name}`,
          apply: (data) => this.keepPath(data, steps, kind === 'ending'),
        };
      }
      default: return { text: `unknown filter ${kind}`, apply: null };
    }
  }
  of(kind, name, matches) {
    switch (kind) {
      case 'focus': return { text: `only stacks with ${name}`, apply: (data) => this.select(data, matches, 1) };
      case 'ignore': return { text: `no stacks with ${name}`, apply: (data) => this.select(data, matches, 0) };
      default: return { text: `${name} hidden`, apply: (data) => this.hide(data, matches) };
    }
  }
  // frameOf returns a frame by its key, or -1.
  frameOf(key) { return this.isCode.findIndex((_, f) => this.names.key(f) === key); }

  // keep returns data with only the samples of chains for which keeps returns true.
  keep(data, keeps) {
    const { tree: { count, from }, samples } = data;
    const kept = new Uint8Array(samples.count);
    for (let k = 0; k < count; k++) {
      if (from[k] === from[k + 1] || !keeps(k)) continue;
      for (let s = from[k]; s < from[k + 1]; s++) kept[s] = samples.kept ? samples.kept[s] : 1;
    }
    return { ...data, samples: { ...samples, kept } };
  }
  // withoutIdle returns data without the samples of idle threads.
  withoutIdle(data) {
    const { samples } = data;
    const kept = new Uint8Array(samples.count).fill(1);
    for (const s of data.idle) kept[s] = 0;
    return { ...data, samples: { ...samples, kept } };
  }
  // ofTask returns a filter that keeps the samples of processes or threads with an ID, or a name that matches.
  ofTask(kind, which) {
    const id = /^[1-9]\d*$/.test(which);
    const pattern = id ? null : smartPattern(which);
    const { tasks, strings } = this.data;
    const wanted = tasks.comm.map((comm, i) => id ? String(tasks[kind === 'process' ? 'pid' : 'tid'][i]) === which : pattern.test(strings[comm]));
    return (data) => {
      const { samples } = data;
      const kept = new Uint8Array(samples.count);
      for (let s = 0; s < samples.count; s++) kept[s] = wanted[samples.task[s]] && (samples.kept ? samples.kept[s] : 1) ? 1 : 0;
      return { ...data, samples: { ...samples, kept } };
    };
  }
  // select keeps the stacks with a match, or, if wanted is 0, those without.
  select(data, matches, wanted) {
    const { count, first, parent, frame } = data.tree;
    const has = new Uint8Array(count); // by chain: whether the path to its end has a match
    for (let k = 0; k < count; k++) {
      let found = k > 0 ? has[parent[k]] : 0;
      for (let n = first[k]; !found && n < first[k + 1]; n++) found = matches[frame[n]];
      has[k] = found;
    }
    return this.keep(data, (k) => has[k] === wanted);
  }
  // keepPath keeps the stacks that begin with a path, or end with it.
  keepPath(data, steps, isEnd) {
    const { tree: { count, first, parent, frame } } = data;
    const merged = steps[0] === '*';
    const keys = (merged ? steps.slice(1) : steps).map((key) => Array.from(this.isCode, (_, f) => this.names.key(f) === key ? 1 : 0));
    if (isEnd) {
      return this.keep(data, (k) => {
        for (let c = k, n = first[k + 1] - 1, step = 0; ; step++) {
          if (step === keys.length) return true;
          if (n === 0 || !keys[step][frame[n]]) return false;
          if (n > first[c]) n--;
          else {
            c = parent[c];
            n = first[c + 1] - 1;
          }
        }
      });
    }
    const LEFT = 0xffffffff;
    const done = new Uint32Array(count); // by chain, the steps taken at its end, or LEFT
    for (let k = 0; k < count; k++) {
      let at = k > 0 ? done[parent[k]] : 0;
      for (let n = Math.max(1, first[k]); at < keys.length && n < first[k + 1]; n++) {
        if (merged && !this.isCode[frame[n]]) continue;
        at = keys[at][frame[n]] ? at + 1 : LEFT;
      }
      done[k] = at;
    }
    return this.keep(data, (k) => done[k] === keys.length);
  }

  hide(data, matches) {
    const hidden = matches.map((match, f) => match && this.isCode[f] ? 1 : 0);
    return rebuild(data, (trie, at, f) => hidden[f] ? at : trie.child(at, f));
  }
  // collapseLibrary replaces calls within a library by one frame.
  collapseLibrary(data, library) {
    const { module } = this.data.frames;
    const within = Uint8Array.from(module, (m, f) => m === module[library] && this.isCode[f] ? 1 : 0);
    return rebuild(data, (trie, at, f) => {
      if (!within[f]) return trie.child(at, f);
      return trie.frame[at] === library ? at : trie.child(at, library);
    });
  }
  // collapseRecursion removes loops: a function that is already on the stack continues
  // there, so that no stack has a function twice.
  collapseRecursion(data) {
    const { functions: { ofFrame, frames }, isCode } = this;
    const depth = new Uint32Array(frames.length); // by function, its latest depth on the path
    const path = []; // from the root
    const enter = (trie, at) => {
      path.length = 0;
      for (let n = at; n !== 0; n = trie.parent[n]) path.push(n);
      path.push(0);
      path.reverse();
      path.forEach((n, d) => { depth[ofFrame[trie.frame[n]]] = d; });
    };
    return rebuild(data, (trie, at, f) => {
      const g = ofFrame[f];
      const d = depth[g];
      if (isCode[f] && d < path.length && ofFrame[trie.frame[path[d]]] === g) {
        path.length = d + 1;
        return path[d];
      }
      depth[g] = path.length;
      const node = trie.child(at, f);
      path.push(node);
      return node;
    }, enter);
  }
}

// withLibraries returns data with a frame for each module, which stands for all of its
// functions when the library is collapsed: libraries maps a module to it.
function withLibraries(data) {
  const { frames, strings, kinds } = data;
  const libraries = new Map();
  const count = frames.name.length;
  for (let f = 0; f < count; f++) {
    const module = frames.module[f];
    if (module === 0 || libraries.has(module) || NOT_CODE.includes(kinds[frames.kind[f]])) continue;
    const name = strings.push(moduleName(strings[module])) - 1;
    const row = { name, module, short: name, own: name, kind: frames.kind[f], code: frames.code[f], address: '0' };
    libraries.set(module, frames.name.length);
    for (const [column, entries] of Object.entries(frames)) entries.push(row[column] ?? 0);
  }
  return { ...data, libraries };
}

