// ---- The source and instructions of a function. The page does not contain them,
// but requests them from the server, if it came from one.

const SOURCE_COLUMNS = [['Self', 'number'], ['Total', 'number'], ['Line', 'number'], ['Source']];
const CODE_COLUMNS = [['Self', 'number'], ['Total', 'number'], ['Address', 'number'], ['Instruction'], ['From']];

class Listing {
  constructor(page) {
    this.page = page;
    this.sources = byId('sources');
    this.assembly = byId('assembly');
    this.asked = 0;
    this.key = '';
  }

  // show lists function f, with the samples of the chosen value and task.
  async show(f) {
    const { page, page: { data, names } } = this;
    const frame = page.functions.frames[f];
    const query = new URLSearchParams({
      function: names.of(frame), module: data.strings[data.frames.module[frame]],
      value: String(page.valueIndex), task: page.now.task, native: page.now.native,
    });
    const key = String(query);
    if (key === this.key) return;
    this.key = key;
    byId('listed').textContent = shortened(names.of(frame));
    this.fill([], [], 'Reading…');
    const asked = ++this.asked;
    let listing;
    try {
      const response = await fetch(`${data.listings}?${query}`);
      listing = await response.json();
      if (!response.ok) throw new Error(listing.error);
    } catch (err) {
      if (asked === this.asked) this.fill([], [], `fulgur view does not answer: ${err.message}`);
      return;
    }
    if (asked === this.asked) this.fill(listing.sources, listing.assembly, '');
  }

  fill(sources, assembly, notice) {
    this.rows = new Map(); // by file and line: of the source, and of its instructions
    // A side without content is a line above the other one. A side without texts, which has only numbers
    // and says why, is narrow.
    const lacks = [sources, assembly].map((side) => !notice && side.length === 0);
    const isBare = [sources.every((s) => s.lines.length === 0), assembly.every((a) => a.instructions.length === 0)];
    byId('code').classList.toggle('one', lacks[0] !== lacks[1]);
    [this.sources, this.assembly].forEach((side, i) => {
      side.classList.toggle('lacks', lacks[i]);
      side.classList.toggle('bare', !notice && isBare[i] && !isBare[1 - i]);
    });
    this.sources.replaceChildren(...this.sections(sources, notice || 'No source: the debug information lacks lines.', (s) => this.source(s)));
    this.assembly.replaceChildren(...this.sections(assembly, notice || 'No instructions: the profile lacks addresses.', (a) => this.code(a)));
    for (const side of [this.sources, this.assembly]) {
      const rows = [...side.querySelectorAll('tr[data-total]')];
      const hottest = rows.reduce((a, b) => (a && Number(a.dataset.total) >= Number(b.dataset.total) ? a : b), null);
      if (hottest) this.center(side, hottest);
    }
    byId('unfiltered').hidden = this.page.shown === this.page.data;
    byId('code').dataset.state = notice ? 'waiting' : 'ready';
  }

  // center scrolls a side vertically only, unlike scrollIntoView.
  center(side, row) {
    side.scrollTop += row.getBoundingClientRect().top - side.getBoundingClientRect().top - side.clientHeight / 2;
  }

  sections(parts, otherwise, fill) {
    if (parts.length === 0) return [element('p', otherwise, 'problem')];
    return parts.flatMap(fill);
  }

  source(source) {
    const counts = new Map(source.counts.map(([line, self, total]) => [line, [self, total]]));
    const heading = element('h2', source.file);
    const notes = [];
    if (source.newer) notes.push(element('p', 'This file changed after the program was built: lines may not match.', 'problem'));
    if (source.problem) {
      notes.push(element('p', source.problem, 'problem'));
      return [heading, ...notes, this.table(SOURCE_COLUMNS, source.counts.map(([line, self, total]) =>
        this.row(self, total, String(line), '', source.file, line)))];
    }
    const syntax = new Syntax(source.file);
    return [heading, ...notes, this.table(SOURCE_COLUMNS, source.lines.map((text, i) => {
      const line = source.first + i;
      const [self, total] = counts.get(line) ?? [0, 0];
      const row = this.row(self, total, String(line), '', source.file, line);
      row.lastElementChild.append(...syntax.parts(text).map(([name, part]) => element('span', part, name && `syntax ${name}`)));
      return row;
    }))];
  }

  code(assembly) {
    const heading = element('h2', assembly.function || assembly.module);
    heading.title = shortened(assembly.module);
    const notes = assembly.problem ? [element('p', assembly.problem, 'problem')] : [];
    return [heading, ...notes, this.table(CODE_COLUMNS, assembly.instructions.map((i) => {
      const row = this.row(i.self, i.total, i.address.slice(2), i.text, i.file, i.line);
      const from = i.file && i.line ? `${i.file}:${i.line}` : i.file ?? '';
      const place = element('td', from.slice(from.lastIndexOf('/') + 1), 'place');
      place.title = shortened([i.inlined, from].filter(Boolean).join(', '));
      row.append(place);
      return row;
    }))];
  }

  table(columns, rows) {
    const table = element('table');
    const head = element('thead');
    const names = element('tr');
    names.append(...columns.map(([text, className]) => element('th', text, className)));
    head.append(names);
    const body = element('tbody');
    body.append(...rows);
    table.append(head, body);
    return table;
  }

  // row makes the row of a line or an instruction. A click marks the matching rows
  // of the other side.
  row(self, total, number, text, file, line) {
    const { page: { everything, valueType } } = this;
    const row = element('tr');
    const weight = (value) => {
      const cell = element('td', value === 0 ? '' : percent(value, everything), 'number');
      cell.title = value === 0 ? '' : amount(value, valueType);
      return cell;
    };
    const key = `${file}:${line}`;
    if (total !== 0) row.dataset.total = String(total);
    if (self > 0) row.style.setProperty('--heat', `${Math.min(60, 8 + 90 * self / (everything || 1))}%`);
    row.append(weight(self), weight(total), element('td', number, 'number'), element('td', text, 'text'));
    if (line) {
      if (!this.rows.has(key)) this.rows.set(key, []);
      this.rows.get(key).push(row);
      row.addEventListener('click', () => this.link(row, this.rows.get(key)));
    }
    return row;
  }

  // link marks the rows of the same source line, and scrolls to the first one on the
  // other side.
  link(clicked, rows) {
    for (const row of byId('code').querySelectorAll('.linked')) row.classList.remove('linked');
    for (const row of rows) row.classList.add('linked');
    const there = this.sources.contains(clicked) ? this.assembly : this.sources;
    const first = rows.find((row) => there.contains(row));
    if (first) this.center(there, first);
  }
}

