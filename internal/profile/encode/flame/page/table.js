// ---- The table of functions: the content of the graph, sortable and accessible to
// screen readers.

const PAGE_ROWS = 200;

class Table {
  // The page receives sorted(column), chosen(function) and openedRow(function, x, y).
  constructor(data, functions, page) {
    this.data = data;
    this.functions = functions;
    this.page = page;
    this.body = byId('rows');
    const { frames, strings } = data;
    this.texts = {
      __proto__: null, // keys come from the address
      name: (f) => page.names.shown(functions.frames[f]),
      module: (f) => strings[frames.module[functions.frames[f]]],
      source: (f) => sourceOf(data, functions.frames[f]),
      kind: (f) => KIND_LABELS[data.kinds[frames.kind[functions.frames[f]]]] ?? '',
    };
    for (const header of byId('table').querySelectorAll('th')) {
      header.hidden = ['before', 'change'].includes(header.dataset.column) && !data.compared;
      if (header.dataset.column === 'before' && data.base?.name) header.firstElementChild.textContent = capital(data.base.name);
      header.firstElementChild.addEventListener('click', () => this.page.sorted(header.dataset.column));
    }
    byId('more').addEventListener('click', () => {
      this.limit += 10 * PAGE_ROWS;
      this.fill();
    });
  }

  // show lists the functions for which keeps returns true, with the sums from
  // Functions. order is a column, with a leading "-" for descending order.
  show(self, total, weights, keeps, order) {
    const share = (f) => total.values[f] / (weights.whole || 1);
    const before = (f) => total.base[f] / (weights.baseWhole || 1);
    Object.assign(this, { self, total });
    this.weights = weights;
    this.change = (f) => share(f) - before(f);
    const column = order.replace('-', '');
    const numbers = { __proto__: null, self: (f) => self[f], total: (f) => total.values[f], before: (f) => total.base[f], change: this.change };
    const list = this.functions.frames.map((_, f) => f)
      .filter((f) => keeps(f) && (total.values[f] !== 0 || total.base[f] !== 0));
    const key = numbers[column] ?? this.texts[column] ?? numbers.self;
    const keys = this.functions.frames.map((_, f) => key(f));
    const compare = numbers[column]
      ? (a, b) => keys[b] - keys[a]
      : (a, b) => (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0);
    const sign = order.startsWith('-') ? -1 : 1;
    list.sort((a, b) => sign * compare(a, b) || total.values[b] - total.values[a] || a - b);
    this.list = list;
    for (const header of byId('table').querySelectorAll('th')) {
      const falling = Boolean(numbers[header.dataset.column]) === (sign > 0);
      if (header.dataset.column === column) header.setAttribute('aria-sort', falling ? 'descending' : 'ascending');
      else header.removeAttribute('aria-sort');
    }
    byId('table').querySelector('[data-column=self] button').textContent = this.page.selfName;
    this.limit = PAGE_ROWS;
    this.fill();
  }

  fill() {
    const { self, total, weights, data, texts } = this;
    const type = this.page.valueType;
    const number = (value, whole = weights.whole) => {
      const cell = element('td', amount(value, type), 'number');
      cell.append(element('small', percent(value, whole)));
      return cell;
    };
    this.body.replaceChildren(...this.list.slice(0, this.limit).map((f) => {
      const row = element('tr');
      const name = element('th');
      name.scope = 'row';
      name.append(button(texts.name(f), () => this.page.chosen(f), 'name'));
      row.addEventListener('contextmenu', (event) => {
        event.preventDefault();
        const { left, bottom } = name.getBoundingClientRect();
        this.page.openedRow(f, ...(event.button === 2 ? [event.clientX, event.clientY] : [left, bottom]));
      });
      row.append(number(self[f]), number(total.values[f]));
      if (data.compared) row.append(number(total.base[f], weights.baseWhole), element('td', pointsChange(this.change(f), 0), 'number'));
      const module = element('td', moduleName(texts.module(f)), 'path');
      module.title = shortened(texts.module(f));
      row.append(name, module, element('td', texts.source(f), 'path'), element('td', texts.kind(f)));
      return row;
    }));
    const rest = this.list.length - this.limit;
    byId('more').hidden = rest <= 0;
    byId('more').textContent = `Show more (${digits.format(Math.max(rest, 0))} left)`;
    byId('count').textContent = `${digits.format(this.list.length)} ${this.list.length === 1 ? 'function' : 'functions'}`;
  }
}

