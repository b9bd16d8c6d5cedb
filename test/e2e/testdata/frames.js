// frames.js threads: each thread notes its stack as V8 reports it, and then stays in that
// place. Prints one line of JSON with the stacks.
// frames.js calls: makes functions all the time, and calls them.
// frames.js hot: calls functions until V8 has inlined them. Prints which function calls which,
// and the first and last line of each.
// frames.js short: sorts all the time, with a function that takes a few instructions.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const vm = require('vm');

Error.stackTraceLimit = Infinity;

// stack returns the callers of burn with a file, leaf first: names, files and lines.
function stack() {
  const before = Error.prepareStackTrace;
  Error.prepareStackTrace = (_, sites) => sites;
  const sites = new Error().stack;
  Error.prepareStackTrace = before;
  return sites.slice(2) // without stack and burn
    .filter((s) => s.getFileName() && !s.getFileName().startsWith('node:') && !(s.isAsync && s.isAsync()))
    .map((s) => [s.getFunctionName() || '(anonymous)', s.getFileName(), s.getLineNumber()]);
}

// burn notes the stack, and then uses the CPU when it is the thread's turn.
function burn() {
  parentPort.postMessage(stack());
  const { place, turn } = workerData;
  for (let x = 0; ; ) {
    const now = Atomics.load(turn, 0);
    if (now !== place) Atomics.wait(turn, 0, now);
    else for (let i = 0; i < 1e6; i++) x = (x + i) | 0;
  }
}

class Animal {
  #hidden() {
    return burn();
  }
  constructor(go) {
    if (go) this.speak(go);
  }
  speak(go) {
    return go === 2 ? this.#hidden() : burn();
  }
  static make() {
    return new Animal(1);
  }
  get sound() {
    return this.speak(2);
  }
}

function deep(n) {
  if (n > 0) return deep(n - 1);
  return burn();
}

function* generate() {
  yield 1;
  yield burn();
}

function many(a, b, c) { // has more variables in its context than a scope keeps in line
  let v0, v1, v2, v3, v4, v5, v6, v7, v8, v9, v10, v11, v12, v13, v14, v15, v16, v17, v18, v19;
  let w0, w1, w2, w3, w4, w5, w6, w7, w8, w9, w10, w11, w12, w13, w14, w15, w16, w17, w18, w19;
  let x0, x1, x2, x3, x4, x5, x6, x7, x8, x9, x10, x11, x12, x13, x14, x15, x16, x17, x18, x19;
  let y0, y1, y2, y3, y4, y5, y6, y7, y8, y9, y10, y11, y12, y13, y14, y15, y16, y17, y18, y19;
  eval('v0 = a');
  return burn();
}

const object = {};
object.assigned = function () {
  return burn();
};
object.named = function itself(n) {
  return n ? itself(n - 1) : burn();
};

const places = [
  () => deep(0),
  () => deep(30),
  () => Animal.make(),
  () => new Animal(0).sound,
  () => [1, 2].map((x) => burn(x)),
  () => [3, 1, 2].sort(() => burn()),
  () => [1, 2].reduce((a, b) => burn(a + b)),
  () => 'a-b'.replace(/-/g, () => burn()),
  () => JSON.parse('[1]', () => burn()),
  () => JSON.stringify({ toJSON: () => burn() }),
  () => [...generate()],
  () => Reflect.apply(deep, null, [1]),
  () => deep.bind(null, 1)(),
  () => object.assigned(),
  () => object.named(2),
  () => many(1, 2, 3),
  () => new Proxy({}, { get: () => burn() }).property,
  () => vm.runInThisContext('(function fünf函数(f) {\n  return f(0);\n})', { filename: '/x/générated.js' })(deep),
  () => vm.runInThisContext(`/* ${'x'.repeat(300)} */ (function ${'long'.repeat(100)}(f) { return f(0); })`, { filename: '/x/long.js' })(deep),
  async () => {
    await null;
    await (async function inner() {
      await null;
      burn();
    })();
  },
];

function threads() {
  const noted = [], turn = new Int32Array(new SharedArrayBuffer(4)).fill(-1);
  const next = () => {
    Atomics.store(turn, 0, (turn[0] + 1) % places.length);
    Atomics.notify(turn, 0);
  };
  places.forEach((_, place) => {
    new Worker(__filename, { workerData: { place, turn }, argv: ['threads'] }).on('message', (s) => {
      noted.push(s);
      if (noted.length < places.length) return;
      console.log(JSON.stringify({ Noted: noted }));
      setInterval(next, 20);
    });
  });
}

// calls makes pairs of functions with a common number that call each other, and drops them.
function calls() {
  console.log('{}');
  let sum = 0;
  for (let n = 0; ; n++) {
    const source = `(function outer${n}() {
      function inner${n}(x) { let s = x; for (let i = 0; i < 20000; i++) s = (s * 31 + i) | 0; return s; }
      let t = 0;
      for (let i = 0; i < 50; i++) t = (t + inner${n}(i)) | 0;
      return t;
    })`;
    sum = (sum + vm.runInThisContext(source, { filename: `/generated/${n}.js` })()) | 0;
    if (n % 20 === 19 && global.gc) gc(); // moves functions
  }
}

class Shape {
  constructor(n) {
    this.n = n;
  }
  area(x) {
    return middle(this.n + x);
  }
}

function middle(x) {
  return (
    innermost(x, 1) +
    innermost(x, 2)
  );
}

function innermost(a, b) {
  let s = 0;
  for (let i = 0; i < 500; i++) {
    s = (s * 31 + a * i + b) | 0;
  }
  if (s === 0.5) note();
  return s;
}

const shapes = [new Shape(1), new Shape(2)];
const each = (x) => shapes.map((shape) => shape.area(x));

function around(x) {
  let sum = 0;
  for (const y of each(x)) sum = (sum + y) | 0;
  return sum;
}

function many_times(n) {
  let sum = 0;
  for (let i = 0; i < n; i++) {
    sum = (sum + around(i)) | 0;
  }
  return sum;
}

function hot() {
  const source = require('fs').readFileSync(__filename, 'utf8').split('\n');
  const range = {};
  for (const name of ['middle', 'innermost', 'around', 'many_times', 'hot']) {
    const first = source.findIndex((l) => l.startsWith(`function ${name}(`));
    range[name] = [first + 1, source.indexOf('}', first) + 1];
  }
  range.area = [source.indexOf('  area(x) {') + 1, source.indexOf('  }', source.indexOf('  area(x) {')) + 1];
  const line = source.findIndex((l) => l.startsWith('const each')) + 1;
  range.each = range['(anonymous)'] = [line, line];
  console.log(JSON.stringify({ Lines: range }));
  for (;;) many_times(2000);
}

// A builtin calls it each time: V8 cannot inline it.
function compare(a, b) {
  return a - b;
}

function short() {
  console.log('{}');
  const numbers = Array.from({ length: 1000 }, (_, i) => (i * 7919) % 1009);
  for (;;) numbers.slice().sort(compare);
}

if (!isMainThread) places[workerData.place]();
else if (process.argv[2] === 'threads') threads();
else if (process.argv[2] === 'hot') hot();
else if (process.argv[2] === 'short') short();
else calls();
