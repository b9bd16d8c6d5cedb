'use strict';
// Draws the flame graph whose data stands in the element "data"; data.go
// describes its tables. Names in it are foreign text: they reach the page
// through textContent and fillText alone.
(async () => {
  const ROW = 20;          // height of a row in CSS pixels
  const MIN_WIDTH = 0.5;   // a narrower box is left out with all it carries
  const PAD = 5;           // between a box's edge and its label
  const SHADES = 5;        // lightnesses of one colour
  const CHANGES = 8;       // steps from the same to gone or new
  const KIND_LABELS = {
    cpu: 'CPU', process: 'Process', user: 'User', kernel: 'Kernel', jit: 'JIT',
    unresolved: 'No symbol', marker: 'Note',
  };

  const byId = (id) => document.getElementById(id);
  const element = (tag, text, className) => {
    const e = document.createElement(tag);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  };

  // ---- data

  async function load() {
    const source = byId('data');
    if (source.type === 'application/json') return JSON.parse(source.textContent);
    const bytes = Uint8Array.from(atob(source.textContent.trim()), (c) => c.charCodeAt(0));
    const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Response(unpacked).json();
  }

  // Columns by node, in preorder: the descendants of n are n+1 to end[n]-1.
  function buildTree(data) {
    const frame = Uint32Array.from(data.nodes.frame);
    const depth = Uint32Array.from(data.nodes.depth);
    const count = frame.length;
    const parent = new Uint32Array(count);
    const end = new Uint32Array(count);
    const self = new Float64Array(count);
    const total = new Float64Array(count);
    const start = new Float64Array(count); // left edge, in units of the value
    data.samples.node.forEach((n, i) => { self[n] += data.samples.values[data.value][i]; });
    // In a comparison, what the base and the new profile have of a node.
    const [before, after] = data.compare ? [0, 1].map((v) => {
      const sums = new Float64Array(count);
      data.samples.node.forEach((n, i) => { sums[n] += data.samples.values[v][i]; });
      return sums;
    }) : [];
    const callers = []; // by depth, the node met last
    for (let n = 0; n < count; n++) {
      callers[depth[n]] = n;
      if (n > 0) parent[n] = callers[depth[n] - 1];
      end[n] = n + 1;
    }
    for (let n = count - 1; n >= 0; n--) {
      total[n] += self[n];
      if (n === 0) break;
      total[parent[n]] += total[n];
      if (data.compare) {
        before[parent[n]] += before[n];
        after[parent[n]] += after[n];
      }
      if (end[n] > end[parent[n]]) end[parent[n]] = end[n];
    }
    const next = new Float64Array(count); // where the next child of a node begins
    for (let n = 1; n < count; n++) {
      start[n] = next[n] = next[parent[n]];
      next[parent[n]] += total[n];
    }
    return { count, frame, parent, depth, end, self, total, start, before, after };
  }

  let data;
  try {
    data = await load();
  } catch (err) {
    byId('notice').hidden = false;
    byId('notice').textContent = `The data of this page cannot be read: ${err.message}`;
    return;
  }
  const tree = buildTree(data);
  const { frame, parent, depth, end, self, total, start, before, after } = tree;
  const frames = data.frames;
  const nameOf = (n) => data.strings[frames.name[frame[n]]];
  const kindOf = (n) => data.kinds[frames.kind[frame[n]]];

  // ---- numbers as text

  const { type, unit } = data.values[data.value];
  const noun = data.compare ? 'samples' : type; // of what is counted
  const digits = new Intl.NumberFormat('en');
  function scaled(v, steps) {
    for (const [size, name] of steps) {
      if (v >= size) return `${Number((v / size).toPrecision(3)).toLocaleString('en')} ${name}`;
    }
    return `${digits.format(v)} ${steps[steps.length - 1][1]}`;
  }
  function amount(v, long) {
    switch (unit) {
      case 'count':
        if (!long) return digits.format(v);
        return `${digits.format(v)} ${v === 1 ? noun.replace(/s$/, '') : noun}`;
      case 'nanoseconds': return scaled(v, [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']]);
      case 'bytes': return scaled(v, [[2 ** 30, 'GiB'], [2 ** 20, 'MiB'], [2 ** 10, 'KiB'], [1, 'B']]);
      default: return `${digits.format(v)} ${unit}`;
    }
  }
  function percent(part, whole) {
    const p = whole > 0 ? 100 * part / whole : 0;
    return `${p.toFixed(p === 0 || p >= 99.95 ? 0 : p >= 10 ? 1 : 2)}%`;
  }

  // ---- colours

  let palette; // by kind, a list of shades; and the colours of lines and labels
  function readPalette() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(`--${name}`).trim();
    const shades = (name) => {
      const [l, chroma, hue] = value(name).split(/\s+/).map(Number);
      return Array.from({ length: SHADES }, (_, i) => {
        const step = i - (SHADES - 1) / 2;
        return `oklch(${l + step * 0.014} ${chroma} ${hue + step * 3})`;
      });
    };
    // Of a comparison, from gone over the same to new.
    const changes = (name) => {
      const [l, chroma, hue] = value(name).split(/\s+/).map(Number);
      const [same] = value('same').split(/\s+/).map(Number);
      return Array.from({ length: CHANGES + 1 }, (_, i) =>
        `oklch(${same + (l - same) * i / CHANGES} ${chroma * i / CHANGES} ${hue})`);
    };
    palette = {
      kinds: data.kinds.map(shades),
      changes: [...changes('less').reverse(), ...changes('more').slice(1)],
      match: shades('match')[2],
      label: value('label'), faint: value('faint'), text: value('text'), accent: value('accent'),
      mono: value('mono'),
    };
  }
  // A name always has the same shade, so that one function can be followed
  // through the graph.
  const shadeOf = Uint8Array.from(frames.name, (id) => {
    const name = data.strings[id];
    let hash = 2166136261;
    for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16777619);
    return (hash >>> 8) % SHADES;
  });

  // How a node changed, from -1 for what is gone to 1 for what is new.
  function change(n) {
    const most = Math.max(before[n], after[n]);
    return most > 0 ? (after[n] - before[n]) / most : 0;
  }
  const colourOf = (n) => data.compare ? palette.changes[Math.round((change(n) + 1) * CHANGES)] :
    palette.kinds[frames.kind[frame[n]]][shadeOf[frame[n]]];

  // ---- layout and drawing

  const scroller = byId('scroller');
  const space = byId('space');
  const canvas = byId('chart');
  const ctx = canvas.getContext('2d');
  let zoom = 0;            // the node that takes the whole width
  let hovered = -1;
  let selected = -1;       // the node the keyboard is at
  let icicle = false;
  let matches = null;      // by frame, whether the search matches it
  let rows = [];           // by depth, the nodes shown there from left to right
  let width = 0;           // of the chart, in CSS pixels
  let view = 0;            // height of the visible part

  const isCaller = (n) => n < zoom && end[n] > zoom;
  const left = (n) => isCaller(n) ? 0 : (start[n] - start[zoom]) / total[zoom] * width;
  const span = (n) => isCaller(n) ? width : total[n] / total[zoom] * width;

  function layout() {
    width = Math.max(1, space.clientWidth);
    view = scroller.clientHeight;
    rows = [];
    if (total[0] <= 0) return;
    for (let n = zoom; n !== 0;) { n = parent[n]; rows[depth[n]] = [n]; }
    const least = MIN_WIDTH / width * total[zoom];
    for (let n = zoom; n < end[zoom];) {
      if (total[n] < least) { n = end[n]; continue; }
      (rows[depth[n]] ??= []).push(n);
      n++;
    }
    const height = Math.max(view, rows.length * ROW + PAD * 2);
    space.style.height = `${height}px`;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(view * ratio);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${view}px`;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.textBaseline = 'middle';
  }

  // The rows' distance from the canvas's top edge.
  function rowTop(d) {
    const height = parseFloat(space.style.height);
    return (icicle ? PAD + d * ROW : height - PAD - (d + 1) * ROW) - scroller.scrollTop;
  }
  function rowAt(y) {
    const height = parseFloat(space.style.height);
    const fromTop = y + scroller.scrollTop;
    return Math.floor((icicle ? fromTop - PAD : height - PAD - fromTop) / ROW);
  }

  // As much of a name as fits. Labels are monospaced, so that counting
  // suffices; fillText squeezes the wide characters of other scripts.
  function label(name, room, charWidth) {
    const fit = Math.floor(room / charWidth);
    if (name.length <= fit) return name;
    return fit < 3 ? '' : `${name.slice(0, fit - 1)}…`;
  }

  function paint() {
    ctx.clearRect(0, 0, width, view);
    const upright = `11.5px ${palette.mono}`;
    const italic = `italic ${upright}`; // inlined functions
    ctx.font = upright;
    const charWidth = ctx.measureText('m').width;
    for (let d = 0; d < rows.length; d++) {
      const top = rowTop(d);
      if (top + ROW < 0 || top > view) continue;
      for (const n of rows[d]) {
        const x = left(n);
        const w = span(n);
        const matched = matches && matches[frame[n]];
        const faded = (matches && !matched) || isCaller(n);
        const gap = w > 3 ? 1 : w > 1.5 ? 0.5 : 0;
        ctx.globalAlpha = faded ? 0.45 : 1;
        ctx.fillStyle = matched ? palette.match : colourOf(n);
        if (w > 8) {
          ctx.beginPath();
          ctx.roundRect(x, top, w - gap, ROW - 1, 2.5);
          ctx.fill();
        } else {
          ctx.fillRect(x, top, w - gap, ROW - 1);
        }
        const room = w - 2 * PAD;
        const text = room > 0 ? label(nameOf(n), room, charWidth) : '';
        if (text) {
          ctx.globalAlpha = faded ? 0.75 : 1;
          ctx.fillStyle = palette.label;
          ctx.font = frames.inlined[frame[n]] ? italic : upright;
          ctx.fillText(text, x + PAD, top + ROW / 2, room);
        }
      }
    }
    ctx.globalAlpha = 1;
    if (hovered >= 0 && hovered !== selected) outline(hovered, palette.text, 1);
    if (selected >= 0) outline(selected, palette.accent, 2);
  }
  function outline(n, colour, lineWidth) {
    ctx.strokeStyle = colour;
    ctx.lineWidth = lineWidth;
    ctx.beginPath();
    ctx.roundRect(left(n) + 0.5, rowTop(depth[n]) + 0.5, Math.max(span(n) - 2, 1), ROW - 2, 2.5);
    ctx.stroke();
  }

  let scheduled = false;
  function repaint() {
    if (scheduled) return;
    scheduled = true;
    requestAnimationFrame(() => { scheduled = false; paint(); });
  }
  function relayout() { layout(); repaint(); }

  // ---- finding boxes

  function nodeAt(x, y) {
    const row = rows[rowAt(y)];
    if (!row || x < 0) return -1;
    let low = 0;
    let high = row.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (left(row[middle]) <= x) low = middle; else high = middle - 1;
    }
    return x < left(row[low]) + Math.max(span(row[low]), 1) && x >= left(row[low]) ? row[low] : -1;
  }
  const shown = (n) => n >= 0 && (rows[depth[n]] || []).includes(n);

  function scrollTo(n) {
    const top = rowTop(depth[n]);
    if (top < 0) scroller.scrollTop += top - ROW;
    else if (top + ROW > view) scroller.scrollTop += top + 2 * ROW - view;
  }

  // ---- tooltip

  const tip = byId('tip');
  function describe(n) {
    const f = frame[n];
    const facts = [[amountTitle(), `${amount(total[n])} (${percent(total[n], total[0])})`]];
    if (data.compare) {
      const delta = after[n] - before[n];
      const relative = before[n] > 0 ? `, ${delta < 0 ? '−' : '+'}${percent(Math.abs(delta), before[n])}` : '';
      facts.push(['Before', `${amount(before[n])} (${percent(before[n], before[0])})`]);
      facts.push(['After', `${amount(after[n])} (${percent(after[n], after[0])})`]);
      facts.push(['Change', `${delta < 0 ? '−' : '+'}${amount(Math.abs(delta))}${relative}`]);
    }
    if (self[n] > 0) facts.push(['Self', `${amount(self[n])} (${percent(self[n], total[0])})`]);
    if (zoom !== 0 && !isCaller(n)) facts.push(['Of zoomed', percent(total[n], total[zoom])]);
    if (kindOf(n) === 'root') return facts;
    let kind = KIND_LABELS[kindOf(n)];
    if (frames.inlined[f]) kind += ', inlined';
    facts.push(['Kind', kind]);
    const module = data.strings[frames.module[f]];
    if (module) facts.push(['Module', module, 'path']);
    if (frames.address[f] !== '0') facts.push(['Address', `0x${frames.address[f]}`, 'path']);
    const file = data.strings[frames.file[f]];
    if (file) facts.push(['Source', frames.line[f] ? `${file}:${frames.line[f]}` : file, 'path']);
    return facts;
  }
  const amountTitle = () => type.charAt(0).toUpperCase() + type.slice(1);
  function definitions(list, facts) {
    list.replaceChildren(...facts.map(([term, text, className]) => {
      const pair = element('div');
      pair.append(element('dt', term), element('dd', text, className));
      return pair;
    }));
    return list;
  }
  function showTip(n, x, y) {
    if (n < 0) { tip.hidden = true; return; }
    tip.replaceChildren(element('h2', nameOf(n)), definitions(element('dl'), describe(n)));
    tip.hidden = false;
    const { width: w, height: h } = tip.getBoundingClientRect();
    const fitX = Math.min(x + 14, window.innerWidth - w - 10);
    const below = y + 18;
    tip.style.left = `${Math.max(10, fitX)}px`;
    tip.style.top = `${Math.max(10, below + h > window.innerHeight - 10 ? y - h - 12 : below)}px`;
  }
  function tipAtBox(n) {
    const box = canvas.getBoundingClientRect();
    const x = Math.min(Math.max(left(n), 0), width);
    showTip(n, box.left + x, box.top + rowTop(depth[n]) + ROW);
  }

  // ---- zoom, selection, search

  function zoomTo(n) {
    zoom = n;
    hovered = -1;
    tip.hidden = true;
    relayout();
    if (!shown(selected)) selected = -1;
    scroller.scrollTop = 0;
    const top = rowTop(depth[n]);
    if (!icicle) scroller.scrollTop = top + 2 * ROW - view;
    else if (top + ROW > view) scroller.scrollTop = top - ROW;
    showPath();
  }
  function showPath() {
    byId('reset').disabled = zoom === 0;
    const nodes = [];
    for (let n = zoom; n !== 0; n = parent[n]) nodes.push(n);
    nodes.push(0);
    nodes.reverse();
    // The way is told by its beginning and its end.
    const hidden = nodes.length > 6 ? nodes.splice(2, nodes.length - 5).length : 0;
    const parts = nodes.map((n) => {
      const b = element('button', nameOf(n) || '(no name)');
      b.type = 'button';
      b.title = nameOf(n);
      if (n === zoom) b.setAttribute('aria-current', 'true');
      else b.addEventListener('click', () => zoomTo(n));
      return b;
    });
    if (hidden) parts.splice(2, 0, element('span', `… ${hidden} more …`));
    byId('path').replaceChildren(...parts.flatMap((p, i) => i ? [element('span', '›'), p] : [p]));
    if (zoom !== 0) byId('path').append(element('span', ` ${percent(total[zoom], total[0])}`));
  }

  function select(n) {
    if (n < 0 || !shown(n)) return;
    selected = n;
    scrollTo(n);
    tipAtBox(n);
    repaint();
    byId('spoken').textContent = `${nameOf(n)}: ${amount(total[n], true)}, ${percent(total[n], total[0])}`;
  }
  function move(key) {
    if (!shown(selected)) { select(zoom); return; }
    const outward = icicle ? 'ArrowDown' : 'ArrowUp';
    if (key === 'ArrowLeft' || key === 'ArrowRight') {
      const row = rows[depth[selected]];
      select(row[row.indexOf(selected) + (key === 'ArrowRight' ? 1 : -1)] ?? -1);
    } else if (key !== outward) {
      if (selected !== 0) select(parent[selected]);
    } else if (isCaller(selected)) {
      select(rows[depth[selected] + 1][0]);
    } else if (end[selected] > selected + 1) {
      select(selected + 1); // siblings stand heaviest first
    }
  }

  const search = byId('search');
  const matched = byId('matched');
  function applySearch() {
    const text = search.value;
    matches = null;
    tip.hidden = true;
    matched.textContent = '';
    matched.className = '';
    if (text) {
      let pattern;
      try {
        // Only a search with capitals tells them apart.
        pattern = new RegExp(text, /[A-Z]/.test(text.replace(/\\./g, '')) ? '' : 'i');
      } catch {
        matched.textContent = 'not a valid expression';
        matched.className = 'bad';
        repaint();
        return;
      }
      matches = Uint8Array.from(frames.name, (id, f) =>
        data.kinds[frames.kind[f]] !== 'root' && pattern.test(data.strings[id]) ? 1 : 0);
      // The outermost match of a stack counts, its descendants do not again.
      let sum = 0;
      for (let n = 0; n < tree.count;) {
        if (!matches[frame[n]]) { n++; continue; }
        sum += total[n];
        n = end[n];
      }
      matched.textContent = `${percent(sum, total[0])} matched`;
    }
    repaint();
  }
  function widestMatch() {
    let best = -1;
    for (const row of rows) {
      for (const n of row) {
        if (matches[frame[n]] && !isCaller(n) && (best < 0 || total[n] > total[best])) best = n;
      }
    }
    return best;
  }

  function turn(toIcicle) {
    icicle = toIcicle;
    byId('flame').setAttribute('aria-pressed', String(!icicle));
    byId('icicle').setAttribute('aria-pressed', String(icicle));
    zoomTo(zoom);
  }

  // ---- events

  const position = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener('mousemove', (event) => {
    const n = nodeAt(...position(event));
    canvas.style.cursor = n >= 0 ? 'pointer' : 'default';
    showTip(n, event.clientX, event.clientY);
    if (n !== hovered) { hovered = n; repaint(); }
  });
  canvas.addEventListener('mouseleave', () => { hovered = -1; tip.hidden = true; repaint(); });
  canvas.addEventListener('click', (event) => {
    const n = nodeAt(...position(event));
    if (n >= 0) { selected = -1; zoomTo(n); }
  });
  scroller.addEventListener('scroll', () => { hovered = -1; tip.hidden = true; repaint(); });
  search.addEventListener('input', applySearch);
  search.addEventListener('keydown', (event) => {
    if (event.key === 'Enter' && matches) {
      const n = widestMatch();
      canvas.focus();
      select(n);
      event.stopPropagation();
    }
  });
  byId('flame').addEventListener('click', () => turn(false));
  byId('icicle').addEventListener('click', () => turn(true));
  byId('reset').addEventListener('click', () => zoomTo(0));
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const typing = event.target === search;
    if (event.key === 'Escape') {
      // The innermost thing goes first: search, selection, zoom.
      if (search.value) { search.value = ''; applySearch(); }
      else if (selected >= 0) { selected = -1; tip.hidden = true; repaint(); }
      else if (zoom !== 0) zoomTo(0);
      if (typing) canvas.focus();
    } else if (event.key === '/' && !typing) {
      search.focus();
      search.select();
    } else if (event.key.startsWith('Arrow') && !typing) {
      move(event.key);
    } else if (event.key === 'Enter' && selected >= 0 && !typing && event.target.tagName !== 'BUTTON') {
      const n = selected;
      zoomTo(n);
      select(n);
    } else {
      return;
    }
    event.preventDefault();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { readPalette(); showLegend(); relayout(); });
  new ResizeObserver(() => {
    const bottom = parseFloat(space.style.height) - scroller.scrollTop;
    const before = view;
    layout();
    // Callers stay where they are when the window's height changes.
    if (!icicle && before) scroller.scrollTop = parseFloat(space.style.height) - bottom + before - view;
    paint();
  }).observe(scroller);

  // ---- what does not change

  function showLegend() {
    const present = new Set(frames.kind);
    if (data.compare) {
      const ends = [['Gone', 0], ['Less', CHANGES / 2], ['Same', CHANGES], ['More', CHANGES * 1.5], ['New', CHANGES * 2]];
      byId('legend').replaceChildren(...ends.map(([text, i]) => {
        const item = element('li');
        const swatch = element('i');
        swatch.style.background = palette.changes[i];
        item.append(swatch, text);
        return item;
      }));
      return;
    }
    byId('legend').replaceChildren(...data.kinds.flatMap((kind, i) => {
      if (!KIND_LABELS[kind] || !present.has(i)) return [];
      const item = element('li');
      const swatch = element('i');
      swatch.style.background = palette.kinds[i][2];
      item.append(swatch, KIND_LABELS[kind]);
      return [item];
    }));
    if (frames.inlined.includes(1)) byId('legend').append(element('li', 'Inlined', 'inlined'));
  }
  function duration(seconds) {
    return seconds >= 1 ? `${Number(seconds.toFixed(2))} s` : `${Number((seconds * 1000).toPrecision(3))} ms`;
  }
  function showFacts() {
    const m = data.meta;
    const counted = data.compare ? data.value : data.values.findIndex((v) => v.unit === 'count');
    const samples = counted < 0 ? '' :
      digits.format(data.samples.values[counted].reduce((sum, v) => sum + v, 0));
    const rate = m.frequency ? `${digits.format(m.frequency)} Hz` :
      m.period ? `every ${digits.format(m.period)}` : '';
    const losses = (missing) => data.losses.filter((l) => l.missing === missing)
      .map((l) => `${l.what} ${digits.format(l.count)}`).join(', ');
    byId('summary').textContent = [
      m.scope, amount(total[0], true), m.seconds ? duration(m.seconds) : '',
      m.start ? new Date(m.start).toLocaleString(undefined, { dateStyle: 'medium', timeStyle: 'medium' }) : '',
    ].filter(Boolean).join(' · ');
    definitions(byId('facts'), [
      ['Command', m.command],
      ['Host', m.host],
      ['Kernel', [m.kernel, m.arch].filter(Boolean).join(' ')],
      ['CPUs', m.cpus ? String(m.cpus) : ''],
      ['Duration', m.seconds ? duration(m.seconds) : ''],
      ['Event', [m.event, rate].filter(Boolean).join(', ')],
      ['Samples', samples],
      ['Lost', losses(true) || 'nothing', losses(true) && 'warn'],
      ['Incomplete', losses(false)],
    ].filter(([, text]) => text));
  }

  readPalette();
  showLegend();
  showFacts();
  if (total[0] <= 0) {
    byId('notice').hidden = false;
    byId('notice').textContent = 'No samples were taken.';
  }
  zoomTo(0);
  document.documentElement.dataset.ready = 'true';
})();
