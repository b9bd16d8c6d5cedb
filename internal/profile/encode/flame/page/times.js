// ---- Time: when samples were taken, and the heat map that selects a part of the run.

// readTimes returns the steps at which each sample has its weight, or null without times.
// Sample s has entries starts[s] to starts[s+1]-1.
function readTimes(reader, header) {
  if (!header.times) return null;
  const { step, steps, entries, scale, threads } = header.times;
  const starts = reader.starts(header.samples);
  const at = reader.uints(new Uint32Array(entries));
  const weight = reader.uints(new Float64Array(entries));
  const whole = new Float64Array(header.samples);
  for (let s = 0; s < header.samples; s++) {
    for (let i = starts[s]; i < starts[s + 1]; i++) {
      if (i > starts[s]) at[i] += at[i - 1];
      whole[s] += weight[i];
    }
  }
  const thread = reader.uints(new Uint32Array(header.samples));
  const kind = reader.uints(new Uint16Array(header.samples));
  return { step: step / 1e6, steps, starts, at, weight, whole, scale, thread, kind, threads }; // step in ms
}

// rowOf returns the sample's row in the table of times, in data that may be filtered.
const rowOf = ({ origin }, s) => origin ? origin[s] : s;

// inRange returns data with the values of steps from to end-1.
function inRange(data, from, end) {
  const { times: { starts, at, weight, whole }, samples } = data;
  const share = new Float64Array(samples.count);
  for (let s = 0; s < samples.count; s++) {
    const row = rowOf(samples, s);
    let part = 0;
    for (let i = starts[row]; i < starts[row + 1]; i++) if (at[i] >= from && at[i] < end) part += weight[i];
    share[s] = whole[row] > 0 ? part / whole[row] : 0;
  }
  return { ...data, samples: { ...samples, values: samples.values.map((column) => column.map((v, s) => Math.round(v * share[s]))) } };
}

// heat returns the value of each step, of the tasks for which keeps is true.
function heat({ times: { starts, at, weight, whole, steps }, samples }, column, keeps) {
  const sums = new Float64Array(steps);
  for (let s = 0; s < samples.count; s++) {
    const v = samples.values[column][s];
    const row = rowOf(samples, s);
    if (v === 0 || whole[row] === 0 || !keeps[samples.task[s]] || samples.kept && !samples.kept[s]) continue;
    for (let i = starts[row]; i < starts[row + 1]; i++) sums[at[i]] += v * weight[i] / whole[row];
  }
  return sums;
}

const HEAT_ROWS = 50;
const HEAT_HEIGHT = 100;    // CSS pixels
const MAX_HEAT_COLUMN = 40; // width of a column

// A HeatMap shows time in columns of a second, or more if the run is long, from left to
// right, and in each from top to bottom. A column is selected by a click, any part by
// dragging, or by keys.
class HeatMap {
  // page provides colors, valueType and tip, and receives ranged(from, end): steps, or
  // null for the whole run.
  constructor(page, times) {
    Object.assign(this, { page, times });
    this.canvas = byId('heat');
    this.sums = new Float64Array(0);
    this.range = null; // [from, end], in steps
    this.cursor = 0;   // step at the keyboard focus
    this.anchor = null; // step at which a selection began
    this.listen();
    new ResizeObserver(() => this.paint()).observe(this.canvas.parentElement);
  }

  // show shows the value of each step. If isFound is set, these are only the matches of
  // the search.
  show(sums, isFound) {
    this.sums = sums;
    this.isFound = isFound;
    this.paint();
  }
  select(range) {
    this.range = range;
    this.paint();
  }

