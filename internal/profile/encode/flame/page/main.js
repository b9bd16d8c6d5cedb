// ---- The page: owns the state and updates the parts.

const MAX_VIEWS = 24; // cached, besides those that are shown
const NARROW = 4; // CSS pixels: a hit narrower than that is hard to see
const SEEN = 20;  // width to which it is zoomed, at least

class Page {
  constructor(data) {
    this.data = data;
    this.names = new Names(data);
    this.functions = new Functions(data);
    this.filter = new Filters(data, this.functions, this.names);
    this.filters = [];
    this.filtered = data; // after the filters
    this.shown = data; // and in the range of time
    this.everything = 0; // the whole value before the filters
    this.range = null; // of time, in steps
    this.directions = new Map(); // by view: whether it hangs from its root, unless the user chooses
    this.heat = data.times ? new HeatMap(this, data.times) : null;
    this.colors = new Colors(data);
    this.tip = new Tip();
    this.menu = new Menu();
    this.pickers = Object.fromEntries(['task', 'thread'].map((key) =>
      [key, new Picker(byId(key), (value) => this.state.set({ [key]: value }, true))]));
    this.popups = [['options', 'options-button'], ['saving', 'save-button'], ['about', 'lost']].map((ids) => new Popup(...ids.map(byId)));
    this.panel = new Panel(this);
    this.search = new Search(this);
    this.chart = new Chart(byId('scroller'), this);
    this.callers = new Chart(byId('callers'), this);
    this.chart.canvas.id = 'chart';
    this.table = new Table(data, this.functions, this);
    this.listing = new Listing(this);
    this.state = new State({
      view: 'flame', thread: '', invert: data.inverted ? '1' : '', value: String(data.value), task: '', time: data.times?.open ?? '', filter: '', merge: '0',
      idle: '0', native: data.native ? '1' : '0', short: data.shortNames ? '1' : '0', panel: '', heat: '',
      color: data.compared ? 'change' : 'kind', q: '', fn: '', zoom: '', up: '', theme: 'auto', sort: data.compared ? 'change' : 'self',
    }, (before) => this.update(before));
    this.listen();
    for (const part of [byId('views').querySelector('[value=code]'), byId('code-key')]) part.hidden = !data.listings;
    for (const part of [byId('views').querySelector('[value=time]'), byId('time'), byId('time-key'), byId('chart-key')]) part.hidden = !data.times;
    for (const id of ['native-choice', 'native-key']) byId(id).hidden = !this.functions.hasScripts;
    showRun(data);
    this.pickers.task.show(data.tasks.pid.length < 2 ? [] : taskChoices(data, data.value), '');
    this.update(null);
  }

  get matches() { return this.search.matches; }
  get now() { return this.state.now; }
  get noun() { return this.data.noun ?? 'samples'; }
  get valueType() { return this.data.values[this.valueIndex]; }
  get valueIndex() { return /^\d+$/.test(this.now.value) && this.now.value in this.data.values ? Number(this.now.value) : 0; }
  get view() {
    const views = ['flame', 'callers', 'sandwich', 'table', ...(this.data.times ? ['time'] : []), ...(this.data.listings ? ['code'] : [])];
    return views.includes(this.now.view) ? this.now.view : 'flame';
  }
  get color() { return this.offered('color'); }
  get theme() { return this.offered('theme'); }
  // offered returns the chosen value of a select, or its default if the value is not
  // among its options.
  offered(key) {
    const isOffered = [...byId(key).options].some((option) => option.value === this.now[key]);
    return isOffered ? this.now[key] : this.state.defaults[key];
  }
  get hasChart() { return this.view !== 'table' && this.view !== 'code'; }

