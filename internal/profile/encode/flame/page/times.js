// ---- Time: when samples were taken, and the heat map that selects a part of the run.

// readTimes returns the steps at which each sample has its weight, or null without times.
// Sample s has entries starts[s] to starts[s+1]-1.
function readTimes(reader, header) {
  if (!header.times) return null;
  const { step, steps, entries, scale, threads, open = '' } = header.times;
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
  return { step: step / 1e6, steps, starts, at, weight, whole, scale, thread, kind, threads, open }; // step in ms
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

const HEAT_ROWS = 16;      // at most
const HEAT_COLUMNS = 120;  // at most
const HEAT_HEIGHT = 48;    // CSS pixels
const FOLDED_HEIGHT = 12;  // of the map folded away, a single row
const AXIS_HEIGHT = 14;    // of the times below the map
const TICK = 80;           // CSS pixels between two times, at least

// rounded returns the smallest of 1, 2, 5, 10, 20… times unit that is at least size.
function rounded(size, unit = 1) {
  for (let by = unit; ; by *= 10) for (const n of [1, 2, 5]) if (n * by >= size) return n * by;
}

// A HeatMap shows time in columns of a round time, from left to right, and in each from top
// to bottom. A column is selected by a click, any part by dragging, or by keys. Folded away,
// it has one row.
class HeatMap {
  // page provides colors, valueType and tip, and receives ranged(from, end): steps, or
  // null for the whole run.
  constructor(page, times) {
    Object.assign(this, { page, times });
    this.canvas = byId('heat');
    this.isFolded = false;
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
  fold(isFolded) {
    this.isFolded = isFolded;
    byId('fold').setAttribute('aria-expanded', String(!isFolded));
    this.paint();
  }

  layout() {
    const { times: { step, steps }, canvas } = this;
    this.width = Math.max(100, canvas.clientWidth);
    const whole = step * steps; // in ms
    const columns = Math.max(1, Math.min(HEAT_COLUMNS, Math.floor(this.width / 6)));
    this.perColumn = Math.max(1, Math.round(rounded(whole / columns) / step));
    this.columns = Math.ceil(steps / this.perColumn);
    this.perRow = this.isFolded ? this.perColumn : Math.max(1, Math.ceil(this.perColumn / HEAT_ROWS));
    this.rows = Math.ceil(this.perColumn / this.perRow);
    this.columnWidth = this.width / (steps / this.perColumn); // the last column may be narrower
    this.mapHeight = this.isFolded ? FOLDED_HEIGHT : HEAT_HEIGHT;
    this.rowHeight = this.mapHeight / this.rows;
    this.height = this.mapHeight + (this.isFolded ? 0 : AXIS_HEIGHT);
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
    const { canvas, width, height, mapHeight, columnWidth, rowHeight, columns, perColumn, perRow, rows, range, page: { colors, valueType }, times: { step, steps } } = this;
    const ratio = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
    const ctx = canvas.getContext('2d');
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    const snap = (v) => Math.round(v * ratio) / ratio; // to pixels of the screen
    const gap = columnWidth > 4 ? 1 : 0;
    const cells = this.cells();
    const most = cells.reduce((a, b) => Math.max(a, b), 0);
    for (let c = 0; c < columns; c++) {
      const [left, right] = [snap(c * columnWidth), snap(Math.min((c + 1) * columnWidth, width))];
      for (let r = 0; r < rows; r++) {
        const from = c * perColumn + r * perRow;
        if (from >= steps) break;
        const sum = cells[c * rows + r];
        const isIn = !range || from < range[1] && from + perRow > range[0];
        ctx.fillStyle = sum > 0 ? colors.heat : colors.rest;
        ctx.globalAlpha = (sum > 0 ? 0.15 + 0.85 * sum / most : 0.08) * (isIn ? 1 : 0.25);
        const top = snap(r * rowHeight);
        ctx.fillRect(left, top, Math.max(right - left - gap, 1 / ratio), snap((r + 1) * rowHeight) - top);
      }
    }
    ctx.globalAlpha = 1;
    if (document.activeElement === canvas) {
      ctx.strokeStyle = colors.accent;
      ctx.lineWidth = 2;
      ctx.strokeRect(Math.floor(this.cursor / perColumn) * columnWidth + 1,
        Math.floor(this.cursor % perColumn / perRow) * rowHeight + 1, Math.max(2, columnWidth - gap - 2), Math.max(2, rowHeight - 2));
    }
    if (!this.isFolded) this.paintAxis(ctx, snap);
    const shown = range ? `${this.seconded(range[0])} to ${this.seconded(range[1])}` : 'the whole run';
    const cell = (count) => duration(count * step / 1000);
    byId('heat-note').textContent = `${this.isFound ? 'only stacks with a match · ' : ''}at most ${spokenAmount(Math.round(most), valueType)} in ${cell(perRow)}`;
    canvas.setAttribute('aria-label', `Heat map of ${columns} columns of ${cell(perColumn)}; selected: ${shown}; at ${this.seconded(this.cursor)}`);
  }
  // paintAxis writes times below the map, as far as the note at its right end leaves room.
  paintAxis(ctx, snap) {
    const { width, mapHeight, height, range, page: { colors }, times: { step, steps } } = this;
    const whole = step * steps / 1000; // in s
    const room = width - byId('heat-note').offsetWidth - 40;
    const x = (seconds) => snap(seconds / whole * width);
    ctx.fillStyle = colors.rest;
    ctx.font = `10.5px ${colors.sans}`;
    ctx.textBaseline = 'alphabetic';
    const by = rounded(whole * TICK / width, 1e-6);
    for (let i = 0; i * by < whole; i++) {
      ctx.fillRect(x(i * by), mapHeight, 1, 4);
      if (x(i * by) < room) ctx.fillText(`${Number((i * by).toFixed(6))} s`, x(i * by) + 3, height - 3);
    }
    if (range) {
      ctx.fillStyle = colors.accent;
      ctx.fillRect(x(range[0] * step / 1000), mapHeight + 1, Math.max(2, x((range[1] - range[0]) * step / 1000)), 2);
    }
  }
  seconded(step) { return `${Number((step * this.times.step / 1000).toFixed(3))} s`; }

  stepAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const c = Math.max(0, Math.min(this.columns - 1, Math.floor((event.clientX - box.left) / this.columnWidth)));
    const r = Math.max(0, Math.min(this.rows - 1, Math.floor((event.clientY - box.top) / this.rowHeight)));
    return Math.min(c * this.perColumn + r * this.perRow, this.times.steps - 1);
  }
  // endOf returns the end of the cell that begins with a step.
  endOf(step) {
    const column = step - step % this.perColumn;
    return Math.min(step + this.perRow, column + this.perColumn, this.times.steps);
  }
  between(a, b) { return [Math.min(a, b), this.endOf(Math.max(a, b))]; }

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
      page.tip.show(`${this.seconded(step)} to ${this.seconded(this.endOf(step))}`,
        [[valueName(page.valueType), amount(Math.round(this.sums.slice(step, this.endOf(step)).reduce((a, b) => a + b, 0)), page.valueType)]],
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
    byId('fold').addEventListener('click', () => page.state.set({ heat: this.isFolded ? '' : '0' }));
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

