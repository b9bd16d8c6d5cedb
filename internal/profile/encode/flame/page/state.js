// ---- The user's choices. They are kept in the page's address, so that the back
// button undoes them and a link restores them.

class State {
  constructor(defaults, changed) {
    this.defaults = defaults;
    this.now = this.parse();
    this.changed = changed;
    window.addEventListener('popstate', () => {
      const before = this.now;
      this.now = this.parse();
      this.changed(before);
    });
  }
  parse() {
    const given = new URLSearchParams(location.hash.slice(1));
    const state = { ...this.defaults };
    for (const key of Object.keys(state)) {
      if (given.has(key)) state[key] = given.get(key);
    }
    return state;
  }
  // set changes parts of the state. If isStep is set, the back button undoes the
  // change.
  set(change, isStep = false) {
    const before = this.now;
    this.now = { ...before, ...change };
    const params = new URLSearchParams();
    for (const [key, value] of Object.entries(this.now)) {
      if (value !== this.defaults[key]) params.set(key, value);
    }
    const address = `#${params}`;
    if (address !== (location.hash || '#')) {
      if (isStep) history.pushState(null, '', address); else history.replaceState(null, '', address);
    }
    this.changed(before);
  }
}

// wayTo encodes the path from a view's root to a box. wayFrom finds the box again,
// or the deepest existing box on its path.
function wayTo(box, names) {
  const steps = [];
  for (let b = box; b.parent; b = b.parent) steps.push(names.key(b.frame));
  return steps.reverse().join('.');
}
function wayFrom(view, way, names) {
  let box = view.root;
  for (const step of way ? way.split('.') : []) {
    const next = view.children(box).find((b) => names.key(b.frame) === step);
    if (!next || next.total <= 0) break;
    box = next;
  }
  return box;
}

