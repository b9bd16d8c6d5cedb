# shellcheck shell=bash
# Source this to install packages of other Debian suites below $dir. The system does not
# change.

# The mirror of this machine's apt.
# shellcheck source=/dev/null
codename=$(. /etc/os-release && echo "$VERSION_CODENAME")
# shellcheck disable=SC2016 # apt expands them
mirror=$(apt-get indextargets --no-release-info --format '$(RELEASE) $(COMPONENT) $(SITE)' 'Created-By: Packages' |
	awk -v release="$codename" '$1 == release && $2 == "main" { print $3; exit }')

# unpack_suite SUITE PACKAGE...: unpack packages into $dir/SUITE/root, with package lists in
# $dir/SUITE.
unpack_suite() {
	local at=${dir:?}/$1 suite=$1
	shift
	# Unpack again if the list of packages has changed.
	[ "$(cat "$at/done" 2>/dev/null)" != "$*" ] || return 0
	rm -rf "$at"
	mkdir -p "$at"/{etc,state/lists/partial,cache/archives/partial,root,deb}
	touch "$at/state/status"
	printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\nSigned-By: /usr/share/keyrings/debian-archive-keyring.gpg\n' \
		"$mirror" "$suite" >"$at/etc/debian.sources"
	local options=(-q -o Dir::Etc::SourceList=/dev/null -o Dir::Etc::SourceParts="$at/etc" -o Dir::State="$at/state"
		-o Dir::State::status="$at/state/status" -o Dir::Cache="$at/cache" -o APT::Architecture=amd64 -o APT::Sandbox::User=root)
	apt-get "${options[@]}" update >&2
	(cd "$at/deb" && apt-get "${options[@]}" download "$@" >&2)
	local deb
	for deb in "$at"/deb/*.deb; do
		dpkg-deb -x "$deb" "$at/root"
	done
	if [ ! -e "$at/root/lib64" ]; then # these packages are not merged into /usr
		ln -sfn usr/lib "$at/root/lib"
		ln -sfn usr/lib64 "$at/root/lib64"
	fi
	echo "$*" >"$at/done"
}
