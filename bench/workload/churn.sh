#!/bin/sh
# churn.sh SECONDS: run short processes like those of builds and scripts: a compiler,
# shells and tools, and a Python that starts, works and exits. Its files are beside it.
set -u
end=$(($(date +%s) + ${1:?seconds}))
dir=$(dirname "$0")
cat >"$dir/sort.c" <<'C'
#include <stdlib.h>
#include <string.h>

static int cmp(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

int main(int argc, char **argv)
{
	qsort(argv + 1, argc - 1, sizeof(*argv), cmp);
	return argc > 1 ? atoi(argv[1]) : 0;
}
C
while [ "$(date +%s)" -lt "$end" ]; do
	gcc -O2 -c "$dir/sort.c" -o "$dir/sort.o"
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		/bin/true
		sh -c 'ls / >/dev/null'
	done
	python3 -c 'import json, random, re
for _ in range(20000): re.sub("a", "b", json.dumps({"x": random.random()}))'
done
