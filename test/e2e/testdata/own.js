// Prints "ready", and waits until its standard input ends. Then calls tasks in a random order until
// it has used the CPU for as many seconds as the argument says, and prints the CPU time of each task
// in microseconds, without that of tasks that it calls. Tasks call builtin functions, which are in
// C++. Run it with --single-threaded: V8's own threads would use CPU time, too.
'use strict';
const zlib = require('zlib');

const numbers = Float64Array.from({ length: 5000 }, (_, i) => (i * 7919) % 10007);
const list = Array.from(numbers);
const text = 'word 123 foo 456 '.repeat(300);
const value = Object.fromEntries(list.slice(0, 500).map((n) => [`k${n}`, [n, 'x'.repeat(n % 50)]]));
const json = JSON.stringify(value);
const data = Buffer.from(Array.from({ length: 30000 }, (_, i) => (i * i) % 251));

let state = 12345;
const random = () => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff);

const tasks = {
  own_sort() { return numbers.slice().sort(); },
  own_parse() { return JSON.parse(json); },
  own_stringify() { return JSON.stringify(value); },
  own_pattern() { return text.replace(/(\w+) (\d+)/g, '$2 $1'); },
  own_join() { return list.join(','); },
  own_map() {
    const m = new Map();
    for (let i = 0; i < 2000; i++) m.set('k' + i, i);
    return m;
  },
  own_loop() {
    let sum = 0;
    for (let i = 0; i < 200000; i++) sum += i % 7;
    return sum;
  },
  own_outer() {
    let sum = 0;
    for (let i = 0; i < 1000000; i++) sum += i % 7;
    call('own_join');
    return sum;
  },
};
const names = Object.keys(tasks);
const own = Object.fromEntries(names.map((name) => [name, 0]));
const inner = [0]; // by task that runs, the CPU time of tasks that it called

const used = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};

let kept;
function call(name) {
  const begin = used();
  inner.push(0);
  for (let i = 0; i < (name === 'own_outer' ? 1 : 5); i++) kept = tasks[name]();
  const took = used() - begin;
  own[name] += took - inner.pop();
  inner[inner.length - 1] += took;
}

process.stdin.on('end', () => {
  for (const end = used() + 1e6 * process.argv[2]; used() < end; ) {
    call(names[random() % names.length]);
    kept = zlib.deflateSync(data);
  }
  console.log(JSON.stringify(own));
}).resume();
console.log('ready');
