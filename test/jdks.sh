#!/bin/bash
# jdks.sh DIR: install versions of OpenJDK for tests in DIR. For each, print its name, the
# root directory to run it in, and the program, separated by tabs.
#
# They come from Debian's suites bookworm, trixie and sid, with package lists below DIR. The
# system does not change.
set -euo pipefail
dir=$1

# shellcheck source=test/suite.sh
. "$(dirname "$0")/suite.sh"

install_suite() { # SUITE VERSION
	unpack_suite "$1" "openjdk-$2-jre-headless" libc6 libgcc-s1 libstdc++6 zlib1g
	printf '%s-%s\t%s\t%s\n' "$1" "$2" "$dir/$1/root" "/usr/lib/jvm/java-$2-openjdk-amd64/bin/java"
}

install_suite bookworm 17
install_suite trixie 21
install_suite sid 25
