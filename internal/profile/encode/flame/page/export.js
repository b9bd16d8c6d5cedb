// ---- Saving the current view.

function save(name, type, parts) {
  const link = element('a');
  link.href = URL.createObjectURL(new Blob(parts, { type }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// folded returns the samples in weights as lines "caller;callee 42". The format
// cannot escape ";", so it becomes ":", as in other tools. Like package folded, it writes
// times in microseconds, and states units other than counts in a first line.
function folded({ tree: { count, first, parent, frame }, frames }, weights, names, { type, unit } = { unit: 'count' }) {
  const texts = frames.name.map((_, f) => names.shown(f).replaceAll(';', ':'));
  const time = unit === 'nanoseconds';
  const lines = time || unit === 'bytes' ? [`# ${type} in ${time ? 'microseconds' : unit}\n`] : [];
  const way = [];
  for (let k = 0; k < count; k++) {
    const value = weights.self(k);
    if (value === 0) continue;
    way.length = 0;
    for (let c = k, n = first[k + 1] - 1; n > 0; n--) {
      way.push(texts[frame[n]]);
      if (n === first[c]) {
        c = parent[c];
        n = first[c + 1];
      }
    }
    lines.push(`${way.reverse().join(';')} ${time ? Math.round(value / 1000) : value}\n`);
  }
  return lines;
}

// picture returns all rows of a chart as an SVG document.
function picture(chart, title) {
  const { page: { colors, names, weights, matches }, rows, width } = chart;
  const top = 40;
  const height = top + Math.max(1, rows.length) * ROW + PAD;
  const svg = document.implementation.createDocument('http://www.w3.org/2000/svg', 'svg');
  const add = (parent, tag, attributes, text) => {
    const e = svg.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, String(value));
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
  };
  const root = svg.documentElement;
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    root.setAttribute(key, String(value));
  }
  add(root, 'rect', { width, height, fill: colors.ground });
  add(root, 'text', { x: 4, y: 24, fill: colors.text, 'font-family': 'sans-serif', 'font-size': 15 }, title);
  if (rows.length === 0) {
    add(root, 'text', { x: 4, y: top + 14, fill: colors.text, 'font-family': 'sans-serif', 'font-size': 13 }, byId('notice').textContent);
  }
  rows.forEach((row, d) => {
    const y = chart.hanging ? top + d * ROW : height - PAD - (d + 1) * ROW;
    for (const box of row) {
      const group = add(root, 'g', {});
      add(group, 'title', {}, chart.page.spoken(box));
      const fill = matches && matches[box.frame] ? colors.match : colors.of(box, weights);
      add(group, 'rect', { x: box.x, y, width: Math.max(box.width - 0.5, 0.5), height: ROW - 1, fill });
      const text = names.fit(box.frame, Math.floor((box.width - 2 * PAD) / 7));
      if (text) {
        add(group, 'text', { x: box.x + PAD, y: y + 14, fill: colors.label, 'font-family': 'monospace', 'font-size': 11 }, text);
      }
    }
  });
  return new XMLSerializer().serializeToString(svg);
}

