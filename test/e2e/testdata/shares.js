// Prints "ready", and waits until its standard input ends. Then calls tasks in a random order until
// it has used the CPU for as many seconds as the argument says, and prints the CPU time of each task
// in microseconds. Run it with --single-threaded: V8's own threads would use CPU time, too.
'use strict';

let state = 12345;
const random = () => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff);

function fibonacci(n) {
  return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

class Sieve {
  constructor(n) {
    this.composite = new Uint8Array(n);
  }
  count() {
    this.composite.fill(0);
    let primes = 0;
    for (let i = 2; i < this.composite.length; i++) {
      if (this.composite[i]) continue;
      primes++;
      for (let j = 2 * i; j < this.composite.length; j += i) this.composite[j] = 1;
    }
    return primes;
  }
}

const sieve = new Sieve(20000);
const text = 'The quick brown fox jumps over the lazy dog, and runs away on 2026-11-28. '.repeat(30);

function* range(n) {
  for (let i = 0; i < n; i++) yield i;
}

const tasks = {
  recursion: () => fibonacci(18),
  loops: () => sieve.count(),
  sorting: () => Array.from({ length: 700 }, random).sort((a, b) => a - b)[0],
  patterns: () => text.replace(/(\w+) (\w+)/g, '$2 $1').match(/\d+-\d+-\d+/g).length,
  objects: () => {
    const groups = new Map();
    for (let i = 0; i < 2000; i++) {
      const key = 'k' + (random() % 50);
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push({ i });
    }
    return groups.size;
  },
  closures: () => Array.from(range(1500)).map((x) => x * 3).filter((x) => x % 2).reduce((a, b) => a + b, 0),
  encoding: () => JSON.parse(JSON.stringify({ text, list: Array.from({ length: 300 }, (_, i) => ({ i })) })).list.length,
};

const names = Object.keys(tasks);
const used = () => {
  const { user, system } = process.cpuUsage();
  return user + system;
};

let kept = 0;

function run(seconds) {
  const own = Object.fromEntries(names.map((name) => [name, 0]));
  for (const end = used() + 1e6 * seconds; used() < end; ) {
    const name = names[random() % names.length];
    const begin = used();
    for (let i = 0; i < 5; i++) kept += tasks[name]();
    own[name] += used() - begin;
  }
  console.log(JSON.stringify(own));
}

process.stdin.on('end', () => run(+process.argv[2])).resume();
console.log('ready');
