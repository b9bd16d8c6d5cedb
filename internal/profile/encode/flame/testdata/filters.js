// Applies filters to a page, with the page's own scripts: node filters.js PAGE CASES SCRIPT...
// prints the stacks that are left of each case as JSON.
'use strict';
const fs = require('fs');
const vm = require('vm');
const [page, cases, ...scripts] = process.argv.slice(2);
globalThis.byId = () => ({ textContent: fs.readFileSync(page, 'utf8').match(/<script[^>]*id="?data"?[^>]*>([^<]*)</)[1] });
vm.runInThisContext(scripts.map((s) => fs.readFileSync(s, 'utf8')).join('\n'));

// stacks returns the stacks with samples as folded lines.
function stacks(data, names) {
  const { tree: { count, first, parent, frame, from }, samples } = data;
  const sums = new Map();
  for (let k = 0; k < count; k++) {
    const path = [];
    for (let c = k; ; c = parent[c]) {
      for (let n = first[c + 1] - 1; n >= first[c]; n--) path.unshift(names.of(frame[n]));
      if (c === 0) break;
    }
    const key = path.slice(1).join(';'); // without the root
    for (let s = from[k]; s < from[k + 1]; s++) {
      if (!samples.kept || samples.kept[s]) sums.set(key, (sums.get(key) ?? 0) + samples.values[0][s]);
    }
  }
  return [...sums].map(([key, n]) => `${key} ${n}\n`).sort((a, b) => (a < b ? -1 : 1)).join('');
}

vm.runInThisContext('load')().then((data) => {
  const [Names, Functions, Filters] = vm.runInThisContext('[Names, Functions, Filters]');
  const names = new Names(data);
  const filters = new Filters(data, new Functions(data), names);
  const key = (name) => names.key(data.frames.name.findIndex((_, f) => names.of(f) === name && filters.isCode[f]));
  const results = JSON.parse(fs.readFileSync(cases, 'utf8')).cases.map((c) => {
    const lines = c.filters.map((line) => line.replace(/\{(\w+)\}/g, (_, name) => key(name)));
    const parsed = filters.parse(lines.join('\n'));
    const wrong = parsed.find(({ apply }) => !apply);
    return wrong ? `no filter: ${wrong.text}` : stacks(parsed.reduce((d, { apply }) => apply(d), data), names);
  });
  console.log(JSON.stringify(results));
});