  // update shows the state; before is the previous state, or null.
  update(before) {
    const { now } = this;
    const differs = (...keys) => !before || keys.some((key) => before[key] !== now[key]);
    this.names.isShort = now.short === '1';
    if (differs('time', 'filter', 'idle')) this.applyFilters(differs('filter', 'idle'));
    if (differs('time', 'filter', 'idle', 'short')) this.showFilters();
    if (differs('value')) showSummary(this.data, this.valueIndex);
    if (differs('value', 'task', 'time', 'filter', 'idle')) this.weigh();
    if (differs('native')) this.self = null;
    if (differs('theme')) this.setScheme(this.theme);
    if (differs('panel')) this.panel.widen(Number(now.panel));
    if (differs('heat')) this.foldHeat(now.heat === '0');
    if (differs('theme', 'color')) this.readColors();
    if (differs('q')) {
      this.search.parse(now.q);
      clearTimeout(this.heating);
      this.heating = setTimeout(() => this.showHeat(), TYPING);
    }
    const selected = differs('view', 'fn', 'merge') || this.view === 'time' ? null : this.chart.selection;
    if (differs('merge')) this.directions.clear();
    if (differs('view', 'fn', 'merge', 'invert', 'value', 'task', 'thread', 'time', 'filter', 'idle', 'native')) this.showView();
    else if (differs('zoom', 'up', 'short')) this.showZoom();
    else if (differs('theme', 'color')) this.eachChart((chart) => chart.repaint());
    if (differs('q', 'value', 'task', 'thread', 'time', 'filter', 'idle', 'view', 'fn', 'merge', 'invert', 'zoom', 'up')) {
      this.tip.hide();
      this.search.show(this.hasChart ? this.chart : null);
      this.eachChart((chart) => chart.repaint());
    }
    if (selected && !this.chart.selection) this.selectAgain(selected);
    if (this.view === 'table' && differs('view', 'native', 'q', 'sort', 'value', 'task', 'time', 'filter', 'idle', 'short')) this.showTable();
    this.showControls();
  }
  // charts returns the charts that are shown, from top to bottom.
  charts() {
    if (!this.hasChart) return [];
    return this.view === 'sandwich' ? [this.callers, this.chart] : [this.chart];
  }
  eachChart(act) { this.charts().forEach(act); }
  // toChart turns to a view with a chart, and returns the page.
  toChart() {
    if (!this.hasChart) this.turnTo('flame');
    return this;
  }

  weigh() {
    const keeps = taskFilter(this.data, this.now.task);
    this.weights = new Weights(this.shown, this.valueIndex, keeps);
    this.everything = this.shown === this.data ? this.weights.whole : new Weights(this.data, this.valueIndex, keeps).whole;
    byId('share').textContent = `${percent(this.weights.whole, this.everything)} of all`;
    this.showHeat();
    this.self = this.total = null;
    this.views = new Map();
    this.showNotice(this.weights.whole > 0 ? '' : this.shown !== this.data ? `No ${this.noun} pass the filters.`
      : this.now.task ? `No ${this.noun} of this process or thread.` : this.data.noun ? `No ${this.noun}.` : 'No samples were taken.');
  }
  // showHeat shows in the heat map what passes the filters and matches the search.
  showHeat() {
    clearTimeout(this.heating);
    if (!this.heat) return;
    const data = this.matches ? this.filter.select(this.filtered, this.matches, 1) : this.filtered;
    this.heat.show(heat(data, this.valueIndex, taskFilter(this.data, this.now.task)), Boolean(this.matches));
    this.heat.select(this.range);
  }
  foldHeat(isFolded) {
    document.body.dataset.heat = isFolded ? '0' : '';
    this.heat?.fold(isFolded);
  }
  showNotice(text) {
    byId('notice').hidden = text === '';
    byId('notice').textContent = text;
  }
  // ---- filters

