// ---- A chart draws a view as rows of boxes, each as wide as its value.

const ROW = 18;          // height of a row in CSS pixels
const MIN_WIDTH = 0.5;   // narrower boxes and everything above them become one thin line
const PAD = 5;           // between a box's edge and its label
const FONT = 11.5;       // size of labels

class Chart {
  // host is the scrolling element. name is the chart's accessible name. page
  // provides names, colors, matches and weights, and receives hovered(box, x,
  // y), selected(chart, box), zoomed(chart) and opened(chart, box, x, y).
  constructor(host, page) {
    this.host = host;
    this.page = page;
    this.space = element('div', undefined, 'space');
    this.canvas = element('canvas', undefined, 'boxes');
    this.marks = element('canvas', undefined, 'marks'); // outlines, which change often
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute('role', 'tree');
    this.space.append(this.canvas, this.marks);
    host.append(this.space);
    this.rows = [];
    this.view = null;
    this.zoom = null;
    this.hover = null;
    this.selection = null;
    this.hanging = false;
    this.isWhole = false; // print shows all rows, the screen only visible ones
    this.scheduled = 0;
    this.hits = null; // of the search
    this.ticks = []; // places of hits in narrow boxes, by depth and x
    this.listen();
  }

  set name(text) { this.canvas.setAttribute('aria-label', text); }

  // show draws another view. If hanging is set, children are drawn below their
  // parents, else above.
  show(view, hanging) {
    this.view = view;
    this.hanging = hanging;
    this.zoom = view.root;
    this.hover = this.selection = null;
  }

  // ---- layout

  isBelowZoom(box) { return box.depth < this.zoom.depth; }

  layout() {
    const { space, host, canvas, marks } = this;
    this.width = Math.max(1, host.clientWidth - parseFloat(getComputedStyle(host).paddingLeft) * 2);
    this.rows = [];
    this.rests = []; // merged narrow boxes, by depth and x
    this.heights = []; // of stacks, in a view of time, by pixel
    this.narrow = 0; // depth of the highest box that is too narrow to draw
    if (this.view && this.zoom.total > 0) this.place();
    this.placeTicks();
    this.height = this.isWhole ? this.needed : host.clientHeight;
    this.full = Math.max(this.height, this.needed);
    space.style.height = `${this.full}px`;
    const ratio = window.devicePixelRatio || 1;
    for (const c of [canvas, marks]) {
      c.width = Math.round(this.width * ratio);
      c.height = Math.round(this.height * ratio);
      c.style.width = `${this.width}px`;
      c.style.height = `${this.height}px`;
      const ctx = c.getContext('2d');
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      ctx.direction = 'ltr';
      ctx.textBaseline = 'middle';
    }
  }
  place() {
    const put = (box, x, width) => {
      const row = this.rows[box.depth] ??= [];
      box.x = x;
      box.width = width;
      box.place = row.push(box) - 1;
    };
    for (let b = this.zoom; b; b = b.parent) put(b, 0, this.width);
    const scale = this.width / this.zoom.total;
    for (let d = this.zoom.depth; d < this.rows.length; d++) {
      for (const box of this.rows[d]) {
        let rest = null;
        this.eachChild(box, scale, (child, x, width) => {
          if (width >= MIN_WIDTH) {
            put(child, x, width);
            return;
          }
          this.narrow = d + 1;
          if (rest && x - rest.x - rest.width < 1) rest.width = x + width - rest.x;
          else this.rests.push(rest = { depth: d + 1, x, width });
        });
      }
    }
    this.rests = this.rests.filter(({ width }) => width >= MIN_WIDTH);
    this.heights = this.view.heights?.(Math.ceil(this.width)) ?? [];
    for (const height of this.heights) while (this.rows.length < height) this.rows.push([]);
  }
  // eachChild calls act with each child of a box, its place and its width. In a view of
  // time, children have their own places.
  eachChild(box, scale, act) {
    let { x } = box;
    for (const child of this.view.children(box)) {
      const width = child.total * scale;
      if (child.start !== undefined) x = (child.start - this.zoom.start) * scale;
      act(child, x, width);
      x += width;
    }
  }
  // tint shows also the hits of a search that lie in boxes too narrow to draw. hits is
  // null without a search.
  tint(hits) {
    this.hits = hits;
    this.placeTicks();
  }
  placeTicks() {
    const { hits, page: { matches } } = this;
    this.ticks = [];
    if (!hits || !matches || !this.view || this.zoom.total <= 0) return;
    const scale = this.width / this.zoom.total;
    for (let d = this.zoom.depth; d < this.rows.length; d++) {
      let last = -1; // one per pixel
      for (const box of this.rows[d]) {
        this.eachChild(box, scale, (child, x, width) => {
          const pixel = Math.floor(x);
          if (width < MIN_WIDTH && width > 0 && pixel !== last && (matches[child.frame] || this.view.hasHit(child, hits))) {
            this.ticks.push({ depth: d + 1, x: pixel });
            last = pixel;
          }
        });
      }
    }
  }
  // needed is the height of all rows.
  get needed() { return Math.max(this.rows.length, this.narrow + 1) * ROW + PAD * 2; }
  isShown(box) { return Boolean(box) && this.rows[box.depth]?.[box.place] === box; }

