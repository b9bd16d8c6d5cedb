#!/bin/sh
# Prints the packages below internal, cmd and bpf that differ from a commit, and those that import
# them directly.
set -eu

base=${1:-}
[ -n "$base" ] || base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
{
	git diff --name-only "$base"
	git ls-files --others --exclude-standard
} | sed -n 's|/testdata/.*|/|; s|/[^/]*$||p' | sort -u >"${TMPDIR:-/tmp}/quick.$$"
trap 'rm -f "${TMPDIR:-/tmp}/quick.$$"' EXIT

go list -f '{{.ImportPath}} {{join .Imports " "}} {{join .TestImports " "}} {{join .XTestImports " "}}' \
	./internal/... ./cmd/... ./bpf/... |
	awk -v module="$(go list -m)/" '
		NR == FNR { changed[module $0] = 1; next }
		{ for (i = 1; i <= NF; i++) if ($i in changed) { print $1; next } }
	' "${TMPDIR:-/tmp}/quick.$$" -