  // leavesIdle reports whether idle threads are left out.
  get leavesIdle() { return this.data.idle.length > 0 && this.now.idle !== '1'; }
  // isWhole reports whether all samples are shown, as findings count them.
  get isWhole() { return this.filters.length === 0 && !this.range && !this.now.task && this.now.idle !== '1'; }
  // applyFilters applies the filters, if they are new, and then the range of time.
  applyFilters(areNew) {
    if (areNew) {
      this.filters = this.filter.parse(this.now.filter);
      const data = this.leavesIdle ? this.filter.withoutIdle(this.data) : this.data;
      this.filtered = this.filters.reduce((d, { apply }) => apply ? apply(d) : d, data);
    }
    this.range = this.heat ? this.parseRange(this.now.time) : null;
    this.shown = this.range ? inRange(this.filtered, ...this.range) : this.filtered;
    this.functions.follow(this.shown.tree);
  }
  showFilters() {
    this.filters = this.filter.parse(this.now.filter); // their texts follow the switch for short names
    const chips = this.filters.map(({ text, apply }, i) => [text, apply, () => this.removeFilter(i)]);
    if (this.leavesIdle) chips.unshift(['without idle threads', true, () => this.state.set({ idle: '1' }, true)]);
    if (this.range) chips.unshift([`${this.heat.seconded(this.range[0])} to ${this.heat.seconded(this.range[1])}`, true, () => this.ranged(null)]);
    byId('filters').hidden = chips.length === 0;
    byId('chips').replaceChildren(...chips.map(([text, isRight, drop]) => {
      const chip = element('li', undefined, isRight ? '' : 'wrong');
      const remove = button('×', drop);
      remove.setAttribute('aria-label', `Remove filter: ${shortened(text)}`);
      chip.append(element('span', text), remove);
      chip.title = shortened(text);
      return chip;
    }));
  }
  // parseRange returns the steps of a range in milliseconds, "100-240", or null.
  parseRange(text) {
    const { step, steps } = this.data.times;
    const parts = text.match(/^([\d.]+)-([\d.]+)$/);
    if (!parts) return null;
    const [from, end] = parts.slice(1).map((ms) => Math.max(0, Math.min(steps, Math.round(Number(ms) / step))));
    return from < end ? [from, end] : null;
  }
  // ranged shows a range of steps, or everything.
  ranged(range) {
    const { step } = this.data.times;
    this.state.set({ time: range ? range.map((s) => Number((s * step).toFixed(3))).join('-') : '' }, true);
  }
  setFilters(lines) { this.state.set({ filter: lines.join('\n') }, true); }
  addFilter(line) {
    const lines = this.filters.map((f) => f.line);
    if (line && !lines.includes(line) && lines.length < MAX_FILTERS) this.setFilters([...lines, line]);
  }
  removeFilter(at) { this.setFilters(this.filters.filter((_, i) => i !== at).map((f) => f.line)); }
  // filtersFor returns the filters that a box offers, as [line, text, key].
  filtersFor(chart, box) {
    const { names, filter, data: { frames, strings, libraries } } = this;
    const key = names.key(box.frame);
    const isCode = filter.isCode[box.frame] === 1;
    const offers = [];
    if (isCode) {
      offers.push([`focus-fn:${key}`, 'Only with', 'F'], [`ignore-fn:${key}`, 'Without', 'I'], [`hide-fn:${key}`, 'Hide', 'H']);
      if (libraries.has(frames.module[box.frame])) offers.push([`library:${strings[frames.module[box.frame]]}`, 'Collapse library', 'L']);
    }
    if (box.parent && this.view !== 'sandwich') {
      const merged = this.now.merge === '1' && this.view === 'flame' ? '*.' : '';
      offers.push([`${this.view === 'callers' ? 'ending' : 'under'}:${merged}${wayTo(box, names)}`, 'Only subtree', 'K']);
    }
    return offers;
  }
  // pressFilter handles the keys of filters. Those that do not apply get a hint.
  pressFilter(key) {
    const line = this.filterOf(key);
    if (line) this.addFilter(line);
    else if (this.hasChart && this.activeChart.selection?.parent) this.hint('This filter does not apply to the selected box.');
    else this.hint(`Select a function ${'FIH'.includes(key) ? 'or search ' : ''}first.`);
  }
  // hint shows a text for a while.
  hint(text) {
    byId('hint').textContent = text;
    clearTimeout(this.hinting);
    this.hinting = setTimeout(() => { byId('hint').textContent = ''; }, 4000);
  }
  // filterOf returns the filter that a key adds: for the selected box, or else the search.
  filterOf(key) {
    if (key === 'R') return 'recursion';
    const box = this.hasChart ? this.activeChart.selection ?? this.activeChart.zoom : null;
    const offer = box?.parent || this.view === 'sandwich' ? this.filtersFor(this.activeChart, box).find(([, , k]) => k === key) : null;
    if (offer) return offer[0];
    const kind = { F: 'focus', I: 'ignore', H: 'hide' }[key];
    return kind && this.now.q && !this.search.isWrong ? `${kind}:${this.now.q}` : '';
  }

  // The sums by function are computed on first use, so that the graph appears first.
  get selfSums() { return this.self ??= this.functions.selfSums(this.weights, this.now.native === '1'); }
  get selfName() { return this.functions.hasScripts && this.now.native !== '1' ? 'Own' : 'Self'; }
  get totalSums() { return this.total ??= this.functions.totalSums(this.weights); }
  // hottest returns the functions with the largest self values.
  hottest(count) {
    const { functions, selfSums: self } = this;
    return [...self.keys()].filter((f) => self[f] > 0 && functions.isCode(f))
      .sort((a, b) => self[b] - self[a]).slice(0, count);
  }

