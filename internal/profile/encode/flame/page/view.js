// ---- Trees of boxes. A box stands for all nodes with the same frame and the same
// path to the root. Its children are created on demand: of millions of boxes, only
// thousands are wide enough to be seen.
//
// A box has: frame; parent, a box or null; depth, 0 for a tree's root; total and
// base, its values in the profile and in the base of a comparison; children,
// heaviest first, or null if not created yet. A box of a callee tree also has its
// nodes and their chains. A box of a caller tree has the range of places, from and
// to, whose path leads to it.
// it stands for, and their chains; of trees of callers the range of places, from
// and to, whose way leads to it.

class View {
  // grow creates the children of a box, in any order.
  constructor(data, weights) {
    this.tree = data.tree;
    this.weights = weights;
    this.slots = new Uint32Array(data.frames.name.length); // by frame, the child's number from 1
  }

  box(parent, frame) {
    return {
      frame, parent, depth: parent ? parent.depth + 1 : 0, total: 0, base: 0, children: null,
      nodes: [], chains: [], from: 0, to: 0,
      x: 0, width: 0, place: -1, // set by the chart that shows the box
    };
  }

  children(box) {
    if (box.children) return box.children;
    const made = [];
    this.grow(box, made);
    for (const child of made) this.slots[child.frame] = 0;
    return box.children = this.sorted(made);
  }
  sorted(made) { return made.sort((a, b) => b.total - a.total || b.base - a.base || a.frame - b.frame); }
  // child returns the child of box for a frame, among those created so far.
  child(box, made, frame) {
    if (this.slots[frame] === 0) this.slots[frame] = made.push(this.box(box, frame));
    return made[this.slots[frame] - 1];
  }

  // self returns the value of a box minus its children's.
  self(box) {
    return this.children(box).reduce((rest, child) => rest - child.total, box.total);
  }
}

// CalleeView shows the callees of nodes, merged if there are several nodes.
class CalleeView extends View {
  constructor(data, weights, frame, { nodes, chains }) {
    super(data, weights);
    this.root = this.box(null, frame);
    nodes.forEach((node, i) => this.add(this.root, node, chains[i]));
  }
  add(box, node, chain) {
    box.total += this.weights.total(chain);
    box.base += this.weights.baseTotal(chain);
    box.nodes.push(node);
    box.chains.push(chain);
  }
  // hasHit reports whether a box, or one above it, matches.
  hasHit(box, hits) { return box.nodes.some((node, i) => hits.above(node, box.chains[i])); }
  grow(box, made) {
    const { weights, tree: { first, end, frame } } = this;
    const add = (node, chain) => {
      if (weights.total(chain) === 0 && weights.baseTotal(chain) === 0) return;
      this.add(this.child(box, made, frame[node]), node, chain);
    };
    box.nodes.forEach((node, i) => {
      const chain = box.chains[i];
      if (node + 1 < first[chain + 1]) add(node + 1, chain);
      else for (let c = chain + 1; c < end[chain]; c = end[c]) add(first[c], c);
    });
  }
}

