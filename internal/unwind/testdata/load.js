function walk(n) {
  if (n) return walk(n - 1);
  return JSON.stringify(JSON.parse(JSON.stringify([...Array(200).keys()]))).replace(/\d/g, (d) => d + 1);
}
for (;;) walk(20);
