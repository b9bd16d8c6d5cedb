// ---- The flame chart: what a thread did, from left to right in time.

// Kinds of events of a recording.
const ON_CPU = 0;
const OFF_CPU = 1;

// busiest returns the threads with samples of the tasks for which keeps is true, in a range
// of steps, the one with most time on the CPU first.
function busiest({ times: { threads, thread, kind, starts, at, weight }, samples: { count, task } }, keeps, [from, end]) {
  const weights = threads.tid.map(() => -1);
  for (let s = 0; s < count; s++) {
    if (kind[s] > OFF_CPU || !keeps[task[s]]) continue;
    for (let i = starts[s]; i < starts[s + 1]; i++) {
      if (at[i] < from || at[i] >= end) continue;
      weights[thread[s]] = Math.max(0, weights[thread[s]]) + (kind[s] === ON_CPU ? weight[i] : 0);
    }
  }
  return [...weights.keys()].filter((t) => weights[t] >= 0).sort((a, b) => weights[b] - weights[a]);
}

// A TimeView shows the stacks of a thread in a range of time. A box stands for a function
// that ran, or waited, from its start to its end without a sample of another one. Its
// total is its length in ns.
class TimeView extends View {
  // data may be filtered. range is [from, end] in steps.
  constructor(data, thread, [from, end]) {
    super(data, null);
    const { times } = data;
    this.step = Math.round(times.step * 1e6);
    this.below = this.lengths(data.tree);
    this.from = from * this.step;
    this.spans = this.merge(this.entries(data, thread, from, end), times);
    this.root = this.box(null, data.tree.frame[0]);
    Object.assign(this.root, { start: this.from, total: (end - from) * this.step, to: this.spans.length });
  }

  // entries returns the thread's entries of the table of times in a range, in their order,
  // and the chains at whose ends they are.
  entries({ times: { starts, at, thread: threads, kind }, samples, tree }, thread, from, end) {
    const counts = new Uint32Array(end - from + 1); // by step
    const each = (act) => {
      for (let k = 0; k < tree.count; k++) {
        for (let s = tree.from[k]; s < tree.from[k + 1]; s++) {
          const row = rowOf(samples, s);
          if (threads[row] !== thread || kind[row] > OFF_CPU || samples.kept && !samples.kept[s]) continue;
          for (let i = starts[row]; i < starts[row + 1]; i++) if (at[i] >= from && at[i] < end) act(at[i] - from, i, k);
        }
      }
    };
    each((step) => counts[step + 1]++);
    for (let i = 0; i < end - from; i++) counts[i + 1] += counts[i];
    const entry = new Uint32Array(counts[end - from]);
    const chain = new Uint32Array(entry.length);
    each((step, i, k) => {
      entry[counts[step]] = i;
      chain[counts[step]++] = k;
    });
    return { entry, chain };
  }
  // merge returns the spans of time of entries, each with a chain at whose end it was. The
  // weights of a step are next to each other, and fill it if the thread also has some in the
  // step before: samples are taken at one time, and stand for the time since the last one.
  merge({ entry, chain }, { at, weight, scale }) {
    const { step } = this;
    const spans = [];
    let last = null;
    for (let i = 0; i < entry.length;) {
      const now = at[entry[i]];
      let j = i;
      let sum = 0;
      for (; j < entry.length && at[entry[j]] === now; j++) sum += weight[entry[j]] * scale;
      const endsAt = (now + 1) * step;
      const since = last && last.end >= now * step ? last.end : Math.max(last ? last.end : this.from, endsAt - sum);
      // What goes on comes first.
      const order = Array.from({ length: j - i }, (_, n) => i + n);
      if (last && order.length > 1) order.sort((a, b) => (chain[a] !== last.chain) - (chain[b] !== last.chain));
      let x = since;
      for (const e of order) {
        const until = x + (endsAt - since) * weight[entry[e]] * scale / sum;
        if (last && last.chain === chain[e] && last.end === x) last.end = until;
        else spans.push(last = { start: x, end: until, chain: chain[e] });
        x = until;
      }
      last.end = endsAt;
      i = j;
    }
    return spans;
  }

  // lengths returns by chain the number of nodes below its first one, without the root.
  lengths({ count, first, parent }) {
    const lengths = new Int32Array(count);
    lengths[0] = -1;
    for (let k = 1; k < count; k++) lengths[k] = lengths[parent[k]] + first[parent[k] + 1] - first[parent[k]];
    return lengths;
  }
  // length returns the number of frames of a span's stack.
  length({ chain }) { return this.below[chain] + this.tree.first[chain + 1] - this.tree.first[chain]; }
  // node returns the node of a span's stack above depth others, which must exist.
  node({ chain }, depth) {
    const { below, tree: { first, parent } } = this;
    let c = chain;
    while (below[c] > depth) c = parent[c];
    return first[c] + depth - below[c];
  }

  // grow creates the boxes above a box, in the order of time.
  grow(box, made) {
    let child = null;
    for (let i = box.from; i < box.to; i++) {
      const span = this.spans[i];
      if (this.length(span) <= box.depth) {
        child = null;
        continue;
      }
      const node = this.node(span, box.depth);
      if (!child || child.nodes[0] !== node || child.end !== span.start) {
        child = this.box(box, this.tree.frame[node]);
        Object.assign(child, { start: span.start, from: i, nodes: [node] });
        made.push(child);
      }
      child.to = i + 1;
      child.end = span.end;
      child.total = span.end - child.start;
    }
  }
  sorted(made) { return made; }

  // ticks returns round times and their shares of the range, at most count.
  ticks(count) {
    const { root: { start, total } } = this;
    const fits = (by) => by * count >= total;
    let unit = 1;
    while (!fits(unit * 10)) unit *= 10;
    const by = [1, 2, 5, 10].map((n) => n * unit).find(fits);
    const list = [];
    for (let at = Math.ceil(start / by) * by; at < start + total; at += by) {
      list.push([(at - start) / total, `${Number((at / 1e9).toFixed(6))} s`]);
    }
    return list;
  }

  // heights returns the number of frames at each of count parts of the range.
  heights(count) {
    const { root } = this;
    const heights = new Uint16Array(count);
    for (const span of this.spans) {
      const part = (time) => Math.max(0, Math.min(count, Math.floor((time - root.start) / root.total * count)));
      const height = this.length(span) + 1;
      const from = Math.min(part(span.start), count - 1);
      const end = Math.max(part(span.end), from + 1);
      for (let i = from; i < end; i++) heights[i] = Math.max(heights[i], height);
    }
    return heights;
  }
  // hasHit reports whether a box, or one above it, matches.
  hasHit(box, hits) {
    for (let i = box.from; i < box.to; i++) {
      const span = this.spans[i];
      for (let d = box.depth - 1; d < this.length(span); d++) if (hits.at(this.node(span, d))) return true;
    }
    return false;
  }
}
