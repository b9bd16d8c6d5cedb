# shellcheck shell=sh disable=SC2154 # mark and keep are set before
# What the shell of a host does for fulgur --on. $mark, which is before this text, begins each line for
# fulgur: a start-up script of the host may print lines, too. $keep is 1 if the program stays, else 0.
#
# It reads one line: the size and the SHA-256 of the program, and the line of fulgur version there. Without
# a program, the size is 0. After "send", it reads the program.
set -u
umask 077
LC_ALL=C
export LC_ALL

tell() {
	printf '%s %s\n' "$mark" "$*"
}

fail() {
	tell failed "$*"
	exit 1
}

# is_wanted FILE: whether FILE is the program.
is_wanted() {
	[ -f "$1" ] && [ -x "$1" ] || return 1
	if [ "$size" -eq 0 ]; then
		[ "$("$1" version </dev/null 2>/dev/null)" = "$version" ]
	else
		[ "$(wc -c <"$1")" -eq "$size" ] && [ "$(sha256sum <"$1" | cut -c 1-64)" = "$sum" ]
	fi
}

tell system "$(uname -s)" "$(uname -m)"
IFS=' ' read -r size sum version || exit 1
command -v sha256sum >/dev/null || fail "sha256sum is missing there: install coreutils or busybox"

program=$(command -v fulgur) || program=
case $program in
/*) is_wanted "$program" || program= ;;
*) program= ;;
esac
# Folders of an earlier run with --keep. Nobody else can write to a folder of this user with mode 0700.
for dir in "${TMPDIR:-/tmp}"/fulgur.* /var/tmp/fulgur.* "${HOME:-/}"/fulgur.*; do
	if [ -z "$program" ] && [ -d "$dir" ] && ! [ -L "$dir" ] && [ -O "$dir" ] &&
		[ -n "$(find "$dir" -prune -perm 700)" ] && is_wanted "$dir/fulgur"; then
		program=$dir/fulgur
	fi
done

clean=
trap '[ -z "$clean" ] || rm -rf "$clean"' EXIT
trap 'exit 1' HUP INT TERM PIPE
if [ -z "$program" ]; then
	[ "$size" -gt 0 ] || fail missing
	for in in "${TMPDIR:-/tmp}" /var/tmp "${HOME:-/}"; do
		free=$(df -Pk "$in" 2>/dev/null | tail -n 1 | while read -r _ _ _ free _; do echo "$free"; done)
		[ "${free:-0}" -gt $((size / 1024)) ] 2>/dev/null || continue
		clean=$(mktemp -d "$in/fulgur.XXXXXXXX" 2>/dev/null) || continue
		program=$clean/fulgur
		# Programs do not run where the file system is mounted with noexec.
		if printf '#!/bin/sh\n' >"$program" && chmod 700 "$program" && "$program" 2>/dev/null; then
			break
		fi
		rm -rf "$clean"
		program=
	done
	[ -n "$program" ] || fail "no folder there can hold a program: /tmp, /var/tmp and the home folder are full, not writable, or mounted with noexec; set TMPDIR there"
	tell send
	head -c "$size" >"$program" || fail "the program could not be written to $clean there"
	is_wanted "$program" || fail "the program has another checksum there than here: it was not run"
	if [ "$keep" = 1 ]; then
		clean=
	fi
fi

# sudo may refuse this program, or ask for a password.
set -- "$program" on-host
as=user
if [ "$(id -u)" -eq 0 ]; then
	as=root
elif command -v sudo >/dev/null && sudo -n -- "$program" version >/dev/null 2>&1 </dev/null; then
	as=sudo
	set -- sudo -n -- "$@"
fi
tell run "$as" "$program"
"$@"