// CallerView shows the callers of nodes. Each node with its share of the whole is a
// place, which moves towards the root as the tree grows: it holds the node and chain
// reached so far. A box has a range of places, which its children divide.
class CallerView extends View {
  // If isRoot is set, the root stands for the given nodes and everything they call,
  // else its children stand for the samples that end on them. Paths end before
  // frames for which ends returns true.
  constructor(data, weights, frame, { nodes, chains }, isRoot, ends) {
    super(data, weights);
    this.isRoot = isRoot;
    this.ends = ends;
    this.node = new Uint32Array(nodes); // by place, like the next three
    this.chain = new Uint32Array(chains);
    this.total = new Float64Array(chains.length);
    this.base = new Float64Array(chains.length);
    this.order = new Uint32Array(chains.length); // places, grouped by box
    this.root = this.box(null, frame);
    chains.forEach((chain, place) => {
      this.total[place] = isRoot ? weights.total(chain) : weights.self(chain);
      this.base[place] = isRoot ? weights.baseTotal(chain) : weights.baseSelf(chain);
      if (this.total[place] !== 0 || this.base[place] !== 0) this.order[this.root.to++] = place;
      if (isRoot) this.weigh(this.root, place);
    });
    if (isRoot) return;
    for (const child of this.children(this.root)) {
      this.root.total += child.total;
      this.root.base += child.base;
    }
  }
  // hasHit reports whether a box, or one of its callers, matches.
  hasHit(box, hits) {
    if (box.children) return box.children.some((child) => hits.matches[child.frame] || this.hasHit(child, hits));
    for (let i = box.from; i < box.to; i++) {
      const place = this.order[i];
      if (hits.below(this.node[place], this.chain[place])) return true;
    }
    return false;
  }
  weigh(box, place) {
    box.total += this.total[place];
    box.base += this.base[place];
  }
  grow(box, made) {
    const { node, order, ends, tree: { frame } } = this;
    for (let i = box.from; i < box.to; i++) {
      const place = order[i];
      if (box.parent || this.isRoot) this.climb(place);
      const f = frame[node[place]];
      if (ends[f]) continue;
      const child = this.child(box, made, f);
      this.weigh(child, place);
      child.to++; // the length of its range, for now
    }
    let at = box.from;
    for (const child of made) {
      child.from = at;
      at += child.to;
      child.to = child.from;
    }
    for (const place of order.slice(box.from, box.to)) {
      const f = frame[node[place]];
      if (!ends[f]) order[made[this.slots[f] - 1].to++] = place;
    }
  }
  // climb moves a place to its caller. The root has no caller and stays: all paths
  // end at its frame.
  climb(place) {
    const { node, chain, tree: { first, parent } } = this;
    if (node[place] === 0) return;
    if (node[place] > first[chain[place]]) {
      node[place]--;
    } else {
      chain[place] = parent[chain[place]];
      node[place] = first[chain[place] + 1] - 1;
    }
  }
}

// makeView returns the view of a kind: "flame" and "callers" show everything,
// "callees of" and "callers of" one function f. If merged is set, process and CPU
// levels are left out.
function makeView(kind, f, merged, { data, weights, functions }) {
  const { tree, frames, kinds } = data;
  const isKind = (...names) => Uint8Array.from(frames.kind, (k) => names.includes(kinds[k]) ? 1 : 0);
  const ends = merged ? isKind(...NOT_CODE) : isKind('root');
  switch (kind) {
    case 'callees of':
      return new CalleeView(data, weights, functions.frames[f], functions.outermost(f));
    case 'callers of':
      return new CallerView(data, weights, functions.frames[f], functions.outermost(f), true, ends);
    case 'callers':
      return new CallerView(data, weights, tree.frame[0], leaves(tree), false, ends);
    default:
      return new CalleeView(data, weights, tree.frame[0], nodesWhere(tree, merged ? isKind('process') : isKind('root')));
  }
}

// nodesWhere returns the lowest nodes whose frames satisfy test, with their chains:
// no returned node is above another.
function nodesWhere({ count, first, end, frame }, test) {
  const found = { nodes: [], chains: [] };
  for (let k = 0; k < count;) {
    let n = first[k];
    while (n < first[k + 1] && !test[frame[n]]) n++;
    if (n < first[k + 1]) {
      found.nodes.push(n);
      found.chains.push(k);
      k = end[k];
    } else {
      k++;
    }
  }
  return found;
}

// leaves returns the nodes on which samples end, with their chains.
function leaves({ count, first, from }) {
  const found = { nodes: [], chains: [] };
  for (let k = 0; k < count; k++) {
    if (from[k] === from[k + 1]) continue;
    found.nodes.push(first[k + 1] - 1);
    found.chains.push(k);
  }
  return found;
}
