// ---- Search.

// smartPattern compiles an expression. Only one with capitals is case-sensitive.
function smartPattern(source) {
  return new RegExp(source, /[A-Z]/.test(source.replace(/\\./g, '')) ? '' : 'i');
}

// parseSearch returns a predicate on frames for a regular expression. It applies to
// names, whole or short, or, after "module:" or "file:", to these. It throws on an
// invalid expression.
function parseSearch(text, { frames, strings, kinds }) {
  const [, field, source] = text.match(/^(?:(module|file):)?([^]*)$/);
  const pattern = smartPattern(source);
  const columns = field ? [frames[field]] : [frames.name, frames.short];
  const known = new Map(); // results by string
  const matches = (id) => {
    if (!known.has(id)) known.set(id, pattern.test(strings[id]));
    return known.get(id);
  };
  return Uint8Array.from(frames.kind, (kind, f) =>
    kinds[kind] !== 'root' && columns.some((column) => matches(column[f])) ? 1 : 0);
}

// matchedTotal sums the stacks that contain a match, each stack once.
function matchedTotal(tree, weights, matches) {
  return nodesWhere(tree, matches).chains.reduce((sum, chain) => sum + weights.total(chain), 0);
}

// Hits tells where matches are, so that boxes too narrow to draw can be asked.
class Hits {
  constructor({ count, first, parent, end, frame }, matches) {
    Object.assign(this, { end, parent, frame, matches });
    this.first = new Uint32Array(count).fill(0xffffffff); // by chain, its first matching node
    this.last = new Int32Array(count).fill(-1); // by chain, its last matching node
    this.path = new Uint8Array(count); // by chain: whether the path to its end has a match
    this.before = new Uint32Array(count + 1); // by chain, the chains before it with a match
    for (let k = 0; k < count; k++) {
      for (let n = first[k]; n < first[k + 1]; n++) {
        if (!matches[frame[n]]) continue;
        if (this.last[k] < 0) this.first[k] = n;
        this.last[k] = n;
      }
      const has = this.last[k] >= 0 ? 1 : 0;
      this.path[k] = has | (k > 0 ? this.path[parent[k]] : 0);
      this.before[k + 1] = this.before[k] + has;
    }
  }
  at(node) { return this.matches[this.frame[node]] === 1; }
  // above reports whether a node of a chain, or a node above it, matches.
  above(node, chain) {
    return this.last[chain] >= node || this.before[this.end[chain]] > this.before[chain + 1];
  }
  // below reports whether a node of a chain, or one of its callers, matches.
  below(node, chain) {
    return this.first[chain] <= node || chain > 0 && this.path[this.parent[chain]] === 1;
  }
}

const MAX_HITS = 10_000;
const MAX_VISITED = 50_000; // boxes in which to look for hits
const TYPING = 300; // ms without a key, after which typing pauses

// A Search holds the matching frames, null without a search, and moves between the
// matching boxes, also those too narrow to draw.
class Search {
  constructor(page) {
    this.page = page;
    this.matches = null;
    this.chart = null;
    this.found = null; // the hits, once needed
    this.at = -1; // index in hits
  }

  parse(text) {
    this.isWrong = false;
    this.matches = null;
    try {
      if (text) this.matches = parseSearch(text, this.page.data);
      this.isNew = true;
    } catch {
      this.isWrong = true;
    }
  }

  // show shows the share of matches in a chart, and soon their number. chart is null if
  // none is shown.
  show(chart) {
    const { matches, page: { shown, weights } } = this;
    const places = matches && chart ? new Hits(shown.tree, matches) : null;
    this.page.eachChart((c) => c.tint(places));
    if (this.view !== chart?.view || this.places?.matches !== places?.matches) {
      this.found = null;
      this.at = -1;
    }
    Object.assign(this, { chart, places, view: chart?.view });
    const total = matches ? matchedTotal(shown.tree, weights, matches) : 0;
    byId('matched').className = this.isWrong ? 'bad' : '';
    byId('matched').textContent = this.isWrong ? 'invalid regular expression'
      : matches ? `${percent(total, weights.whole)} matched` : '';
    byId('next').hidden = byId('previous').hidden = !places || total <= 0;
    clearTimeout(this.timer);
    if (places && !this.found) this.timer = setTimeout(() => this.pause(), TYPING);
    if (!this.found) byId('hits').textContent = '';
  }
  // pause counts the hits of a search, and scrolls to the first one of a new search.
  pause() {
    this.count();
    if (this.isNew) this.chart.scrollToHit(this.hits);
    this.isNew = false;
  }
  // count shows the number of hits, or which of them is selected.
  count() {
    const { hits, at } = this;
    const count = `${digits.format(hits.length)}${this.isCut ? '+' : ''}`;
    byId('hits').textContent = at >= 0 ? `${digits.format(at + 1)} of ${count}` : `${count} ${hits.length === 1 ? 'hit' : 'hits'}`;
  }

  // hits are the matching boxes of the whole view, the widest first. In a view of time,
  // they are those that are drawn.
  get hits() {
    if (!this.found) {
      const { chart, matches } = this;
      this.isCut = false;
      this.found = (chart.view instanceof TimeView ? chart.rows.flat().filter((box) => matches[box.frame]) : this.collect())
        .sort((a, b) => b.total - a.total || a.depth - b.depth || a.x - b.x);
    }
    return this.found;
  }
  collect() {
    const { places, matches, chart: { view } } = this;
    const found = [];
    const queues = []; // of boxes with hits, by the logarithm of their values
    const put = (box) => (queues[Math.floor(Math.log2(box.total))] ??= []).push(box);
    put(view.root);
    let visited = 0;
    for (let q = queues.length - 1; q >= 0; q--) {
      for (const box of queues[q] ?? []) { // which grows
        if (matches[box.frame]) found.push(box);
        if (found.length === MAX_HITS || ++visited === MAX_VISITED) {
          this.isCut = true;
          return found;
        }
        for (const child of view.children(box)) {
          if (child.total > 0 && (matches[child.frame] || view.hasHit(child, places))) put(child);
        }
      }
    }
    return found;
  }

  // step returns the next hit, the previous one if by is -1, or null.
  step(by) {
    if (!this.places) return null;
    const count = this.hits.length;
    if (count === 0) return null;
    clearTimeout(this.timer);
    this.isNew = false;
    this.at = this.at < 0 && by < 0 ? count - 1 : (this.at + by + count) % count;
    this.count();
    return this.hits[this.at];
  }
}