  setScheme(theme) { document.documentElement.style.colorScheme = theme === 'auto' ? '' : theme; }
  // print switches the page to paper mode, light and with all rows, or back.
  print(isOnPaper) {
    this.setScheme(isOnPaper ? 'light' : this.theme);
    byId('about').hidden = !isOnPaper;
    this.readColors();
    this.eachChart((chart) => {
      chart.isWhole = isOnPaper;
      chart.layout();
      chart.paint();
    });
  }

  readColors() {
    if (this.color === 'module' && this.colors.modules.length === 0) {
      this.colors.rankModules(this.functions, this.selfSums);
    }
    this.colors.read(this.color);
    this.heat?.paint();
    byId('legend').replaceChildren(...this.colors.legend().map(([text, color]) => {
      const item = element('li');
      const swatch = element('i');
      swatch.style.background = color;
      item.append(swatch, text);
      return item;
    }));
  }

  // ---- views

  // functionChosen returns the function of the sandwich and the listing. In a
  // profile without functions, it is the root.
  functionChosen() {
    const root = this.data.tree.frame[0];
    const f = this.functions.frames.findIndex((frame) => frame !== root && this.names.key(frame) === this.now.fn);
    return f >= 0 ? f : this.hottest(1)[0] ?? this.functions.ofFrame[root];
  }
  // viewOf returns a view, from the cache if possible.
  viewOf(kind, f = 0) {
    const key = `${kind} ${this.now.merge} ${f}`;
    const view = this.views.get(key) ?? (kind === 'time' ? new TimeView(this.shown, f, this.range ?? [0, this.data.times.steps])
      : makeView(kind, f, this.now.merge === '1', { data: this.shown, weights: this.weights, functions: this.functions }));
    this.views.delete(key);
    this.views.set(key, view); // move to the end, as the most recently used
    const seen = [this.chart.view, this.callers.view];
    const unseen = [...this.views.keys()].filter((k) => !seen.includes(this.views.get(k)));
    if (unseen.length > MAX_VIEWS) this.views.delete(unseen[0]);
    return view;
  }
  showView() {
    const { view } = this;
    this.tip.hide();
    if (this.weights.whole > 0) this.showNotice('');
    document.body.dataset.view = view;
    if (view === 'code') this.listing.show(this.functionChosen());
    if (!this.hasChart) return;
    if (view === 'sandwich') {
      const f = this.functionChosen();
      const name = this.names.shown(this.functions.frames[f]);
      this.callers.show(this.viewOf('callers of', f), false);
      this.chart.show(this.viewOf('callees of', f), true);
      this.callers.name = `Callers of ${name}`;
      this.chart.name = `Callees of ${name}`;
      byId('of').textContent = shortened(name);
      if (this.weights.whole > 0 && this.chart.view.root.total <= 0) {
        this.showNotice(this.shown === this.data ? `This function has no ${nameInText(this.valueType)}.`
          : `No ${this.noun} of this function pass the filters.`);
      }
    } else if (view === 'time') {
      this.showThread();
    } else {
      this.chart.show(this.viewOf(view), false);
      this.chart.name = view === 'flame' ? 'Flame graph' : 'Flame graph by callers';
    }
    if (view !== 'sandwich') {
      this.chart.hanging = this.hangs();
      document.body.dataset.hanging = this.chart.hanging ? '1' : '0';
    }
    this.showZoom();
  }
  // hangs reports whether the view that the chart shows hangs from its root: as the user wishes,
  // or else if it is higher than the window, since one scrolls down to the ends of its stacks.
  // Each view keeps its direction.
  hangs() {
    const { chart, now, view } = this;
    if (!this.directions.has(view) && chart.view.root.total > 0) {
      chart.layout();
      this.directions.set(view, chart.full > chart.host.clientHeight);
    }
    return now.invert === '' ? this.directions.get(view) ?? false : now.invert === '1';
  }
  // showThread shows what the chosen thread, or else the busiest, did in time.
  showThread() {
    const { threads } = this.data.times;
    const id = (t) => `${threads.pid[t]}/${threads.tid[t]}`;
    const range = this.range ?? [0, this.data.times.steps];
    const all = busiest(this.data, taskFilter(this.data, this.now.task), range);
    const wanted = threads.tid.findIndex((_, t) => id(t) === this.now.thread);
    const chosen = wanted >= 0 ? wanted : all[0] ?? 0;
    if (!all.includes(chosen)) all.push(chosen);
    this.pickers.thread.show(all.map((t) => ({ value: id(t), text: `${threads.name[t]} ${id(t)}`, level: 0 })), id(chosen));
    this.chart.show(this.viewOf('time', chosen), false);
    if (this.chart.view.spans.length === 0) this.showNotice(`No ${this.noun} of this thread, in this time and with these filters.`);
    this.chart.name = `Flame chart of thread ${threads.name[chosen]} ${id(chosen)}`;
  }
  showZoom() {
    this.tip.hide();
    this.eachChart((chart) => {
      const way = this.view === 'time' ? '' : chart === this.chart ? this.now.zoom : this.now.up;
      chart.zoomTo(wayFrom(chart.view, way, this.names));
    });
    if (this.view === 'sandwich') this.divide();
    else this.chart.host.style.flexGrow = '';
    this.showPath();
    this.showPanel(this.chart, this.chart.zoom);
  }
  // divide gives the callers and the callees of a function the heights that they need, as far as
  // there is room.
  divide() {
    const room = byId('graph').clientHeight;
    for (const chart of this.charts()) chart.host.style.flexGrow = String(Math.min(chart.needed, room));
  }
  showPanel(chart, box) {
    if (box.parent || this.view === 'sandwich') this.panel.show(chart, box);
    else this.panel.showHottest();
  }
  showTable() {
    const { functions, functions: { frames } } = this;
    this.table.show(this.selfSums, this.totalSums, this.weights,
      (f) => functions.isCode(f) && (!this.matches || this.matches[frames[f]]), this.now.sort);
  }

