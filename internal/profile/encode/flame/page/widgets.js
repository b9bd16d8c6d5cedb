
// ---- What opens over the page: popups below their buttons, the menu of a box, and pickers.
// At most one is open.

const MARGIN = 6; // CSS pixels between a popup and the window's edge

class Popup {
  // trigger is the button that opens the box, or null if open is called.
  constructor(box, trigger) {
    Object.assign(this, { box, trigger });
    if (trigger) {
      trigger.setAttribute('aria-haspopup', box.getAttribute('role'));
      trigger.setAttribute('aria-expanded', 'false');
      trigger.setAttribute('aria-controls', box.id);
      trigger.addEventListener('click', () => (this.isOpen ? this.close() : this.open()));
    }
    box.addEventListener('keydown', (event) => this.press(event));
    box.addEventListener('focusout', (event) => {
      if (event.relatedTarget && !box.contains(event.relatedTarget) && event.relatedTarget !== trigger) this.close(false);
    });
  }
  get isOpen() { return !this.box.hidden; }

  // open shows the box at a place, by default at its trigger, and moves the focus into it.
  open(place = this.trigger.getBoundingClientRect()) {
    Popup.current?.close(false);
    Popup.current = this;
    this.from = document.activeElement;
    this.box.hidden = false;
    this.trigger?.setAttribute('aria-expanded', 'true');
    const { width, height } = this.box.getBoundingClientRect();
    const fits = place.bottom + height <= window.innerHeight - MARGIN;
    const left = place.left + width <= window.innerWidth - MARGIN ? place.left : place.right - width;
    this.box.style.left = `${Math.max(MARGIN, left)}px`;
    this.box.style.top = `${Math.max(MARGIN, fits ? place.bottom : place.top - height)}px`;
    this.focus();
  }
  focus() { (this.box.querySelector('input, select, button:enabled') ?? this.box).focus({ preventScroll: true }); }
  // close hides the box. The focus goes back to where it was if isBack is set.
  close(isBack = true) {
    if (!this.isOpen) return;
    this.box.hidden = true;
    this.trigger?.setAttribute('aria-expanded', 'false');
    if (Popup.current === this) Popup.current = null;
    if (isBack) (this.trigger ?? this.from)?.focus({ preventScroll: true });
  }
  press(event) {
    if (event.key === 'Escape') {
      this.close();
      event.preventDefault();
    }
    event.stopPropagation(); // the keys of the page do not apply
  }
}
Popup.current = null;
document.addEventListener('pointerdown', ({ target }) => {
  const at = Popup.current;
  if (at && !at.box.contains(target) && !at.trigger?.contains(target)) at.close(false);
});

// nextOf returns the element that an arrow, Home or End leads to, or null.
function nextOf(list, at, key) {
  const i = list.indexOf(at);
  switch (key) {
    case 'ArrowDown': return list[Math.min(i + 1, list.length - 1)] ?? null;
    case 'ArrowUp': return list[Math.max(i - 1, 0)] ?? null;
    case 'Home': return list[0] ?? null;
    case 'End': return list[list.length - 1] ?? null;
  }
  return null;
}

// A Menu has entries that act. It opens where the pointer is.
class Menu extends Popup {
  constructor() { super(byId('menu'), null); }
  // show opens the menu with entries [text, act, key], where null is a line between entries.
  show(name, entries, x, y) {
    this.box.setAttribute('aria-label', name);
    this.box.replaceChildren(...entries.map((entry) => {
      if (!entry) {
        const line = element('hr');
        return line;
      }
      const [text, act, key] = entry;
      const item = button('', () => {
        this.close();
        act();
      });
      item.append(element('span', text));
      if (key) item.append(element('kbd', key));
      item.setAttribute('role', 'menuitem');
      item.tabIndex = -1;
      return item;
    }));
    this.open({ left: x, right: x, top: y, bottom: y });
  }
  press(event) {
    const items = [...this.box.querySelectorAll('button')];
    const next = nextOf(items, document.activeElement, event.key);
    if (next) next.focus();
    if (event.key === 'Tab') this.close();
    if (event.key === 'Enter' || event.key === ' ') document.activeElement.click();
    if (next || ['Tab', 'Enter', ' '].includes(event.key)) event.preventDefault();
    super.press(event);
  }
}

const MAX_CHOICES = 100; // per level

