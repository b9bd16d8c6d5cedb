// A mixed load for profilers: sorting, maps, strings, classes, closures, generators and regular
// expressions. The first argument is the number of rounds.
'use strict';

const next = (seed) => (Math.imul(seed, 1103515245) + 12345) & 0x7fffffff;

function makeData(n, seed) {
  const data = [];
  for (let i = 0; i < n; i++) {
    seed = next(seed);
    data.push({ key: 'k' + (seed % 1000), value: seed });
  }
  return data;
}

function compareValues(a, b) {
  return a.value - b.value;
}

function sortData(data) {
  return data.slice().sort(compareValues);
}

function groupBy(data) {
  const groups = new Map();
  for (const x of data) {
    const group = groups.get(x.key);
    if (group) group.push(x);
    else groups.set(x.key, [x]);
  }
  return groups;
}

class Matrix {
  constructor(n) {
    this.n = n;
    this.cells = new Float64Array(n * n);
    for (let i = 0; i < n * n; i++) this.cells[i] = i % 7;
  }
  multiply(by) {
    const n = this.n;
    const product = new Matrix(n);
    for (let i = 0; i < n; i++)
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let k = 0; k < n; k++) sum += this.cells[i * n + k] * by.cells[k * n + j];
        product.cells[i * n + j] = sum;
      }
    return product;
  }
}

function fib(n) {
  return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

function words(text) {
  return text.split(/\s+/).map((w) => w.toLowerCase()).filter((w) => w.length > 3);
}

function count(list) {
  const counts = {};
  for (const w of list) counts[w] = (counts[w] || 0) + 1;
  return counts;
}

function tree(depth) {
  return depth ? { value: depth, left: tree(depth - 1), right: tree(depth - 1) } : null;
}

function* walk(node) {
  if (!node) return;
  yield* walk(node.left);
  yield node.value;
  yield* walk(node.right);
}

function sumTree(node) {
  let sum = 0;
  for (const value of walk(node)) sum += value;
  return sum;
}

const text = 'The quick brown fox jumps over the lazy dog and runs away '.repeat(200);

function round(i) {
  const data = makeData(3000, i);
  sortData(data);
  groupBy(data);
  new Matrix(60).multiply(new Matrix(60));
  fib(22);
  count(words(text));
  sumTree(tree(9));
}

for (let i = 0; i < +process.argv[2]; i++) round(i);
