// ---- Trees with fewer frames, for filters.

// A Trie is a tree under construction. Nodes are numbered in order of creation, the root
// is 0.
class Trie {
  // capacity bounds the number of nodes.
  constructor(capacity, rootFrame) {
    this.parent = new Uint32Array(capacity);
    this.frame = new Uint32Array(capacity);
    this.only = new Uint32Array(capacity); // by node, its first child, or 0
    this.frame[0] = rootFrame;
    this.count = 1;
    this.table = new Uint32Array(1 << 10); // further children, open addressing
    this.used = 0;
  }

  // child returns the child of node p for a frame, which it makes if necessary. Most
  // nodes have one child and need no entry in the table.
  child(p, f) {
    const c = this.only[p];
    if (c === 0) return this.only[p] = this.make(p, f);
    if (this.frame[c] === f) return c;
    const at = this.slot(p, f);
    if (this.table[at] !== 0) return this.table[at];
    const id = this.table[at] = this.make(p, f);
    if (++this.used * 2 > this.table.length) this.grow();
    return id;
  }
  make(p, f) {
    this.parent[this.count] = p;
    this.frame[this.count] = f;
    return this.count++;
  }
  slot(p, f) {
    const mask = this.table.length - 1;
    let at = (Math.imul(p, 0x9e3779b1) ^ Math.imul(f + 1, 0x85ebca77)) >>> 0;
    for (at = (at ^ at >>> 15) & mask; ; at = (at + 1) & mask) {
      const id = this.table[at];
      if (id === 0 || this.parent[id] === p && this.frame[id] === f) return at;
    }
  }
  grow() {
    const old = this.table;
    this.table = new Uint32Array(old.length * 2);
    for (const id of old) if (id !== 0) this.table[this.slot(this.parent[id], this.frame[id])] = id;
  }

  // sizes returns the number of nodes of each subtree.
  sizes() {
    const size = new Uint32Array(this.count).fill(1);
    for (let id = this.count - 1; id > 0; id--) size[this.parent[id]] += size[id];
    return size;
  }
  // places returns the index of each node in preorder.
  places(size) {
    const { count, parent } = this;
    const place = new Uint32Array(count);
    const next = new Uint32Array(count); // of the node's next child
    next[0] = 1;
    for (let id = 1; id < count; id++) {
      place[id] = next[parent[id]];
      next[parent[id]] += size[id];
      next[id] = place[id] + 1;
    }
    return place;
  }
}

// rebuild returns data with another tree: follow(trie, node, frame) returns the new node
// for a frame that was called from the given one, and enter(trie, node) announces the
// node at which the next frames begin. Samples that are not kept are left out.
function rebuild(data, follow, enter = () => {}) {
  const { tree: { count, first, parent, from, frame }, samples } = data;
  const trie = new Trie(frame.length, frame[0]);
  const last = new Uint32Array(count); // by chain, the new node of its last node
  for (let k = 0; k < count; k++) {
    let at = k === 0 ? 0 : last[parent[k]];
    enter(trie, at);
    for (let n = k === 0 ? 1 : first[k]; n < first[k + 1]; n++) at = follow(trie, at, frame[n]);
    last[k] = at;
  }
  const size = trie.sizes();
  const place = trie.places(size);
  // Sort samples by node.
  const starts = new Uint32Array(trie.count + 1);
  const each = (act) => {
    for (let k = 0; k < count; k++) {
      for (let s = from[k]; s < from[k + 1]; s++) if (!samples.kept || samples.kept[s]) act(place[last[k]], s);
    }
  };
  each((node) => starts[node + 1]++);
  for (let n = 0; n < trie.count; n++) starts[n + 1] += starts[n];
  const total = starts[trie.count];
  const order = new Uint32Array(total);
  const next = starts.slice();
  each((node, s) => { order[next[node]++] = s; });
  const pick = (column) => {
    const picked = new column.constructor(total);
    for (let i = 0; i < total; i++) picked[i] = column[order[i]];
    return picked;
  };
  const frames = new Uint32Array(trie.count);
  const below = new Uint32Array(trie.count); // sizes in preorder
  for (let id = 0; id < trie.count; id++) {
    frames[place[id]] = trie.frame[id];
    below[place[id]] = size[id];
  }
  return {
    ...data, tree: chained(frames, below, starts),
    // origin has the rows of the table of times.
    samples: { count: total, task: pick(samples.task), values: samples.values.map(pick), origin: samples.origin ? pick(samples.origin) : order },
  };
}

// chained returns the tree of nodes in preorder with the given frames and subtree sizes.
// Samples from[n] to from[n+1]-1 end on node n.
function chained(frame, size, from) {
  const nodes = frame.length;
  let count = 0;
  const endsChain = (n) => from[n] !== from[n + 1] || size[n] === 1 || size[n + 1] !== size[n] - 1;
  for (let n = 0; n < nodes; n++) if (endsChain(n)) count++;
  const columns = () => new Uint32Array(count + 1);
  const tree = { count, first: columns(), parent: columns(), end: columns(), from: columns(), frame };
  const ancestors = []; // chains and the nodes at which they end
  for (let k = 0, n = 0; k < count; k++, n++) {
    while (ancestors.length && ancestors[ancestors.length - 1][1] <= n) tree.end[ancestors.pop()[0]] = k;
    if (ancestors.length) tree.parent[k] = ancestors[ancestors.length - 1][0];
    ancestors.push([k, n + size[n]]);
    tree.first[k] = n;
    while (!endsChain(n)) n++;
    tree.from[k] = from[n];
  }
  for (const [k] of ancestors) tree.end[k] = count;
  tree.first[count] = nodes;
  tree.from[count] = from[nodes];
  return tree;
}