// A Picker chooses one of many entries, of which a search leaves those that match, with
// the entries above and below them. Entries are {value, text, level}, in the order of a tree.
// Of each level it shows the first MAX_CHOICES, and the number of the others.
class Picker {
  // picked receives the value of the chosen entry.
  constructor(root, picked) {
    const { id, dataset: { label } } = root;
    Object.assign(this, { root, label, picked, entries: [], value: '' });
    this.button = element('button', undefined, 'opens');
    this.button.type = 'button';
    const box = element('div', undefined, 'popup');
    box.id = `${id}-choices`;
    box.setAttribute('role', 'dialog');
    box.setAttribute('aria-label', label);
    box.hidden = true;
    this.input = element('input');
    this.list = element('ul');
    this.list.id = `${id}-list`;
    for (const [name, value] of Object.entries({
      type: 'text', role: 'combobox', placeholder: 'Find', autocomplete: 'off', spellcheck: 'false',
      'aria-label': `Find: ${label}`, 'aria-expanded': 'true', 'aria-autocomplete': 'list', 'aria-controls': this.list.id,
    })) this.input.setAttribute(name, value);
    this.list.setAttribute('role', 'listbox');
    this.list.setAttribute('aria-label', label);
    box.append(this.input, this.list);
    root.append(this.button, box);
    this.popup = new Popup(box, this.button);
    this.button.addEventListener('click', () => {
      if (!this.popup.isOpen) return;
      this.input.value = '';
      this.fill();
    });
    this.input.addEventListener('input', () => this.fill());
    this.input.addEventListener('keydown', (event) => this.press(event));
    this.list.addEventListener('click', ({ target }) => this.pick(target.closest('[role=option]')));
  }

  // show offers entries, with one of them chosen. Without a choice, the picker is hidden.
  show(entries, value) {
    this.entries = entries;
    this.root.hidden = entries.length < 2;
    this.choose(value);
    if (this.popup.isOpen) this.fill();
  }
  choose(value) {
    const chosen = this.entries.find((e) => e.value === value);
    this.value = value;
    this.button.textContent = shortened((chosen ?? this.entries[0])?.text ?? '');
    this.button.setAttribute('aria-label', `${this.label}: ${this.button.textContent}`);
    this.button.title = this.button.textContent;
  }

  // matching returns by entry whether it matches, or one above or below it.
  matching(wanted) {
    const { entries } = this;
    const keep = entries.map(({ text }) => text.toLowerCase().includes(wanted));
    const path = []; // indexes of the entries above, by level
    entries.forEach(({ level }, i) => {
      path.length = level;
      if (path.some((above) => keep[above] === true)) keep[i] = true;
      else if (keep[i]) for (const above of path) keep[above] ||= 'above';
      path[level] = i;
    });
    return keep;
  }
  fill() {
    const wanted = this.input.value.trim().toLowerCase();
    const keep = this.matching(wanted);
    const rows = [];
    const counts = []; // by level, the entries below the current one of the level above
    const rest = (level) => {
      for (let l = counts.length - 1; l >= level; l--) {
        if (counts[l] > MAX_CHOICES) rows.push(this.row({ text: `… ${digits.format(counts[l] - MAX_CHOICES)} more`, level: l }));
      }
      counts.length = Math.min(counts.length, level);
    };
    this.entries.forEach((entry, i) => {
      if (!keep[i]) return;
      rest(entry.level + 1);
      for (let l = counts.length; l <= entry.level; l++) counts[l] = 0;
      if (counts.slice(0, entry.level).some((count) => count > MAX_CHOICES)) return;
      if (++counts[entry.level] <= MAX_CHOICES) rows.push(this.row(entry));
    });
    rest(0);
    if (rows.length === 0) rows.push(this.row({ text: 'none', level: 0 }));
    this.list.replaceChildren(...rows);
    const options = this.options();
    this.mark(options.find((o) => o.dataset.value === this.value && !wanted) ?? options.find((o) => o.textContent.toLowerCase().includes(wanted)) ?? null);
  }
  // row returns an entry, which can be picked if it has a value.
  row({ value, text, level }) {
    const row = element('li', text);
    row.id = `${this.list.id}-${this.number = (this.number ?? 0) + 1}`;
    row.style.paddingLeft = `${8 + 14 * level}px`;
    row.dataset.level = String(level);
    row.setAttribute('role', 'option');
    if (value === undefined) row.setAttribute('aria-disabled', 'true');
    else row.dataset.value = value;
    row.setAttribute('aria-selected', String(value === this.value));
    return row;
  }
  options() { return [...this.list.querySelectorAll('[data-value]')]; }
  mark(row) {
    this.list.querySelector('.at')?.classList.remove('at');
    this.at = row;
    row?.classList.add('at');
    if (row) this.input.setAttribute('aria-activedescendant', row.id);
    else this.input.removeAttribute('aria-activedescendant');
    row?.scrollIntoView({ block: 'nearest' });
  }
  pick(row) {
    if (row?.dataset.value === undefined) return;
    this.popup.close();
    this.picked(row.dataset.value);
  }
  press(event) {
    const next = event.key === 'Home' || event.key === 'End' ? null : nextOf(this.options(), this.at, event.key);
    if (next) this.mark(next);
    else if (event.key === 'Enter') this.pick(this.at);
    else return;
    event.preventDefault();
  }
}

// copy puts a text on the clipboard. Outside secure contexts, such as addresses of another
// machine, only the older way works.
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const put = (event) => {
      event.clipboardData.setData('text/plain', text);
      event.preventDefault();
    };
    document.addEventListener('copy', put, { once: true });
    const ok = document.execCommand('copy');
    document.removeEventListener('copy', put);
    return ok;
  }
  return true;
}
