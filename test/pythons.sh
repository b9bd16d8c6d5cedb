#!/bin/bash
# pythons.sh DIR: install Python interpreters for tests in DIR. For each interpreter, print
# its name, the root directory to run it in, and the program, separated by tabs.
#
# They come from Debian's suites trixie and sid, with package lists below DIR, and from a Go
# module with builds of python-build-standalone. The system does not change.
set -euo pipefail
dir=$1

# shellcheck source=test/suite.sh
. "$(dirname "$0")/suite.sh"

common=(libc6 libexpat1 zlib1g libzstd1 libffi8 libbz2-1.0 liblzma5 libgcc-s1 libuuid1 libssl3t64)
install_suite() { # SUITE VERSION...
	local suite=$1 packages=("${common[@]}") version
	shift
	for version; do
		packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib")
	done
	unpack_suite "$suite" "${packages[@]}"
	for version; do
		printf '%s-%s\t%s\t%s\n' "$suite" "$version" "$dir/$suite/root" "/usr/bin/python$version"
	done
}

install_module() { # VERSION-OF-PYTHON VERSION-OF-MODULE
	local at=$dir/standalone-$1 from
	if [ ! -e "$at/done" ]; then
		mkdir -p "$at"
		from=$(cd "$at" && GOFLAGS=-mod=mod go mod download -json "github.com/kluctl/go-embed-python@$2" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
		cp -r "$from"/python/internal/data/linux-amd64/. "$at"
		chmod -R u+w "$at"
		find "$at" -name '*.gz' -exec gunzip -f {} +
		chmod +x "$at/bin/python$1"
		touch "$at/done"
	fi
	printf 'standalone-%s\t\t%s\n' "$1" "$at/bin/python$1"
}

# Other interpreters on this machine: their programs, separated by spaces.
for program in ${FULGUR_TEST_MORE_PYTHONS-}; do
	printf '%s\t\t%s\n' "$(basename "$program")" "$program"
done
install_suite trixie 3.13
install_suite sid 3.13 3.14 3.15
install_module 3.14 v0.0.0-3.14.6-20260610-1
