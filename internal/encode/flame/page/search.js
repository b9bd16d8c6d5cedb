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
function matchedTotal({ count, end, frame }, total, matches) {
  let sum = 0;
  for (let n = 0; n < count;) {
    if (matches[frame[n]]) {
      sum += total[n];
      n = end[n];
    } else {
      n++;
    }
  }
  return sum;
}