  showPath() {
    const { chart } = this;
    const boxes = [];
    for (let b = chart.zoom; b; b = b.parent) boxes.unshift(b);
    // A long path shows its beginning and its end.
    const hidden = boxes.length > 6 ? boxes.splice(2, boxes.length - 5).length : 0;
    const parts = boxes.map((box) => {
      const name = this.names.shown(box.frame);
      const b = button(name, () => this.zoomed(chart, box));
      b.style.flexShrink = name.length > 12 ? '1' : '0';
      if (box === chart.zoom) {
        b.setAttribute('aria-current', 'true');
        b.disabled = true;
      }
      return b;
    });
    if (hidden) parts.splice(2, 0, element('span', `… ${hidden} more …`));
    byId('path').replaceChildren(...parts.flatMap((p, i) => i ? [element('span', '›'), p] : [p]));
    if (chart.zoom.parent) byId('path').append(element('span', ` ${percent(chart.zoom.total, this.weights.whole)}`));
  }

  showControls() {
    const { now, view } = this;
    for (const tab of byId('views').children) tab.setAttribute('aria-pressed', String(tab.value === view));
    byId('invert').checked = this.hasChart && view !== 'sandwich' && this.chart.hanging;
    byId('invert').disabled = view === 'sandwich' || !this.hasChart;
    byId('merge').checked = now.merge === '1';
    byId('short').checked = now.short === '1';
    byId('native').checked = now.native === '1';
    const search = now.q && !this.search.isWrong ? [
      [`focus:${now.q}`, 'Only stacks with a match'], [`ignore:${now.q}`, 'No stacks with a match'], [`hide:${now.q}`, 'Hide matches'],
    ] : [[null, 'Search first to filter by matches']];
    choices(byId('filter'), [['', 'Filter…'], ...search, ['recursion', 'Collapse recursion'],
      ...(this.data.idle.length && !this.leavesIdle ? [['idle', 'Leave out idle threads']] : [])], '');
    byId('reset').hidden = !this.hasChart || !now.zoom && !now.up;
    byId('value').value = String(this.valueIndex);
    this.pickers.task.choose(now.task);
    byId('color').value = this.color;
    byId('theme').value = this.theme;
    if (byId('search').value !== now.q) byId('search').value = now.q;
  }

  // ---- descriptions of boxes

