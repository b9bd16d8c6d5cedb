// ---- Saving what is shown.

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

// speedscope returns the samples as a file of speedscope, with a profile for each value, like
// package speedscope. Negative amounts have no place in it.
function speedscope(data, names, { title, keeps, value }) {
  const { frames, strings, values, samples } = data;
  const ids = new Map(); // of frames in the file
  const list = [];
  const id = (f) => {
    if (!ids.has(f)) {
      const file = strings[frames.file[f]];
      ids.set(f, list.push({ name: names.of(f), ...(file ? { file, ...(frames.line[f] ? { line: frames.line[f] } : {}) } : {}) }) - 1);
    }
    return ids.get(f);
  };
  const profiles = values.map(({ type, unit }, v) => {
    const stacks = [];
    const weights = [];
    let end = 0;
    eachSample(data, keeps, (s, path) => {
      const weight = samples.values[v][s];
      if (weight <= 0) return;
      stacks.push(path().map(id).reverse());
      weights.push(weight);
      end += weight;
    });
    const known = ['nanoseconds', 'microseconds', 'milliseconds', 'seconds', 'bytes'];
    return { type: 'sampled', name: type, unit: known.includes(unit) ? unit : 'none', startValue: 0, endValue: end, samples: stacks, weights };
  });
  return JSON.stringify({
    $schema: 'https://www.speedscope.app/file-format-schema.json', exporter: 'fulgur', name: title, activeProfileIndex: value, profiles, shared: { frames: list },
  });
}

// eachSample calls act with each sample of the tasks for which keeps is true, and with a
// function that returns the frames of its stack, the innermost first, without the root.
function eachSample({ tree: { count, first, parent, from, frame }, samples }, keeps, act) {
  for (let k = 0; k < count; k++) {
    if (from[k] === from[k + 1]) continue;
    let way = null;
    const path = () => {
      if (way) return way;
      way = [];
      for (let c = k, n = first[k + 1] - 1; n > 0; n--) {
        way.push(frame[n]);
        if (n === first[c]) {
          c = parent[c];
          n = first[c + 1];
        }
      }
      return way;
    };
    for (let s = from[k]; s < from[k + 1]; s++) {
      if (keeps[samples.task[s]] && (!samples.kept || samples.kept[s])) act(s, path);
    }
  }
}

const HEADING = 44;         // CSS pixels for the title of a picture
const MAX_PICTURE = 16_000; // pixels of the screen on a side; browsers have limits

// headed returns what a picture says above the charts, as [text, y, font size, color].
function headed({ data: { title }, colors }) {
  return [[title, 18, 15, colors.text], [byId('summary').textContent, 36, 11.5, colors.rest]];
}

// between returns the text below the first chart: the function of a sandwich, or why there are
// no boxes.
function between({ view }) {
  if (!byId('notice').hidden) return byId('notice').textContent;
  return view === 'sandwich' ? byId('of').textContent : '';
}

// painted returns all rows of the charts as a PNG file.
async function painted(page) {
  const { colors } = page;
  const charts = page.charts();
  const width = charts[0].width + 2 * PAD;
  const height = HEADING + charts.reduce((sum, chart) => sum + chart.needed + ROW, 0);
  const ratio = Math.min(2, MAX_PICTURE / width, MAX_PICTURE / height);
  const canvas = element('canvas');
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const ctx = canvas.getContext('2d');
  ctx.scale(ratio, ratio);
  ctx.fillStyle = colors.ground;
  ctx.fillRect(0, 0, width, height);
  const write = (text, x, y, size, color) => {
    ctx.fillStyle = color;
    ctx.font = `${size}px ${colors.sans}`;
    ctx.textBaseline = 'alphabetic';
    ctx.fillText(text, x, y);
  };
  for (const [text, y, size, color] of headed(page)) write(text, PAD, y, size, color);
  ctx.translate(PAD, HEADING);
  charts.forEach((chart, i) => {
    chart.drawWhole(ctx);
    ctx.translate(0, chart.needed);
    if (i === 0) write(between(page), PAD, ROW - 5, 12, colors.text);
    ctx.translate(0, ROW);
  });
  const file = await new Promise((done) => { canvas.toBlob(done, 'image/png'); });
  if (!file) throw new Error('the picture is too large for this browser');
  return file;
}

// picture returns all rows of the charts as an SVG document.
function picture(page) {
  const { colors, names, weights, matches } = page;
  const charts = page.charts();
  const [{ width }] = charts;
  const height = HEADING + charts.reduce((sum, chart) => sum + chart.needed + ROW, 0);
  const svg = document.implementation.createDocument('http://www.w3.org/2000/svg', 'svg');
  const add = (parent, tag, attributes, text) => {
    const e = svg.createElementNS('http://www.w3.org/2000/svg', tag);
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, String(value));
    if (text !== undefined) e.textContent = text;
    parent.append(e);
    return e;
  };
  const root = svg.documentElement;
  const write = (text, x, y, size, fill) => add(root, 'text', { x, y, fill, 'font-family': 'sans-serif', 'font-size': size }, text);
  // The window around the picture has the same color, too.
  for (const [key, value] of Object.entries({ width, height, viewBox: `0 0 ${width} ${height}` })) {
    root.setAttribute(key, String(value));
  }
  root.style.background = colors.ground;
  add(root, 'rect', { width, height, fill: colors.ground });
  for (const [text, y, size, color] of headed(page)) write(text, PAD, y, size, color);
  let top = HEADING;
  charts.forEach((chart, i) => {
    chart.rows.forEach((row, d) => {
      const y = top + (chart.hanging ? PAD + d * ROW : chart.needed - PAD - (d + 1) * ROW);
      for (const box of row) {
        const group = add(root, 'g', {});
        add(group, 'title', {}, page.spoken(box));
        const fill = matches && matches[box.frame] ? colors.match : colors.of(box, weights);
        add(group, 'rect', { x: box.x, y, width: Math.max(box.width - 0.5, 0.5), height: ROW - 1, fill });
        const text = names.fit(box.frame, Math.floor((box.width - 2 * PAD) / 7));
        if (text) {
          add(group, 'text', { x: box.x + PAD, y: y + 13, fill: colors.label, 'font-family': 'monospace', 'font-size': 11 }, text);
        }
      }
    });
    top += chart.needed + ROW;
    if (i === 0) write(between(page), PAD, top - 5, 12, colors.text);
  });
  return new XMLSerializer().serializeToString(svg);
}

// SAVES are what the menu saves: what is shown, after filters and in the selected time.
const SAVES = {
  async png(page) { save('flame.png', 'image/png', [await painted(page.toChart())]); },
  async svg(page) { save('flame.svg', 'image/svg+xml', [picture(page.toChart())]); },
  async pprof({ shown, names, data, now, valueIndex }) {
    const file = pprof(shown, names, { keeps: taskFilter(data, now.task), value: valueIndex });
    save('flame.pb.gz', 'application/gzip', [await new Response(new Blob([file]).stream().pipeThrough(new CompressionStream('gzip'))).blob()]);
  },
  async json({ shown, names, data, now, valueIndex }) {
    save('flame.speedscope.json', 'application/json', [speedscope(shown, names, { title: data.title, keeps: taskFilter(data, now.task), value: valueIndex })]);
  },
  async folded({ shown, weights, names, valueType }) { save('flame.folded', 'text/plain', folded(shown, weights, names, valueType)); },
};
