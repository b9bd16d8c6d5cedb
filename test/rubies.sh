#!/bin/bash
# rubies.sh DIR: install versions of Ruby for tests in DIR. For each, print its name, the root
# directory to run it in, and the program, separated by tabs.
#
# They come from Debian's suites trixie and sid, with package lists below DIR. The system does
# not change.
set -euo pipefail
dir=$1

# shellcheck source=test/suite.sh
. "$(dirname "$0")/suite.sh"

for suite in trixie sid; do
	unpack_suite "$suite" ruby3.3 libruby3.3 libc6 libgmp10 zlib1g libcrypt1 libgcc-s1
	printf '%s-3.3\t%s\t%s\n' "$suite" "$dir/$suite/root" /usr/bin/ruby3.3
done
