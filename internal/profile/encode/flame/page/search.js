// ---- Search.

// parseSearch returns a test of frames for a regular expression, of names or,
// after "module:" or "file:", of those. It fails if the expression is wrong.
function parseSearch(text, { frames, strings, kinds }) {
  const [, field, source] = text.match(/^(?:(module|file):)?([^]*)$/);
  // Only a search with capitals tells them apart.
  const pattern = new RegExp(source, /[A-Z]/.test(source.replace(/\\./g, '')) ? '' : 'i');
  const column = frames[field ?? 'name'];
  const known = new Map(); // by string
  return Uint8Array.from(column, (id, f) => {
    if (kinds[frames.kind[f]] === 'root') return 0;
    if (!known.has(id)) known.set(id, pattern.test(strings[id]) ? 1 : 0);
    return known.get(id);
  });
}

// matchedTotal sums what has a match in its stack, each stack once.
function matchedTotal(tree, weights, matches) {
  return nodesWhere(tree, matches).chains.reduce((sum, chain) => sum + weights.total(chain), 0);
}

// A Search holds which frames match, null while nothing is searched for, and
// goes from box to box that does.
class Search {
  constructor(page) {
    this.page = page;
    this.matches = null;
    this.hits = [];
    this.at = -1; // in hits
  }

  parse(text) {
    this.isWrong = false;
    this.matches = null;
    try {
      if (text) this.matches = parseSearch(text, this.page.data);
    } catch {
      this.isWrong = true;
    }
  }

  // show tells how much matches, and finds the boxes of a chart that do, the
  // widest first; chart is null where none is shown.
  show(chart) {
    const { matches, page: { data, weights } } = this;
    this.at = -1;
    this.hits = !matches || !chart ? [] : chart.rows.flat()
      .filter((box) => matches[box.frame] && box.depth >= chart.zoom.depth)
      .sort((a, b) => b.total - a.total || a.depth - b.depth || a.x - b.x);
    byId('matched').className = this.isWrong ? 'bad' : '';
    byId('matched').textContent = this.isWrong ? 'not a valid expression'
      : matches ? `${percent(matchedTotal(data.tree, weights, matches), weights.whole)} matched` : '';
    byId('next').disabled = byId('previous').disabled = this.hits.length === 0;
  }

  // step returns the next hit, or with -1 the previous one, or null.
  step(by) {
    const count = this.hits.length;
    if (count === 0) return null;
    this.at = this.at < 0 && by < 0 ? count - 1 : (this.at + by + count) % count;
    return this.hits[this.at];
  }
}

