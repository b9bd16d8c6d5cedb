// ---- The tooltip, and the panel beside the graph.

// describe returns the properties of a frame, as terms and texts.
function describe(data, frame) {
  const { frames, strings } = data;
  const kind = data.kinds[frames.kind[frame]];
  if (kind === 'root') return [];
  const facts = [['Kind', KIND_LABELS[kind] + (frames.inlined[frame] ? ', inlined' : '')]];
  const module = strings[frames.module[frame]];
  if (module) facts.push(['Module', module, 'path']);
  if (frames.address[frame] !== '0') facts.push(['Address', `0x${frames.address[frame]}`, 'path']);
  const file = strings[frames.file[frame]];
  if (file) facts.push(['Source', sourceOf(data, frame), 'path']);
  return facts;
}

// sourceOf returns the file and start line of a frame's function, as far as known.
function sourceOf({ frames, strings }, frame) {
  const file = strings[frames.file[frame]];
  return file && frames.line[frame] ? `${file}:${frames.line[frame]}` : file;
}

class Tip {
  constructor() { this.tip = byId('tip'); }
  hide() { this.tip.hidden = true; }
  show(name, facts, x, y) {
    const { tip } = this;
    tip.replaceChildren(element('h2', name), definitions(element('dl'), facts));
    tip.hidden = false;
    const { width, height } = tip.getBoundingClientRect();
    const left = Math.min(x + 14, window.innerWidth - width - 10);
    const below = y + 18;
    tip.style.left = `${Math.max(10, left)}px`;
    tip.style.top = `${Math.max(10, below + height > window.innerHeight - 10 ? y - height - 12 : below)}px`;
  }
}

// shares returns a list of [text, value, onClick, beside], with bars for the values'
// shares of whole. A text beside the name is optional.
function shares(heading, entries, whole, valueType) {
  const section = element('section');
  const list = element('ol');
  for (const [text, value, onClick, beside] of entries) {
    const item = element('li');
    const name = button('', onClick);
    name.append(element('span', text, 'name'));
    if (beside) name.append(element('span', beside, 'beside'));
    name.title = text.slice(0, 500);
    const meter = element('meter');
    meter.max = Math.max(whole, 0);
    meter.value = value;
    meter.setAttribute('aria-hidden', 'true');
    item.append(name, element('span', percent(value, whole), 'share'), meter);
    item.title = amount(value, valueType);
    list.append(item);
  }
  section.append(element('h3', heading), list);
  return section;
}

// stackText returns the stack of a box, one function a line with its module, the innermost
// first.
function stackText(data, names, view, box) {
  const { frames, strings, kinds } = data;
  const path = [];
  for (let b = box; b; b = b.parent) path.push(b.frame);
  if (view instanceof CallerView) path.reverse();
  return path.filter((f) => kinds[frames.kind[f]] !== 'root').map((f) => {
    const module = strings[frames.module[f]];
    return module ? `${names.of(f)} (${moduleName(module)})` : names.of(f);
  }).join('\n');
}

