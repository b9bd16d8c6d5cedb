// Zoom and search in pictures, as in flamegraph.pl's. Without it, a picture is complete.
(() => {
  const svg = document.currentScript.closest('svg');
  const CHAR = 6.65, MIN = 3, GAP = 0.5, NEAR = 0.002;
  const boxes = [...svg.querySelectorAll('g')].map((g) => {
    const rect = g.querySelector('rect');
    const title = g.querySelector('title').textContent;
    const line = title.split('\n', 1)[0];
    const number = (name) => Number(rect.getAttribute(name));
    const drawn = number('width');
    return {
      g, rect, line, text: g.querySelector('text'), x: number('x'), y: number('y'), drawn,
      width: drawn >= GAP ? drawn + GAP : 2 * drawn, // see drawSVG
      name: g.dataset.name ?? /^(.*): [^:]*, [\d.]+%$/.exec(line)?.[1] ?? line,
      label: g.querySelector('text')?.textContent,
    };
  });
  if (boxes.length === 0) return;
  const [root] = boxes;
  const hanging = boxes.some((o) => o.y > root.y);
  const isUnder = (a, b) => hanging ? a.y < b.y : a.y > b.y; // nearer to the root
  const state = new URLSearchParams(location.hash.slice(1));

  // ---- Controls, on a line of their own.
  const height = svg.viewBox.baseVal.height;
  const width = svg.viewBox.baseVal.width;
  const control = (x, anchor, text) => {
    const e = document.createElementNS(svg.namespaceURI, 'text');
    for (const [key, value] of Object.entries({ class: 'note', x, y: hanging ? 41 : height - 6, 'text-anchor': anchor })) e.setAttribute(key, value);
    e.textContent = text;
    svg.append(e);
    return e;
  };
  const about = control(root.x, 'start', '');
  const button = (x, text, id, act) => {
    const e = control(x, 'end', text);
    e.id = id;
    e.style.cursor = 'pointer';
    e.addEventListener('click', act);
    return e;
  };
  const searching = button(width - root.x, 'Search', 'search', () => ask());
  const resetting = button(width - root.x - 200, 'Reset zoom', 'reset', () => zoom(root));

  // ---- Zoom.
  const fit = (name, room) => {
    const chars = Math.floor(room / CHAR);
    const letters = [...name];
    if (letters.length <= chars) return name;
    return chars < MIN ? '' : letters.slice(0, chars - 1).join('') + '…';
  };
  const place = (o, x, w) => {
    const whole = w === o.width && x === o.x;
    o.rect.setAttribute('x', x);
    o.rect.setAttribute('width', whole ? o.drawn : Math.max(w - GAP, w / 2));
    const label = whole && o.label ? o.label : fit(o.name, w - 6);
    if (label && !o.text) {
      o.text = document.createElementNS(svg.namespaceURI, 'text');
      o.text.setAttribute('y', o.y + 12.5);
      o.g.append(o.text);
    }
    if (!o.text) return;
    o.text.textContent = whole ? o.label ?? '' : label;
    o.text.setAttribute('x', x + 3);
  };
  let zoomed = root;
  const zoom = (to) => {
    zoomed = to;
    const scale = root.width / to.width;
    for (const o of boxes) {
      const within = o.x >= to.x - NEAR && o.x + o.width <= to.x + to.width + NEAR && !isUnder(o, to);
      const caller = isUnder(o, to) && o.x <= to.x + NEAR && o.x + o.width >= to.x + to.width - NEAR;
      o.g.style.display = within && (o === to || isUnder(to, o)) || caller ? '' : 'none';
      o.g.style.opacity = caller ? 0.5 : '';
      if (caller) place(o, root.x, root.width);
      else if (within) place(o, scale === 1 ? o.x : root.x + (o.x - to.x) * scale, o.width * scale);
    }
    resetting.style.display = to === root ? 'none' : '';
    remember('zoom', to === root ? '' : String(boxes.indexOf(to)));
  };

  // ---- Search.
  const search = (wanted) => {
    let matches = () => false;
    if (wanted) {
      try {
        const pattern = new RegExp(wanted, 'i');
        matches = (name) => pattern.test(name);
      } catch {
        const text = wanted.toLowerCase();
        matches = (name) => name.toLowerCase().includes(text);
      }
    }
    let sum = 0, end = -1;
    for (const o of boxes) { // callers precede callees
      const hit = matches(o.name);
      o.rect.style.fill = hit ? '#e600e6' : '';
      if (hit && o.x >= end - NEAR) {
        sum += o.width;
        end = o.x + o.width;
      }
    }
    searching.textContent = wanted ? `Matched: ${(100 * sum / root.width).toFixed(1)}% · Search` : 'Search';
    remember('search', wanted);
  };
  const ask = () => {
    const wanted = prompt('Search for a regular expression (empty: none)', state.get('search') ?? '');
    if (wanted !== null) search(wanted);
  };

  // ---- The address keeps both.
  const remember = (key, value) => {
    if (value) state.set(key, value);
    else state.delete(key);
    try {
      history.replaceState(null, '', `#${state}`);
    } catch { /* in some embeddings */ }
  };
  const boxOf = (event) => boxes.find((o) => o.g === event.target.closest('g'));
  svg.addEventListener('click', (event) => {
    const o = boxOf(event);
    if (o) zoom(o);
  });
  svg.addEventListener('mouseover', (event) => { about.textContent = fit(boxOf(event)?.line ?? '', width - 400); });
  addEventListener('keydown', (event) => {
    if (event.key === '/' || event.key === 'f' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      ask();
    } else if (event.key === 'Escape') {
      if (state.get('search')) search('');
      else zoom(root);
    }
  });
  const wanted = state.get('search') ?? '';
  zoom(boxes[Number(state.get('zoom'))] ?? root);
  if (wanted) search(wanted);
  if (svg === document.documentElement && !hanging) scrollTo(0, height); // the root in sight
})();
