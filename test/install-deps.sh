#!/bin/bash
# install-deps.sh GROUP: install the programs that a group of make targets
# runs, if they are missing, from the distribution's packages.
#
# If a program of group "test" cannot be installed, this script says why, and the
# tests that need it are skipped. CI sets FULGUR_TEST_REQUIRE, so that they fail
# there.
set -euo pipefail

# Lines of: group, program or file, the package of Debian and Ubuntu that has
# it.
table='
test      gcc                             gcc
test      g++                             g++
test      readelf                         binutils
test      perf                            linux-perf
test      strace                          strace
test      bpftrace                        bpftrace
test      biolatency                      libbpf-tools
test      chromium                        chromium
test      firefox-esr                     firefox-esr
test      busybox                         busybox-static
test      clang++-19                      clang-19
test      /usr/lib/llvm-19/lib/clang/19/lib/linux  libclang-rt-19-dev
test      ld.lld-19                       lld-19
test      eu-stack                        elfutils
test      gdb                             gdb
test      objcopy                         binutils
test      dwz                             dwz
test      npm                             npm
test      llvm-symbolizer-19              llvm-19
test      git                             git
test      xz                              xz-utils
test      mold                            mold
test      ld.lld                          lld
test      aarch64-linux-gnu-gcc           gcc-aarch64-linux-gnu
test      /usr/aarch64-linux-gnu/lib/libc.a  libc6-dev-arm64-cross
test      debuginfod-find                 debuginfod
test      rustc                           rustc
test      c++filt                         binutils
test      /usr/lib/x86_64-linux-gnu/libgphobos.so.3  libgphobos3
test      python3                         python3
test      node                            nodejs
test      javac                           default-jdk-headless
test      ruby                            ruby
test      perl                            perl
test      php                             php-cli
test      lua5.4                          lua5.4
test      luajit                          luajit
test      ocamlrun                        ocaml-base
test      mono-sgen                       mono-runtime-sgen
test      mono                            mono-runtime
test      mcs                             mono-mcs
test      /usr/lib/erlang                 erlang-base
test      /usr/lib/x86_64-linux-gnu/libpypy3.9-c.so  pypy3
test      /usr/lib/x86_64-linux-gnu/libguile-3.0.so.1  guile-3.0-libs
test      /usr/lib/x86_64-linux-gnu/libtcl8.6.so  libtcl8.6
test      /usr/share/doc/libc6-dbg        libc6-dbg
test      /usr/lib/llvm-22/bin/perf2bolt  bolt-22
test      /usr/lib/llvm-19/bin/perf2bolt  bolt-19
test      /usr/lib/llvm-16/bin/perf2bolt  bolt-16
vm        qemu-system-x86_64              qemu-system-x86
arm64     qemu-system-aarch64             qemu-system-arm
arm64     aarch64-linux-gnu-gcc-12        gcc-12-aarch64-linux-gnu
arm64     aarch64-linux-gnu-g++-12        g++-12-aarch64-linux-gnu
arm64     /usr/aarch64-linux-gnu/lib/libc.a  libc6-dev-arm64-cross
symbols   g++                             g++
symbols   clang++-19                      clang-19
symbols   llvm-symbolizer-19              llvm-19
symbols   addr2line                       binutils
symbols   rustc                           rustc
symbols   python3.11-dbg                  python3.11-dbg
symbols   /usr/share/doc/libpython3.11-dbg  libpython3.11-dbg
symbols   /usr/share/doc/libc6-dbg        libc6-dbg
symbols   /usr/share/doc/libstdc++6-12-dbg  libstdc++6-12-dbg
symbols   node                            nodejs
test      make                            make
test      ssh                             openssh-client
test      /usr/sbin/sshd                  openssh-server
test      kubectl                         kubernetes-client
test      setcap                          libcap2-bin
test      zsh                             zsh
test      fish                            fish
test      groff                           groff-base
test      mandoc                          mandoc
test      shellcheck                      shellcheck
test      rpm                             rpm
test      systemd-analyze                 systemd
test      gcc-12                          gcc-12
test      musl-gcc                        musl-tools
test      /usr/include/boost/context/fiber.hpp  libboost-context-dev
test      /usr/lib/x86_64-linux-gnu/libelf.so.1  libelf1
test      /usr/lib/x86_64-linux-gnu/libjemalloc.so.2  libjemalloc2
test      /usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4  libtcmalloc-minimal4
test      /usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0  libmimalloc2.0
bench     fio                             fio
bench     tclsh                           tcl
bench     valgrind                        valgrind
bench     dpkg-source                     dpkg-dev
bench     /usr/include/bpf/libbpf.h       libbpf-dev
generate  clang-19                        clang-19
generate  llvm-strip-19                   llvm-19
generate  /usr/include/bpf/bpf_helpers.h  libbpf-dev
generate  git                             git
lint      clang-format-19                 clang-format-19
lint      shellcheck                      shellcheck
'

group=$1

say() {
	echo "install-deps.sh: $*" >&2
}

# give_up reports packages that cannot be installed.
give_up() {
	say "$*"
	[ "$group" = test ] || exit 1
	say "skipping the tests that need it"
	exit 0
}

missing=()
while read -r of needed package; do
	if [ "$of" = "$group" ] && ! [ -e "$needed" ] && ! command -v "$needed" >/dev/null; then
		missing+=("$package")
	fi
done <<<"$table"

# from_npm installs what comes from npm: the Firefox Profiler without its page, and axe-core,
# which judges pages for people who use keyboards and screen readers.
from_npm() {
	if [ "$group" != test ] || ! command -v npm >/dev/null; then
		return
	fi
	local root packages=()
	root=$(npm root --global)
	command -v profiler-cli >/dev/null || packages+=(@firefox-devtools/profiler-cli@0.10.0)
	[ -e "$root/axe-core/axe.min.js" ] || packages+=(axe-core@4.14.1)
	if [ ${#packages[@]} -eq 0 ]; then
		return
	fi
	local install=(npm install --global --silent --no-fund "${packages[@]}")
	[ "$(id -u)" = 0 ] || give_up "missing: ${packages[*]}; install them as root with: ${install[*]}"
	echo "installing ${packages[*]}"
	"${install[@]}" >/dev/null || give_up "npm cannot install ${packages[*]}"
}

if [ ${#missing[@]} -eq 0 ]; then
	from_npm
	exit 0
fi

command -v apt-get >/dev/null ||
	give_up "missing, and there is no apt-get to install them with: ${missing[*]}"
[ "$(id -u)" = 0 ] ||
	give_up "missing; install them as root with: apt-get install ${missing[*]}"

export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
known=() unknown=()
for package in "${missing[@]}"; do
	if [ -n "$(apt-cache madison "$package")" ]; then
		known+=("$package")
	else
		unknown+=("$package")
	fi
done
if [ ${#known[@]} -gt 0 ]; then
	echo "installing ${known[*]}"
	apt-get install -y -qq --no-install-recommends "${known[@]}" </dev/null >/dev/null
fi
from_npm
[ ${#unknown[@]} -eq 0 ] || give_up "this release of the distribution lacks: ${unknown[*]}"