  spoken(box) {
    if (box.start !== undefined) {
      return `${this.names.shown(box.frame)}: ${amount(Math.round(box.total), { unit: 'nanoseconds' })} from ${Number((box.start / 1e9).toFixed(6))} s`;
    }
    return `${this.names.shown(box.frame)}: ${spokenAmount(box.total, this.valueType)}, ${percent(box.total, this.weights.whole)}`;
  }
  facts(chart, box) {
    const { weights } = this;
    if (chart.view instanceof TimeView) {
      return [['At', `${Number((box.start / 1e9).toFixed(6))} s`], ['Time', amount(Math.round(box.total), { unit: 'nanoseconds' })], ...describe(this.data, box.frame)];
    }
    const part = (value) => `${amount(value, this.valueType)} (${percent(value, weights.whole)})`;
    const self = chart.view.self(box);
    const facts = [[valueName(this.valueType), part(box.total)]];
    if (self > 0 && chart.view instanceof CalleeView) facts.push(['Self', part(self)]);
    if (chart.zoom.parent && box.depth >= chart.zoom.depth) {
      facts.push(['Of zoomed box', percent(box.total, chart.zoom.total)]);
    }
    if (weights.base) {
      facts.push([capital(this.data.base.name ?? 'before'), percent(box.base, weights.baseWhole)]);
      facts.push(['Change', pointsChange(box.total / (weights.whole || 1), box.base / (weights.baseWhole || 1))]);
    }
    return [...facts, ...describe(this.data, box.frame)];
  }

  // ---- events of charts and the table

  hovered(chart, box, x, y) {
    if (box) this.tip.show(this.names.of(box.frame), this.facts(chart, box), x, y);
    else this.tip.hide();
  }
  // selectAgain selects a box of the view before, or else the widest of its function.
  selectAgain(box) {
    const { chart, names, functions: { ofFrame } } = this;
    const way = wayTo(box, names);
    const same = wayFrom(chart.view, way, names);
    const isWider = (a, b) => !a || b.width > a.width;
    chart.select(wayTo(same, names) === way ? same : chart.rows.flat()
      .reduce((best, b) => ofFrame[b.frame] === ofFrame[box.frame] && isWider(best, b) ? b : best, null));
  }
  selected(chart, box) { this.showPanel(chart, box); }
  // opened shows what one can do with a box, at a place of the window.
  opened(chart, box, x, y) {
    this.tip.hide();
    const { parent } = box;
    this.menu.show(shortened(this.names.shown(box.frame)), [
      ...(parent || this.view === 'sandwich' ? [[this.view === 'time' ? 'Select its time' : 'Zoom', () => this.zoomed(chart, box), 'Enter'], null] : []),
      ['Copy name', () => this.copied(this.names.of(box.frame), 'name'), 'y'],
      ['Copy stack', () => this.copied(stackText(this.data, this.names, chart.view, box), 'stack'), 'Y'],
      null,
      ...this.entriesFor(box.frame),
      ...this.filterEntries(this.filtersFor(chart, box)),
    ], x, y);
  }
  // openedRow shows what one can do with a function of the table.
  openedRow(f, x, y) {
    const frame = this.functions.frames[f];
    this.menu.show(shortened(this.names.shown(frame)), [
      ['Copy name', () => this.copied(this.names.of(frame), 'name')], null,
      ...this.entriesFor(frame), ...this.filterEntries(this.filtersFor(null, { frame, parent: null })),
    ], x, y);
  }
  entriesFor(frame) {
    const f = this.functions.ofFrame[frame];
    return [
      ['Sandwich', () => this.chosen(f), 's'],
      ...(this.data.listings ? [['Source', () => this.chosen(f, 'code'), 'c']] : []),
      ['Search', () => this.state.set({ q: `^${literal(this.names.of(frame))}$` })],
    ];
  }
  filterEntries(offers) {
    return offers.length ? [null, ...offers.map(([line, text, key]) => [text, () => this.addFilter(line), key])] : [];
  }
  // selectedBox returns the selected box, or the zoomed one, or null.
  selectedBox() {
    const box = this.hasChart ? this.activeChart.selection ?? this.activeChart.zoom : null;
    return box?.parent || this.view === 'sandwich' ? box : null;
  }
  selectedName() {
    const box = this.selectedBox();
    return box ? this.names.of(box.frame) : '';
  }
  // pressCopy copies the name or the stack of the selected box.
  pressCopy(isStack) {
    const box = this.selectedBox();
    if (!box) this.hint('Select a function first.');
    else if (isStack) this.copied(stackText(this.data, this.names, this.activeChart.view, box), 'stack');
    else this.copied(this.names.of(box.frame), 'name');
  }
  async copied(text, what) {
    this.hint(await copy(text) ? `Copied the ${what}.` : `The browser did not copy the ${what}.`);
  }
  // step selects the next matching box. It zooms as far as necessary to see it.
  step(by) {
    const { chart } = this;
    const box = this.search.step(by);
    if (!box) return;
    if (!chart.isShown(box) || box.width < NARROW && box !== chart.zoom) {
      let zoom = box;
      while (zoom.parent && box.total * chart.width >= zoom.parent.total * SEEN) zoom = zoom.parent;
      if (!(chart.view instanceof TimeView)) this.state.set({ zoom: wayTo(zoom, this.names) });
    }
    chart.canvas.focus({ preventScroll: true });
    chart.select(box);
  }
  zoomed(chart, box) {
    if (chart.view instanceof TimeView) {
      const { step } = chart.view;
      if (box.parent) this.ranged([Math.floor(box.start / step + 0.001), Math.ceil((box.start + box.total) / step - 0.001)]);
      return;
    }
    this.state.set({ [chart === this.chart ? 'zoom' : 'up']: wayTo(box, this.names) }, true);
  }
  chosen(f, view = 'sandwich') {
    this.state.set({ view, fn: this.names.key(this.functions.frames[f]), zoom: '', up: '' }, true);
  }
  sorted(column) {
    this.state.set({ sort: this.now.sort === column ? `-${column}` : column });
  }
  turnTo(view) {
    const ofOne = ['sandwich', 'code'];
    const change = { view, fn: ofOne.includes(view) && ofOne.includes(this.view) ? this.now.fn : '', zoom: '', up: '' };
    const box = this.hasChart ? this.activeChart.selection ?? this.activeChart.zoom : null;
    if (ofOne.includes(view) && box?.parent) change.fn = this.names.key(this.functions.frames[this.functions.ofFrame[box.frame]]);
    if (view !== this.view) this.state.set(change, true);
  }
  abbreviate() { this.state.set({ short: this.now.short === '1' ? '0' : '1' }); }
  detail() {
    if (this.functions.hasScripts) this.state.set({ native: this.now.native === '1' ? '0' : '1' });
  }
  turnOver() {
    if (byId('invert').disabled) return;
    const hangs = !this.chart.hanging;
    this.state.set({ invert: this.directions.get(this.view) === hangs && this.state.defaults.invert === '' ? '' : hangs ? '1' : '0' });
  }
  get activeChart() {
    return this.view === 'sandwich' && document.activeElement === this.callers.canvas ? this.callers : this.chart;
  }

