#!/bin/bash
# jdks.sh DIR: install versions of OpenJDK for tests in DIR. For each, print its name, the
# root directory to run it in, and the program, separated by tabs.
#
# They come from Debian's suites bookworm, trixie and sid, with package lists below DIR. The
# system does not change.
set -euo pipefail
dir=$1

# The mirror of this machine's apt.
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt expands them
mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
	awk -v release="$codename" '$1 == release && $2 == "main" { print $3; exit }')

install_suite() { # SUITE VERSION
	local at=$dir/$1 suite=$1 version=$2
	local packages=("openjdk-$version-jre-headless" libc6 libgcc-s1 libstdc++6 zlib1g)
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
		if [ ! -e "$at/root/lib64" ]; then # bookworm's packages are not merged
			ln -sfn usr/lib "$at/root/lib"
			ln -sfn usr/lib64 "$at/root/lib64"
		fi
		echo "${packages[*]}" >"$at/done"
	fi
	printf '%s-%s\t%s\t%s\n' "$suite" "$version" "$at/root" "/usr/lib/jvm/java-$version-openjdk-amd64/bin/java"
}

install_suite bookworm 17
install_suite trixie 21
install_suite sid 25
