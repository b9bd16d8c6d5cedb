// ---- Colors. page.css defines them for light and dark. The lightness of boxes
// varies a little by name, so that a function can be followed through the graph.

const SHADES = 5;
const CHANGES = 4; // steps from "as before" to "only now" or "only before"
const KIND_LABELS = {
  cpu: 'CPU', group: 'Group', process: 'Process', user: 'User', inlined: 'Inlined', kernel: 'Kernel', jit: 'Interpreted, JIT',
  unresolved: 'No symbol', marker: 'Note',
};
const MODULE_HUES = 12; // modules with a hue of their own

class Colors {
  constructor(data) {
    this.data = data;
    const { frames, strings, kinds } = data;
    this.kinds = Array.from(frames.kind, (kind, f) =>
      frames.inlined[f] && kinds[kind] === 'user' ? 'inlined' : kinds[kind]);
    this.shades = Array.from(frames.name, (id) => (hash(strings[id]) >>> 8) % SHADES);
    this.modules = [];
  }

  // rankModules assigns hues to the modules with the largest self values.
  rankModules(functions, self) {
    const { module } = this.data.frames;
    const sums = new Map();
    functions.frames.forEach((frame, f) => {
      if (module[frame]) sums.set(module[frame], (sums.get(module[frame]) ?? 0) + self[f]);
    });
    this.modules = [...sums].sort((a, b) => b[1] - a[1]).slice(0, MODULE_HUES).map(([id]) => id);
  }

  // read reads the current colors from the style sheet, for boxes colored by mode:
  // kind, module, name or change.
  read(mode) {
    this.mode = mode;
    const probe = element('i');
    document.body.append(probe);
    const resolve = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    const oklch = (name) => resolve(name).match(/[\d.]+/g).map(Number);
    const shade = ([l, c, h], i, swing) => {
      const step = i - (SHADES - 1) / 2;
      return `oklch(${(l + step * 0.014).toFixed(3)} ${c} ${(h + step * swing).toFixed(1)})`;
    };
    const shades = (color, swing) => Array.from({ length: SHADES }, (_, i) => shade(color, i, swing));

    this.byKind = Object.fromEntries(Object.keys(KIND_LABELS).concat('root').map((k) => [k, shades(oklch(k), 3)]));
    const [l, c] = oklch('user');
    // The golden angle separates the hues of modules that are neighbors in the
    // ranking.
    this.byModule = new Map(this.modules.map((id, i) => [id, shades([l, c, (40 + i * 137.5) % 360], 1)]));
    this.byName = shades(oklch('user'), 14);
    const same = oklch('same');
    const steps = ([tl, tc, th]) => Array.from({ length: CHANGES }, (_, i) => {
      const s = (i + 1) / CHANGES;
      return `oklch(${same[0] + s * (tl - same[0])} ${s * tc} ${th})`;
    });
    this.byChange = [...steps(oklch('less')).reverse(), `oklch(${same.join(' ')})`, ...steps(oklch('more'))];
    Object.assign(this, {
      match: resolve('match'), label: resolve('label'), text: resolve('text'), accent: resolve('accent'),
      rest: resolve('faint'),
      mono: getComputedStyle(document.documentElement).getPropertyValue('--mono'),
      sans: getComputedStyle(document.documentElement).getPropertyValue('--sans'),
      ground: resolve('ground'), heat: resolve('more'),
    });
    probe.remove();
    this.ofFrame = this.kinds.map((kind, f) => {
      let set = this.byKind[kind];
      if (kind !== 'root' && kind !== 'process' && kind !== 'group' && kind !== 'cpu' && kind !== 'marker') {
        if (mode === 'module') set = this.byModule.get(this.data.frames.module[f]) ?? this.byKind.unresolved;
        if (mode === 'name') set = this.byName;
      }
      return set[this.shades[f]];
    });
  }

  // of returns the color of a box.
  of(box, weights) {
    if (this.mode !== 'change') return this.ofFrame[box.frame];
    const share = box.total / (weights.whole || 1);
    const before = box.base / (weights.baseWhole || 1);
    const most = Math.max(share, before);
    return this.byChange[CHANGES + (most > 0 ? Math.round(CHANGES * (share - before) / most) : 0)];
  }

  // legend returns [text, color] for each color of the mode.
  legend() {
    const middle = (SHADES - 1) / 2;
    if (this.mode === 'name') return [];
    if (this.mode === 'change') {
      const { base } = this.data;
      const ends = base.name ? [`only ${base.name}`, 'same', `only ${base.other}`] : ['only before', 'same share', 'only now'];
      return this.byChange.map((color, i) => [{ 0: ends[0], [CHANGES]: ends[1], [2 * CHANGES]: ends[2] }[i] ?? '', color]);
    }
    if (this.mode === 'module') {
      const named = this.modules.map((id) => [moduleName(this.data.strings[id]), this.byModule.get(id)[middle]]);
      const more = new Set(this.data.frames.module).size - 1 > named.length;
      return more ? [...named, ['others', this.byKind.unresolved[middle]]] : named;
    }
    const present = new Set(this.kinds);
    return Object.entries(KIND_LABELS).filter(([kind]) => present.has(kind))
      .map(([kind, text]) => [text, this.byKind[kind][middle]]);
  }
}

// moduleName is the last element of a module's path.
const moduleName = (path) => path.slice(path.lastIndexOf('/') + 1) || path;

