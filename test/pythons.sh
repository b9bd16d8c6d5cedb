#!/bin/bash
# pythons.sh DIR: install Python interpreters for tests in DIR. For each interpreter, print
# its name, the root directory to run it in, and the program, separated by tabs.
#
# They come from Debian's suites trixie and sid, with package lists below DIR, and from a Go
# module with builds of python-build-standalone. The system does not change.
set -euo pipefail
dir=$1

# The mirror of this machine's apt.
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt expands them
mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
	awk -v release="$codename" '$1 == release && $2 == "main" { print $3; exit }')

common=(libc6 libexpat1 zlib1g libzstd1 libffi8 libbz2-1.0 liblzma5 libgcc-s1 libuuid1 libssl3t64)
install_suite() { # SUITE VERSION...
	local at=$dir/$1 suite=$1 packages=("${common[@]}") version
	shift
	for version; do
		packages+=("python$version-minimal" "libpython$version-minimal" "libpython$version-stdlib")
	done
	# Install again if the list of packages has changed.
	if [ "$(cat "$at/done" 2>/dev/null)" != "${packages[*]}" ]; then
		rm -rf "$at"
		mkdir -p "$at"/{etc,state/lists/partial,cache/archives/partial,root,deb}
		touch "$at/state/status"
		printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
			"$mirror" "$suite" >"$at/etc/debian.sources"
		local options=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$at/etc" -o Dir::State="$at/state"
			-o Dir::State::status="$at/state/status" -o Dir::Cache="$at/cache" -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
		apt-get "${options[@]}" update >&2
		(cd "$at/deb" && apt-get "${options[@]}" download "${packages[@]}" >&2)
		local deb
		for deb in "$at"/deb/*.deb; do
			dpkg-deb -x "$deb" "$at/root"
		done
		ln -sfn usr/lib "$at/root/lib"
		ln -sfn usr/lib64 "$at/root/lib64"
		echo "${packages[*]}" >"$at/done"
	fi
	for version; do
		printf '%s-%s\t%s\t%s\n' "$suite" "$version" "$at/root" "/usr/bin/python$version"
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

printf 'system\t\t%s\n' "$(command -v /usr/bin/python3 || command -v python3)"
# Other interpreters on this machine: their programs, separated by spaces.
for program in ${FULGUR_TEST_MORE_PYTHONS-}; do
	printf '%s\t\t%s\n' "$(basename "$program")" "$program"
done
install_suite trixie 3.13
install_suite sid 3.13 3.14 3.15
install_module 3.14 v0.0.0-3.14.6-20260610-1
