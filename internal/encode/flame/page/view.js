// ---- Trees of boxes. A box stands for all nodes that have one frame and one
// way to it. Its children are made when they are first asked for, because of
// millions only thousands are wide enough to be seen.
//
// A box: frame; parent, a box or null; depth, 0 for a tree's root; total and
// base, its values in the profile and in the one it is compared with; nodes
// that it stands for; in trees of callers the shares that they have in it,
// totals and bases, by node; children, heaviest first, or null if not made.

class View {
  // grow calls add(box, node, total, base) for every node that stands for a
  // part of a child of the box; the nodes of one frame make a child.
  constructor(data, weights) {
    this.tree = data.tree;
    this.weights = weights;
    this.slots = new Uint32Array(data.frames.name.length); // by frame, the child's number from 1
  }

  box(parent, frame) {
    return {
      frame, parent, depth: parent ? parent.depth + 1 : 0, total: 0, base: 0,
      nodes: [], totals: null, bases: null, children: null,
      x: 0, width: 0, place: -1, // set by the chart that shows it
    };
  }

  children(box) {
    if (box.children) return box.children;
    const made = [];
    this.grow(box, (node, total, base) => {
      const frame = this.tree.frame[node];
      if (this.slots[frame] === 0) this.slots[frame] = made.push(this.box(box, frame));
      const child = made[this.slots[frame] - 1];
      child.total += total;
      child.base += base;
      this.keep(child, node, total, base);
    });
    for (const child of made) {
      this.slots[child.frame] = 0;
      this.settle(child);
    }
    box.children = made.sort((a, b) => b.total - a.total || b.base - a.base || a.frame - b.frame);
    return made;
  }

  // self is the part of a box's value that no child has.
  self(box) {
    return this.children(box).reduce((rest, child) => rest - child.total, box.total);
  }

  keep(child, node) { child.nodes.push(node); }
  settle() {}
}

// CalleeView shows what nodes call: merged if it begins with several.
class CalleeView extends View {
  constructor(data, weights, frame, nodes) {
    super(data, weights);
    this.root = this.box(null, frame);
    this.root.nodes = nodes;
    for (const n of nodes) {
      this.root.total += weights.total[n];
      if (weights.base) this.root.base += weights.base[n];
    }
  }
  grow(box, add) {
    const { end } = this.tree;
    const { total, base } = this.weights;
    for (const n of box.nodes) {
      for (let c = n + 1; c < end[n]; c = end[c]) {
        const before = base ? base[c] : 0;
        if (total[c] !== 0 || before !== 0) add(c, total[c], before);
      }
    }
  }
}

// CallerView shows from where nodes are called. A node has in a box the share
// of its value that came by the way to that box.
class CallerView extends View {
  // begin calls add(node, total, base) for the nodes to begin with: as the
  // root, if frame is theirs, or as its children. ends tells of frames on
  // which the ways end.
  constructor(data, weights, frame, begin, asRoot, ends) {
    super(data, weights);
    this.ends = ends;
    this.places = data.places ??= new Uint32Array(data.tree.count); // by node, its place in a child from 1; else 0
    this.root = this.box(null, frame);
    this.begin = begin;
    if (asRoot) {
      begin((node, total, base) => {
        this.root.total += total;
        this.root.base += base;
        this.keep(this.root, node, total, base);
      });
      this.settle(this.root);
      this.begin = null;
    } else {
      for (const child of this.children(this.root)) {
        this.root.total += child.total;
        this.root.base += child.base;
      }
    }
  }
  grow(box, add) {
    if (box === this.root && this.begin) { this.begin(add); return; }
    const { parent, frame } = this.tree;
    for (let i = 0; i < box.nodes.length; i++) {
      const caller = parent[box.nodes[i]];
      if (caller !== 0 && !this.ends[frame[caller]]) add(caller, box.totals[i], box.bases[i]);
    }
    box.nodes = box.totals = box.bases = null; // the children have taken over
  }
  // Ways that meet in a caller go on as one.
  keep(child, node, total, base) {
    child.totals ??= [];
    child.bases ??= [];
    let place = this.places[node];
    if (place === 0) {
      place = this.places[node] = child.nodes.push(node);
      child.totals.push(0);
      child.bases.push(0);
    }
    child.totals[place - 1] += total;
    child.bases[place - 1] += base;
  }
  settle(child) {
    for (const node of child.nodes) this.places[node] = 0;
  }
}

// makeView returns the view of a kind: "flame" and "callers" of everything,
// "callees of" and "callers of" function f. Merged, processes and CPUs are left
// out.
function makeView(kind, f, merged, { data, weights, functions }) {
  const { tree, frames, kinds } = data;
  const ends = merged ? frames.kind.map((k) => ['process', 'cpu'].includes(kinds[k])) : [];
  const outermost = () => functions.outermost(f);
  switch (kind) {
    case 'callees of':
      return new CalleeView(data, weights, functions.frames[f], outermost());
    case 'callers of':
      return new CallerView(data, weights, functions.frames[f], (add) => {
        for (const n of outermost()) add(n, weights.total[n], weights.base ? weights.base[n] : 0);
      }, true, ends);
    case 'callers':
      return new CallerView(data, weights, tree.frame[0], (add) => {
        weights.eachSample((node, value, base) => {
          if ((value !== 0 || base !== 0) && !ends[tree.frame[node]]) add(node, value, base);
        });
      }, false, ends);
    default:
      return new CalleeView(data, weights, tree.frame[0], merged ? processNodes(data) : [0]);
  }
}

// processNodes returns the nodes that stand for processes or threads.
function processNodes({ tree, frames, kinds }) {
  const nodes = [];
  for (let n = 1; n < tree.count;) {
    if (kinds[frames.kind[tree.frame[n]]] === 'process') {
      nodes.push(n);
      n = tree.end[n];
    } else {
      n++;
    }
  }
  return nodes;
}