  layout() {
    const { times: { step, steps } } = this;
    // The map fills at most the width of the page.
    this.width = Math.max(100, this.canvas.parentElement.clientWidth - 2 * parseFloat(getComputedStyle(this.canvas.parentElement).paddingLeft));
    const seconds = Math.max(1, Math.ceil(step * steps / 1000));
    this.seconds = Math.ceil(seconds * 2 / this.width); // of a column, which has at least two pixels
    this.columns = Math.ceil(seconds / this.seconds);
    this.perColumn = Math.max(1, Math.round(1000 * this.seconds / step));
    this.perRow = Math.max(1, Math.ceil(this.perColumn / HEAT_ROWS));
    this.rows = Math.ceil(this.perColumn / this.perRow);
    this.columnWidth = Math.min(MAX_HEAT_COLUMN, Math.floor(this.width / this.columns));
    this.rowHeight = HEAT_HEIGHT / this.rows;
  }
  // cells returns the sums of all rows of the first column, then of the next one.
  cells() {
    const { columns, perColumn, perRow, rows, sums } = this;
    const cells = new Float64Array(columns * rows);
    for (let i = 0; i < sums.length; i++) cells[Math.floor(i / perColumn) * rows + Math.floor(i % perColumn / perRow)] += sums[i];
    return cells;
  }
  paint() {
    this.layout();
    const { canvas, columnWidth, rowHeight, columns, perColumn, perRow, rows, range, page: { colors, valueType } } = this;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(columns * columnWidth * ratio);
    canvas.height = Math.round(HEAT_HEIGHT * ratio);
    canvas.style.width = `${columns * columnWidth}px`;
    canvas.style.height = `${HEAT_HEIGHT}px`;
    const ctx = canvas.getContext('2d');
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const gap = columnWidth > 4 ? 1 : 0;
    const cells = this.cells();
    const most = cells.reduce((a, b) => Math.max(a, b), 0);
    for (let c = 0; c < columns; c++) {
      for (let r = 0; r < rows; r++) {
        const from = c * perColumn + r * perRow;
        if (from >= this.times.steps) break;
        const sum = cells[c * rows + r];
        const isIn = !range || from < range[1] && from + perRow > range[0];
        ctx.fillStyle = sum > 0 ? colors.heat : colors.rest;
        ctx.globalAlpha = (sum > 0 ? 0.15 + 0.85 * sum / most : 0.08) * (isIn ? 1 : 0.25);
        ctx.fillRect(c * columnWidth, r * rowHeight, columnWidth - gap, rowHeight + 0.2);
      }
    }
    ctx.globalAlpha = 1;
    if (document.activeElement === canvas) {
      ctx.strokeStyle = colors.accent;
      ctx.strokeRect(Math.floor(this.cursor / perColumn) * columnWidth + 0.5,
        Math.floor(this.cursor % perColumn / perRow) * rowHeight + 0.5, columnWidth - gap, Math.max(2, rowHeight));
    }
    const shown = range ? `${this.seconded(range[0])} to ${this.seconded(range[1])}` : 'the whole run';
    byId('heat-note').textContent = `A column is ${this.seconds} s, a row ${digits.format(Number((this.perRow * this.times.step).toPrecision(3)))} ms. Click a column, or drag, to select.${this.isFound ? ' Only stacks with a match are shown.' : ''}`;
    byId('heat-most').textContent = spokenAmount(Math.round(most), valueType);
    canvas.setAttribute('aria-label', `Heat map of ${columns} columns of ${this.seconds} s; selected: ${shown}; at ${this.seconded(this.cursor)}`);
  }
  seconded(step) { return `${Number((step * this.times.step / 1000).toFixed(3))} s`; }

  stepAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const c = Math.max(0, Math.min(this.columns - 1, Math.floor((event.clientX - box.left) / this.columnWidth)));
    const r = Math.max(0, Math.min(this.rows - 1, Math.floor((event.clientY - box.top) / this.rowHeight)));
    return Math.min(c * this.perColumn + r * this.perRow, this.times.steps - 1);
  }
  between(a, b) { return [Math.min(a, b), Math.min(this.times.steps, Math.max(a, b) + this.perRow)]; }

  listen() {
    const { canvas, page } = this;
    let dragged = false;
    canvas.addEventListener('pointerdown', (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.anchor = this.cursor = this.stepAt(event);
      dragged = false;
    });
    canvas.addEventListener('pointermove', (event) => {
      const step = this.stepAt(event);
      page.tip.show(`${this.seconded(step)} to ${this.seconded(Math.min(step + this.perRow, this.times.steps))}`,
        [[valueName(page.valueType), amount(Math.round(this.sums.slice(step, step + this.perRow).reduce((a, b) => a + b, 0)), page.valueType)]],
        event.clientX, event.clientY);
      if (this.anchor === null || !canvas.hasPointerCapture(event.pointerId) || !dragged && step === this.anchor) return;
      dragged = true;
      this.select(this.between(this.anchor, step));
    });
    canvas.addEventListener('pointerup', (event) => {
      if (this.anchor === null) return;
      const step = this.stepAt(event);
      const column = Math.floor(step / this.perColumn) * this.perColumn;
      page.ranged(dragged ? this.between(this.anchor, step) : [column, Math.min(column + this.perColumn, this.times.steps)]);
      this.anchor = null;
    });
    canvas.addEventListener('pointerleave', () => page.tip.hide());
    canvas.addEventListener('focus', () => this.paint());
    canvas.addEventListener('blur', () => {
      this.anchor = null;
      this.paint();
    });
    canvas.addEventListener('keydown', (event) => {
      const by = { ArrowLeft: -this.perColumn, ArrowRight: this.perColumn, ArrowUp: -this.perRow, ArrowDown: this.perRow }[event.key];
      if (event.key === 'Enter') {
        const column = Math.floor(this.cursor / this.perColumn) * this.perColumn;
        page.ranged([column, Math.min(column + this.perColumn, this.times.steps)]);
      } else if (event.key === 'Escape' && this.range) {
        page.ranged(null);
      } else if (by) {
        this.anchor = event.shiftKey ? this.anchor ?? this.cursor : null;
        this.cursor = Math.max(0, Math.min(this.cursor + by, this.times.steps - 1));
        if (event.shiftKey) page.ranged(this.between(this.anchor, this.cursor));
        else this.paint();
      } else return;
      event.preventDefault();
      event.stopPropagation();
    });
  }
}