  // ---- events of the page

  listen() {
    const search = byId('search');
    search.addEventListener('input', () => this.state.set({ q: search.value }));
    search.addEventListener('keydown', (event) => {
      if (event.key !== 'Enter') return;
      this.step(event.shiftKey ? -1 : 1);
      event.stopPropagation();
    });
    for (const tab of byId('views').children) tab.addEventListener('click', () => this.turnTo(tab.value));
    for (const key of ['value', 'color', 'theme']) {
      byId(key).addEventListener('change', () => this.state.set({ [key]: byId(key).value }));
    }
    byId('merge').addEventListener('change', () => this.state.set({ merge: byId('merge').checked ? '1' : '0', zoom: '', up: '' }));
    byId('unfilter').addEventListener('click', () => this.state.set({ filter: '', time: '', ...(this.leavesIdle ? { idle: '1' } : {}) }, true));
    byId('filter').addEventListener('change', () => {
      if (byId('filter').value === 'idle') this.state.set({ idle: '0' }, true);
      else this.addFilter(byId('filter').value);
      byId('filter').value = '';
    });
    byId('short').addEventListener('change', () => this.abbreviate());
    byId('native').addEventListener('change', () => this.detail());
    byId('invert').addEventListener('change', () => this.turnOver());
    byId('reset').addEventListener('click', () => this.state.set({ zoom: '', up: '' }, true));
    byId('next').addEventListener('click', () => this.step(1));
    byId('previous').addEventListener('click', () => this.step(-1));
    byId('help-button').addEventListener('click', () => byId('help').showModal());
    for (const name of Object.keys(SAVES)) {
      byId(`save-${name}`).addEventListener('click', () => {
        Popup.current?.close();
        SAVES[name](this).catch((err) => this.hint(`Not saved: ${err.message}`));
      });
    }
    document.addEventListener('keydown', (event) => {
      if (event.key === 'Escape' && Popup.current) {
        Popup.current.close();
        return;
      }
      if (byId('help').open) return;
      if (this.findsInChart(event)) {
        search.focus();
        search.select();
        event.preventDefault();
      }
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      if (this.press(event.key, event.target)) event.preventDefault();
    });
    // A box has no text that the browser could copy.
    document.addEventListener('copy', (event) => {
      const name = this.selectedName();
      if (!name || ['INPUT', 'SELECT'].includes(event.target.tagName) || !getSelection().isCollapsed) return;
      event.clipboardData.setData('text/plain', name);
      event.preventDefault();
      this.hint('Copied the name.');
    });
    window.addEventListener('beforeprint', () => this.print(true));
    window.addEventListener('afterprint', () => this.print(false));
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      this.readColors();
      this.eachChart((chart) => chart.repaint());
    });
  }

  // findsInChart reports whether a key asks the browser to find text while there is a chart, whose
  // text it cannot find. From the page's own search, the browser's is in reach.
  findsInChart({ key, ctrlKey, metaKey, altKey, shiftKey }) {
    return (ctrlKey || metaKey) && !altKey && !shiftKey && key.toLowerCase() === 'f'
      && this.hasChart && document.activeElement !== byId('search');
  }
  // press handles a key and reports whether it did.
  press(key, target) {
    const typing = ['INPUT', 'SELECT'].includes(target.tagName) && target.type !== 'checkbox';
    if (key === 'Escape') { this.leave(); return true; }
    if (typing) return false;
    const tabs = { f: 'flame', b: 'callers', s: 'sandwich', t: 'table', ...(this.data.times ? { o: 'time' } : {}), ...(this.data.listings ? { c: 'code' } : {}) };
    if (Object.hasOwn(tabs, key)) { this.turnTo(tabs[key]); return true; }
    switch (key) {
      case '/': byId('search').focus(); byId('search').select(); return true;
      case '?': byId('help').showModal(); return true;
      case 'i': this.turnOver(); return true;
      case 'F': case 'I': case 'H': case 'L': case 'K': case 'R': this.pressFilter(key); return true;
      case 'U': this.setFilters(this.filters.slice(0, -1).map((f) => f.line)); return true;
      case 'a': this.abbreviate(); return true;
      case 'd': this.detail(); return true;
      case 'y': case 'Y': this.pressCopy(key === 'Y'); return true;
      case 'n': this.step(1); return true;
      case 'N': this.step(-1); return true;
    }
    const isControl = ['BUTTON', 'SUMMARY', 'INPUT', 'A'].includes(target.tagName);
    if (!this.hasChart || this.weights.whole <= 0 || isControl && key === 'Enter') return false;
    const chart = this.activeChart;
    if (!chart.press(key)) return false;
    chart.canvas.focus({ preventScroll: true });
    this.tipAt(chart);
    return true;
  }
  tipAt(chart) {
    const box = chart.selection;
    if (!box) return;
    const canvas = chart.canvas.getBoundingClientRect();
    this.hovered(chart, box, canvas.left + box.x, canvas.top + chart.rowTop(box.depth) + ROW);
  }
  // leave leaves the innermost mode: search, selection, zoom.
  leave() {
    const { now } = this;
    const selecting = [this.chart, this.callers].filter((chart) => chart.selection);
    this.tip.hide();
    if (now.q) this.state.set({ q: '' });
    else if (selecting.length) {
      for (const chart of selecting) chart.deselect();
      this.showPanel(this.chart, this.chart.zoom);
    } else if (now.zoom || now.up) this.state.set({ zoom: '', up: '' }, true);
    else if (this.view === 'time' && this.range) this.ranged(null);
    if (document.activeElement === byId('search')) this.chart.canvas.focus({ preventScroll: true });
  }
}

async function main() {
  try {
    new Page(await load());
  } catch (err) {
    byId('notice').hidden = false;
    byId('notice').textContent = `The data of this page cannot be read: ${err.message}`;
    document.documentElement.dataset.ready = 'failed';
    throw err;
  }
  document.documentElement.dataset.ready = 'true';
}

main();
