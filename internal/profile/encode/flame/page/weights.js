// ---- The weights of boxes: one value type of the chosen tasks.

// Sums holds prefix sums over samples, so that the sum of a run of samples, and thus
// of a chain, is one subtraction.
class Sums {
  constructor({ tree, samples }, column, keeps) {
    this.tree = tree;
    this.before = new Float64Array(samples.count + 1); // by sample, the sum of all samples before it
    const { kept } = samples;
    let sum = 0;
    for (let i = 0; i < samples.count; i++) {
      if (keeps[samples.task[i]] && (!kept || kept[i])) sum += column[i];
      this.before[i + 1] = sum;
    }
    this.whole = sum;
  }
  // total is the value of a chain's nodes with everything above them, self the value
  // of its last node alone.
  total(chain) { return this.between(chain, this.tree.end[chain]); }
  self(chain) { return this.between(chain, chain + 1); }
  between(chain, end) {
    const { from } = this.tree;
    return this.before[from[end]] - this.before[from[chain]];
  }
}

// Weights holds the sums of the shown profile and, in a comparison, of its base.
class Weights {
  // type is the index of a value type. keeps tells for each task whether its samples
  // count.
  constructor(data, type, keeps) {
    const { samples: { values } } = data;
    this.sums = new Sums(data, values[type], keeps);
    // of the base in a comparison, else null
    this.base = data.compared ? new Sums(data, values[data.values.length + type], keeps) : null;
    this.whole = this.sums.whole;
    // Changes of amounts, rather than of shares, are shares of the profile.
    this.baseWhole = !this.base ? 0 : data.base.name ? this.whole : this.base.whole;
  }
  total(chain) { return this.sums.total(chain); }
  self(chain) { return this.sums.self(chain); }
  baseTotal(chain) { return this.base ? this.base.total(chain) : 0; }
  baseSelf(chain) { return this.base ? this.base.self(chain) : 0; }
}

// taskFilter returns an array by task: whether choice selects it. choice is
// "g.<group>", "c.<comm>", "p.<pid>", "t.<tid>", or "" for all.
function taskFilter({ tasks, strings }, choice) {
  const wanted = choice.slice(2);
  switch (choice.slice(0, 2)) {
    case 'g.': return tasks.comm.map((_, i) => !!tasks.group && strings[tasks.group[i]] === wanted);
    case 'c.': return tasks.comm.map((id) => strings[id] === wanted);
    case 'p.': return tasks.pid.map((pid) => String(pid) === wanted);
    case 't.': return tasks.tid.map((tid) => String(tid) === wanted);
    default: return tasks.comm.map(() => true);
  }
}

// taskChoices returns choices for taskFilter as entries of a Picker: the groups, if there are
// any, and then each name followed by its processes, and each process by its threads, heaviest
// first.
function taskChoices({ tasks, strings, samples }, column) {
  const weights = tasks.comm.map(() => 0);
  const { count, task, values: { [column]: values } } = samples;
  for (let i = 0; i < count; i++) weights[task[i]] += values[i];
  const whole = weights.reduce((sum, w) => sum + w, 0);
  const all = tasks.comm.map((_, i) => i);
  const list = [{ value: '', text: 'All processes', level: 0 }];
  // group adds an entry for each value of key, each followed by the entries of
  // inner.
  const group = (members, level, entry, inner) => {
    const groups = Map.groupBy(members, (i) => entry(i)[0]);
    const weigh = (g) => g.reduce((sum, i) => sum + weights[i], 0);
    const sorted = [...groups.values()].map((g) => [weigh(g), g]).sort((a, b) => b[0] - a[0]);
    for (const [weight, g] of sorted) {
      const [value, text] = entry(g[0]);
      if (value) list.push({ value, text: `${text} · ${percent(weight, whole)}`, level });
      if (inner) inner(g, value ? level + 1 : level);
    }
  };
  const threads = (members, level) =>
    group(members, level, (i) => tasks.tid[i] ? [`t.${tasks.tid[i]}`, `thread ${tasks.tid[i]}`] : ['', '']);
  const processes = (members, level) =>
    group(members, level, (i) => tasks.pid[i] ? [`p.${tasks.pid[i]}`, `process ${tasks.pid[i]}`] : ['', ''], threads);
  if (tasks.group) group(all, 0, (i) => [`g.${strings[tasks.group[i]]}`, strings[tasks.group[i]]]);
  group(all, 0, (i) => [`c.${strings[tasks.comm[i]]}`, strings[tasks.comm[i]]], processes);
  return list;
}