  // rowTop returns the distance of a row from the canvas's top edge.
  rowTop(d) {
    return (this.hanging ? PAD + d * ROW : this.full - PAD - (d + 1) * ROW) - this.scrolled;
  }
  get scrolled() { return this.isWhole ? 0 : this.host.scrollTop; }
  boxAt(x, y) {
    const fromTop = y + this.scrolled;
    const row = this.rows[Math.floor((this.hanging ? fromTop - PAD : this.full - PAD - fromTop) / ROW)];
    if (!row || x < 0) return null;
    let low = 0;
    let high = row.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (row[middle].x <= x) low = middle; else high = middle - 1;
    }
    const box = row[low];
    return x >= box.x && x < box.x + Math.max(box.width, 1) ? box : null;
  }
  scrollTo(box) {
    const top = this.rowTop(box.depth);
    if (top < 0) this.host.scrollTop += top - ROW;
    else if (top + ROW > this.height) this.host.scrollTop += top + 2 * ROW - this.height;
  }
  // scrollToHit scrolls to the first hit that is drawn, or else to the thin line of one,
  // unless a hit is visible.
  scrollToHit(hits) {
    const drawn = [...hits.filter((box) => this.isShown(box)), ...this.ticks];
    const isVisible = ({ depth }) => this.rowTop(depth) >= 0 && this.rowTop(depth) + ROW <= this.height;
    if (drawn.length > 0 && !drawn.some(isVisible)) this.scrollTo(drawn[0]);
  }
  // scrollHome shows the zoomed box with its caller.
  scrollHome() {
    this.host.scrollTop = 0;
    const top = this.rowTop(this.zoom.depth);
    if (!this.hanging) this.host.scrollTop = top + 2 * ROW - this.height;
    else if (top + ROW > this.height) this.host.scrollTop = top - ROW;
  }

  // ---- drawing

  repaint() {
    this.scheduled ||= requestAnimationFrame(() => this.paint());
  }
  paint() {
    cancelAnimationFrame(this.scheduled);
    this.scheduled = 0;
    const ctx = this.canvas.getContext('2d');
    ctx.clearRect(0, 0, this.width, this.height);
    this.draw(ctx);
    this.mark();
  }
  // drawWhole draws all rows, also those that are not visible.
  drawWhole(ctx) {
    const { isWhole, height, full, needed } = this;
    Object.assign(this, { isWhole: true, height: needed, full: needed });
    ctx.textBaseline = 'middle';
    this.draw(ctx);
    Object.assign(this, { isWhole, height, full });
  }
  // draw draws the rows between the top and the height of the canvas.
  draw(ctx) {
    const { page: { colors, names, matches, weights } } = this;
    const upright = `${FONT}px ${colors.mono}`;
    const italic = `italic ${upright}`; // inlined functions
    ctx.font = upright;
    const charWidth = ctx.measureText('m').width;
    this.paintHeights(ctx);
    this.rows.forEach((row, d) => {
      const top = this.rowTop(d);
      if (top + ROW < 0 || top > this.height) return;
      for (const box of row) {
        const matched = matches && matches[box.frame];
        const faded = (matches && !matched) || this.isBelowZoom(box);
        const w = box.width;
        const gap = w > 3 ? 1 : w > 1.5 ? 0.5 : 0;
        ctx.globalAlpha = faded ? 0.45 : 1;
        ctx.fillStyle = matched ? colors.match : colors.of(box, weights);
        if (w > 8) {
          ctx.beginPath();
          ctx.roundRect(box.x, top, w - gap, ROW - 1, 2.5);
          ctx.fill();
        } else {
          ctx.fillRect(box.x, top, matched ? Math.max(w - gap, 1) : w - gap, ROW - 1);
        }
        const room = w - 2 * PAD;
        const text = room > 0 && (d > 0 || !this.view.ticks) ? names.fit(box.frame, Math.floor(room / charWidth)) : '';
        if (text) {
          ctx.globalAlpha = faded ? 0.75 : 1;
          ctx.fillStyle = colors.label;
          ctx.font = names.inlined(box.frame) ? italic : upright;
          ctx.fillText(text, box.x + PAD, top + ROW / 2, room);
        }
      }
    });
    ctx.globalAlpha = 0.5;
    ctx.fillStyle = colors.rest;
    for (const { depth, x, width } of this.rests) ctx.fillRect(x, this.rowTop(depth) + (this.hanging ? 0 : ROW - 4), width, 3);
    ctx.globalAlpha = 1;
    ctx.fillStyle = colors.match;
    for (const { depth, x } of this.ticks) ctx.fillRect(x, this.rowTop(depth), 1, ROW - 1);
    this.paintTicks(ctx);
  }
  // paintHeights fills the place of boxes that are too narrow to draw, in a view of time.
  paintHeights(ctx) {
    ctx.fillStyle = this.page.colors.rest;
    ctx.globalAlpha = 0.18;
    this.heights.forEach((height, x) => {
      if (height > 1) ctx.fillRect(x, this.rowTop(this.hanging ? 1 : height - 1), 1, (height - 1) * ROW);
    });
    ctx.globalAlpha = 1;
  }
  // paintTicks writes the times of a view of time on its root.
  paintTicks(ctx) {
    const ticks = this.view.ticks?.(this.width / 90) ?? [];
    ctx.fillStyle = this.page.colors.label;
    for (const [share, text] of ticks) {
      ctx.globalAlpha = 0.25;
      ctx.fillRect(Math.round(share * this.width), 0, 1, this.height);
      ctx.globalAlpha = 1;
      ctx.fillText(text, share * this.width + 3, this.rowTop(0) + ROW / 2);
    }
  }
  // mark outlines the boxes under the pointer and at the keyboard focus, and highlights
  // their function everywhere.
  mark() {
    const ctx = this.marks.getContext('2d');
    ctx.clearRect(0, 0, this.width, this.height);
    const { hover, selection, page: { colors } } = this;
    const outline = (box, color, lineWidth) => {
      ctx.strokeStyle = color;
      ctx.lineWidth = lineWidth;
      ctx.beginPath();
      ctx.roundRect(box.x + 0.5, this.rowTop(box.depth) + 0.5, Math.max(box.width - 2, 1), ROW - 2, 2.5);
      ctx.stroke();
    };
    const at = hover ?? selection;
    const { functions } = this.page;
    if (at && functions.isCode(functions.ofFrame[at.frame])) {
      ctx.fillStyle = colors.text;
      ctx.globalAlpha = 0.22;
      for (const box of this.rows.flat()) {
        if (functions.ofFrame[box.frame] === functions.ofFrame[at.frame]) {
          ctx.fillRect(box.x, this.rowTop(box.depth), Math.max(box.width - 1, 1), ROW - 1);
        }
      }
      ctx.globalAlpha = 1;
    }
    if (hover && hover !== selection) outline(hover, colors.text, 1);
    if (selection) outline(selection, colors.accent, 2);
    this.canvas.classList.toggle('at', Boolean(selection)); // the outline shows the focus
  }

  // ---- input

  zoomTo(box) {
    this.zoom = box;
    this.hover = null;
    this.layout();
    if (!this.isShown(this.selection)) this.selection = null;
    this.say(this.selection ?? box, Boolean(this.selection));
    this.scrollHome();
    this.repaint();
  }
  select(box) {
    if (!this.isShown(box)) return;
    this.selection = box;
    this.scrollTo(box);
    this.mark();
    this.say(box);
    this.page.selected(this, box);
  }
  deselect() {
    this.selection = null;
    this.mark();
  }
  // say makes box the item of the tree for screen readers, the focused one if isActive is set.
  // It creates a new element each time, because screen readers announce new elements.
  say(box, isActive = true) {
    const row = box.parent ? this.view.children(box.parent).filter((b) => this.isShown(b)) : [box];
    const item = element('span', this.page.spoken(box));
    item.id = `${this.host.id}-${box.depth}-${box.place}`;
    item.setAttribute('role', 'treeitem');
    item.setAttribute('aria-level', String(box.depth + 1));
    item.setAttribute('aria-posinset', String(row.indexOf(box) + 1));
    item.setAttribute('aria-setsize', String(row.length));
    if (this.rows[box.depth + 1]?.some((b) => b.parent === box)) item.setAttribute('aria-expanded', 'true');
    this.canvas.replaceChildren(item);
    if (isActive) this.canvas.setAttribute('aria-activedescendant', item.id);
    else this.canvas.removeAttribute('aria-activedescendant');
  }

  // press handles a key and reports whether it did.
  press(key) {
    const at = this.isShown(this.selection) ? this.selection : null;
    if (key.startsWith('Arrow') && !at) {
      this.select(this.zoom);
      return true;
    }
    switch (key) {
      case 'ArrowLeft': case 'ArrowRight':
        this.select(this.rows[at.depth][at.place + (key === 'ArrowRight' ? 1 : -1)]);
        return true;
      case this.hanging ? 'ArrowDown' : 'ArrowUp':
        this.select(this.rows[at.depth + 1]?.find((b) => b.parent === at));
        return true;
      case 'ArrowUp': case 'ArrowDown':
        this.select(at.parent);
        return true;
      case 'Home':
        this.select(this.view.root);
        return true;
      case 'Enter':
        if (!at) return false;
        this.page.zoomed(this, at);
        this.select(at);
        return true;
    }
    return false;
  }

  listen() {
    const position = (event) => {
      const box = this.canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    const hover = (box, event) => {
      this.canvas.style.cursor = box ? 'pointer' : 'default';
      this.page.hovered(this, box, event.clientX, event.clientY);
      if (box !== this.hover) { this.hover = box; this.mark(); }
    };
    this.canvas.addEventListener('mousemove', (event) => hover(this.boxAt(...position(event)), event));
    this.canvas.addEventListener('mouseleave', (event) => hover(null, event));
    this.canvas.addEventListener('click', (event) => {
      const box = this.boxAt(...position(event));
      if (!box) return;
      this.page.zoomed(this, box);
      this.select(box);
    });
    // The keyboard's menu key has no place: its menu opens at the selection.
    this.canvas.addEventListener('contextmenu', (event) => {
      const isKey = event.button !== 2;
      const box = isKey ? this.selection : this.boxAt(...position(event));
      if (!box) return;
      event.preventDefault();
      this.canvas.focus({ preventScroll: true });
      this.select(box);
      const { left, top } = this.canvas.getBoundingClientRect();
      const [x, y] = isKey ? [left + box.x, top + this.rowTop(box.depth) + ROW] : [event.clientX, event.clientY];
      this.page.opened(this, box, x, y);
    });
    this.host.addEventListener('scroll', () => {
      this.hover = null;
      this.page.hovered(this, null, 0, 0);
      this.repaint();
    });
    new ResizeObserver(() => {
      if (!this.view || this.host.clientHeight === 0) return;
      // When the window grows, the browser may have scrolled already, to the end at
      // most.
      const rest = this.full - this.host.scrollTop;
      const fromEnd = rest <= this.host.clientHeight ? 0 : rest - this.height;
      this.layout();
      // Keep callers in place when the window's height changes.
      if (!this.hanging) this.host.scrollTop = this.full - this.height - fromEnd;
      this.paint();
    }).observe(this.host);
  }
}

