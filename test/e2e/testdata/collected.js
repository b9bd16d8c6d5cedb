// collected.js: makes functions with the same shape, and runs each one for some time before it
// is collected. Writes a line for each to the file that is named: its name, and the time in
// milliseconds of its begin and end.
'use strict';
const ranges = [];
for (let i = 0; i < 40; i++) {
  const name = `made_${1000 + i}`;
  const make = new Function('ms', `return function ${name}(ms) {
    const end = performance.now() + ms;
    let x = 0;
    while (performance.now() < end) for (let k = 0; k < 20000; k++) x = (x + k) | 0;
    return x;
  }`);
  const begin = Date.now();
  make()(60);
  ranges.push(`${name} ${begin} ${Date.now()}\n`);
  gc();
  gc();
}
require('fs').writeFileSync(process.argv[2], ranges.join(''));