// literal returns an expression that matches only text.
function literal(text) { return text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&'); }

const SHOWN_FINDINGS = 3; // unfolded

// clock returns the time of day of a date in RFC 3339, to a millisecond.
const clock = (date) => new Date(date).toLocaleTimeString(undefined, { timeStyle: 'medium', hourCycle: 'h23' })
  .concat(`.${date.match(/\.(\d+)/)?.[1].padEnd(3, '0').slice(0, 3) ?? '000'}`);

const MIN_PANEL = 200;
const MAX_PANEL = 1600;

// A Panel describes a box and the totals of its function, or else says what dominates: it has the
// findings of a report, and lists the hottest functions.
class Panel {
  constructor(page) {
    this.page = page;
    this.panel = byId('details');
    this.edge = byId('edge');
    this.unfolded = new Set(); // the kinds of sections that are unfolded, see folded
    this.listen();
  }

  // widen sets the width in CSS pixels, 0 for the style sheet's.
  widen(width) {
    this.panel.style.width = width > 0 ? `${Math.max(MIN_PANEL, Math.min(width, MAX_PANEL))}px` : '';
    this.edge.setAttribute('aria-valuenow', String(Math.round(this.panel.offsetWidth)));
  }
  listen() {
    const { edge, panel, page } = this;
    const set = (width) => page.state.set({ panel: String(Math.round(Math.max(MIN_PANEL, Math.min(width, MAX_PANEL)))) });
    edge.addEventListener('pointerdown', (event) => {
      edge.setPointerCapture(event.pointerId);
      const from = panel.offsetWidth + event.clientX;
      const move = (e) => set(from - e.clientX);
      edge.addEventListener('pointermove', move);
      edge.addEventListener('lostpointercapture', () => edge.removeEventListener('pointermove', move), { once: true });
    });
    edge.addEventListener('dblclick', () => page.state.set({ panel: '' }));
    edge.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: 20, ArrowRight: -20 }[event.key];
      if (!by) return;
      set(panel.offsetWidth + by);
      event.preventDefault();
      event.stopPropagation();
    });
  }

  showHottest() {
    const { page, page: { functions, weights, data } } = this;
    const title = element('h2', 'Details', 'unseen');
    if (data.compared) {
      this.panel.replaceChildren(title, ...this.findings(), ...this.changes(), ...this.slowest());
      return;
    }
    const findings = [...this.findings(), ...this.slowest()];
    let hasNotes = false;
    const top = (heading, sums, count, keeps) => {
      const list = this.grouped(sums, keeps).sort((a, b) => b.value - a.value).slice(0, count);
      return list.length ? [this.list(heading, list, hasNotes)] : [];
    };
    const isFunction = (f) => functions.isCode(f) && !functions.isNote(f);
    const self = page.selfSums;
    let notes = 0;
    self.forEach((v, f) => { if (functions.isNote(f)) notes += v; });
    const ends = self.reduce((count, v) => count + (v > 0), 0);
    if (notes * 2 <= weights.whole && ends !== 1) {
      this.panel.replaceChildren(title, ...findings, ...top('Hottest functions', self, 20, (f) => functions.isCode(f)));
      return;
    }
    // The stacks end in notes: waits or requests; or all in one function: an event's.
    hasNotes = true;
    const { values } = page.totalSums;
    const waits = functions.waitSums(weights);
    const isFile = (f) => functions.isNote(f) && page.names.of(functions.frames[f]).startsWith('[/');
    this.panel.replaceChildren(title, ...findings,
      ...top('Hottest functions of programs', waits.inner, 12, isFunction),
      ...top('Files', values, 8, isFile),
      ...top('Reasons', waits.ends, 8, (f) => functions.isNote(f) && !isFile(f)));
  }

  // findings returns the section of findings. They are those of all samples, about the value that the
  // page shows first.
  findings() {
    const { page, page: { data } } = this;
    if (data.findings.length === 0) return [];
    const items = data.findings.map(({ text, remedy }) => {
      const item = element('li', text);
      if (remedy) item.append(element('span', ` Remedy: ${remedy}.`));
      return item;
    });
    const isAll = page.valueIndex === data.value && page.isWhole;
    return [this.folded('findings', isAll ? 'Findings' : `Findings by ${nameInText(data.values[data.value])}, of all samples`, items)];
  }

  // slowest returns the section of the slowest intervals. They are those of all samples.
  slowest() {
    const { page: { data: { slowest } } } = this;
    if (!slowest) return [];
    const items = slowest.map(({ begin, length, running, runnable, waiting, thread, fields }) => {
      const item = element('li', `${duration(length)}, ${clock(begin)}`);
      const parts = [['running', running], ['runnable', runnable], ['waiting', waiting]].map(([what, time]) => `${duration(time)} ${what}`);
      item.append(element('div', parts.join(', '), 'faint'), element('div', thread, 'faint'),
        ...(fields ?? []).map(([name, value]) => element('div', `${name} = ${value}`, 'field')));
      return item;
    });
    return [this.folded('slowest', 'Slowest intervals', items)];
  }

  // folded returns a section of a kind with items, of which it shows the first ones until it is unfolded.
  folded(kind, heading, items) {
    const section = element('section', undefined, `findings ${kind}`);
    const list = (some) => {
      const l = element('ul');
      l.append(...some);
      return l;
    };
    section.append(element('h3', heading), list(items.slice(0, SHOWN_FINDINGS)));
    if (items.length > SHOWN_FINDINGS) {
      const rest = element('details');
      rest.open = this.unfolded.has(kind);
      rest.addEventListener('toggle', () => { this.unfolded[rest.open ? 'add' : 'delete'](kind); });
      rest.append(element('summary', `${items.length - SHOWN_FINDINGS} more`), list(items.slice(SHOWN_FINDINGS)));
      section.append(rest);
    }
    return section;
  }

  // grouped returns the functions with their values. Code without functions is one entry per
  // module, as in other tables of functions, with what all its names begin with.
  grouped(sums, keeps) {
    const { page: { names, functions: { frames }, data: { frames: { module } } } } = this;
    const entries = new Map();
    sums.forEach((value, f) => {
      if (value <= 0 || !keeps(f)) return;
      const start = names.beforeAddress(frames[f]);
      const key = start ? `${start} ${module[frames[f]]}` : f;
      if (!entries.has(key)) entries.set(key, { f, value: 0, start });
      entries.get(key).value += value;
    });
    return [...entries.values()];
  }

  // list returns a list of entries of grouped, with modules if hasModules is set.
  list(heading, entries, hasModules) {
    const { page, page: { names, functions, weights, data } } = this;
    return shares(heading, entries.map(({ f, value, start }) => {
      const frame = functions.frames[f];
      const beside = hasModules || start ? moduleName(data.strings[data.frames.module[frame]]) : '';
      return start ? ['[no name]', value, () => page.state.set({ q: `^${literal(start)}` }), beside]
        : [names.shown(frame), value, () => page.chosen(f), beside];
    }), weights.whole, page.valueType);
  }

  // changes returns the functions whose share changed most, with their values before and
  // now.
  changes() {
    const { page, page: { names, functions, weights, valueType, totalSums: { values, base } } } = this;
    const change = functions.frames.map((_, f) => functions.isCode(f)
      ? values[f] / (weights.whole || 1) - base[f] / (weights.baseWhole || 1) : 0);
    const section = (heading, sign) => {
      const list = [...change.keys()].filter((f) => change[f] * sign > 0)
        .sort((a, b) => sign * (change[b] - change[a])).slice(0, 10);
      const items = element('ol');
      for (const f of list) {
        const item = element('li');
        const name = button('', () => page.chosen(f));
        name.append(element('span', names.shown(functions.frames[f]), 'name'),
          element('span', `${amount(base[f], valueType)} → ${amount(values[f], valueType)}`, 'beside'));
        name.title = shortened(names.of(functions.frames[f]));
        item.append(name, element('span', pointsChange(change[f], 0), 'share'));
        items.append(item);
      }
      const part = element('section');
      part.append(element('h3', heading), items);
      return list.length ? [part] : [];
    };
    const sides = element('section');
    sides.append(element('h3', 'Totals'), definitions(element('dl'), [
      [capital(page.data.base.name ?? 'before'), amount(weights.base.whole, valueType)],
      [capital(page.data.base.other ?? 'now'), amount(weights.whole, valueType)]]));
    return [sides, ...section('More', 1), ...section('Less', -1)];
  }

  show(chart, box) {
    const { page, page: { names, functions, weights, valueType } } = this;
    const name = names.of(box.frame);
    const f = functions.ofFrame[box.frame];
    const tools = element('div', undefined, 'buttons');
    tools.append(
      button('Sandwich', () => page.chosen(f)),
      ...(page.data.listings ? [button('Source', () => page.chosen(f, 'code'))] : []),
      button('Search', () => page.state.set({ q: `^${literal(name)}$` })),
      button('Copy name', () => page.copied(name, 'name')),
      ...(box.parent ? [button('Copy stack', () => page.copied(stackText(page.data, names, chart.view, box), 'stack'))] : []));
    const filters = element('div', undefined, 'buttons small');
    filters.append(...page.filtersFor(chart, box).map(([line, text, key]) => {
      const b = button(text, () => page.addFilter(line));
      b.title = `Filter (${key})`;
      return b;
    }));
    const part = (value) => `${amount(value, valueType)} (${percent(value, weights.whole)})`;
    const callees = page.viewOf('callees of', f);
    const near = (heading, view) => {
      const entries = view.children(view.root).slice(0, 8).map((b) =>
        [names.shown(b.frame), b.total, () => page.chosen(functions.ofFrame[b.frame])]);
      return entries.length ? [shares(heading, entries, view.root.total, valueType)] : [];
    };
    this.panel.replaceChildren(
      element('h2', name), definitions(element('dl'), page.facts(chart, box)), tools, filters,
      element('h3', 'All occurrences'), definitions(element('dl'), [['Total', part(callees.root.total)], [page.selfName, part(page.selfSums[f])]]),
      ...near('Called from', page.viewOf('callers of', f)), ...near('Calls', callees));
  }
}

