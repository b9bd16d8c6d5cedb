package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// subject is a program that is busy for some seconds.
type subject struct {
	name   string
	needs  string // a program that must be installed
	build  string // shell script that runs once, not measured
	script string // shell script that runs the program
}

// file has the name of text of 20 MB that prepare writes, and source that of a C file.
const (
	file   = "numbers.txt"
	source = "source.c"
)

// subjects are the programs, with the language or compiler of most of their code.
var subjects = []subject{
	{name: "bzip2 (C)", needs: "bzip2", script: "bzip2 -c " + file + " >/dev/null"},
	{name: "gzip (C)", needs: "gzip", script: "gzip -9 -c " + file + " >/dev/null"},
	{name: "xz (C)", needs: "xz", script: "xz -c " + file + " >/dev/null"},
	{name: "zstd (C, assembly)", needs: "zstd", script: "zstd -19 -c " + file + " >/dev/null"},
	{name: "openssl AES-GCM (assembly)", needs: "openssl", script: "openssl speed -seconds 3 -evp aes-128-gcm -bytes 1024"},
	{name: "openssl RSA (assembly)", needs: "openssl", script: "openssl speed -seconds 2 rsa2048"},
	{name: "openssl ECDSA (assembly)", needs: "openssl", script: "openssl speed -seconds 2 ecdsap256"},
	{name: "openssl ChaCha20-Poly1305 (assembly)", needs: "openssl", script: "openssl speed -seconds 3 -evp chacha20-poly1305 -bytes 1024"},
	{name: "gpg (C, assembly)", needs: "gpg", script: "gpg --homedir . --print-md sha512 " + file + " " + file + " " + file},
	{name: "sort (C)", needs: "sort", script: "while :; do sort " + file + " >/dev/null; done"},
	{name: "grep (C)", needs: "grep", script: `while :; do grep -cE '(1|2)(3|4)*.*9$' ` + file + "; done"},
	{name: "mawk (C)", needs: "mawk", script: "while :; do mawk '{ n[$1 % 1000] += length($1) } END { print n[1] }' " + file + "; done"},
	{name: "m4 (C)", needs: "m4", script: `echo 'define(f,` + "`ifelse(eval($1<2),1,$1,`eval(f(eval($1-1))+f(eval($1-2)))'')')f(24)' | m4"},
	{name: "bc (C)", needs: "bc", script: "echo 'scale=4000; 4*a(1)' | bc -l"},
	{name: "sqlite3 (C)", needs: "sqlite3", script: `sqlite3 :memory: "with recursive n(i) as (select 1 union all select i+1 from n where i<9000000) select count(distinct i%1000) from n"`},
	{name: "git (C)", needs: "git", build: "git init -q g && cd g && cp ../" + file + " . && git add . && git -c user.name=a -c user.email=a@b commit -qm a",
		script: "cd g && while :; do git hash-object " + file + " && git fsck --full; done"},
	{name: "gcc (C++)", needs: "gcc", script: "while :; do gcc -O2 -S -o /dev/null " + source + "; done"},
	{name: "clang (C++)", needs: "clang-19", script: "while :; do clang-19 -O2 -S -o /dev/null " + source + "; done"},
	{name: "musl C", needs: "musl-gcc", build: "musl-gcc -g -O2 -o musl " + source, script: "./musl"},
	{name: "static musl C", needs: "musl-gcc", build: "musl-gcc -static -O2 -o static " + source, script: "./static"},
	{name: "C without tables", needs: "gcc", build: "gcc -O2 -fno-asynchronous-unwind-tables -fno-omit-frame-pointer -o pointers " + source, script: "./pointers"},
	{name: "Fortran", needs: "gfortran", build: `cat >f.f90 <<'F'
recursive function fib(n) result(r)
  integer, intent(in) :: n
  integer :: r
  if (n < 2) then
    r = n
  else
    r = fib(n-1) + fib(n-2)
  end if
end function
program main
  integer, external :: fib
  integer :: i
  do i = 1, 100
    print *, fib(38)
  end do
end program
F
gfortran -O2 -o fortran f.f90`, script: "./fortran"},
	{name: "GMP (assembly)", needs: "gcc", build: `cat >gmp.c <<'F'
#include <gmp.h>
int main(void)
{
	mpz_t n;
	mpz_init(n);
	for (;;)
		mpz_fac_ui(n, 30000);
}
F
gcc -O2 -o gmp gmp.c -lgmp`, script: "./gmp"},
	{name: "x264 (assembly)", needs: "x264", script: "while :; do head -c 30000000 /dev/urandom | x264 --quiet --demuxer raw --input-res 352x288 -o /dev/null -; done"},
	{name: "Go", needs: "go", build: `cat >f.go <<'F'
package main

func fib(n int) int {
	if n < 2 {
		return n
	}
	return fib(n-1) + fib(n-2)
}

//go:noinline
func moves(to, from []byte) { copy(to, from) }

func main() {
	to, from := make([]byte, 1<<16), make([]byte, 1<<16)
	for {
		moves(to, from)
		fib(20)
		_ = make([]byte, 1<<16)
	}
}
F
go build -o golang f.go`, script: "./golang"},
	{name: "gofmt (Go)", needs: "gofmt", script: "while :; do gofmt -l $(go env GOROOT)/src/go; done"},
	{name: "Rust", needs: "rustc", build: `cat >f.rs <<'F'
fn main() {
    let mut sum = 0u64;
    loop {
        let mut all: Vec<String> = (0..100000u64).map(|i| format!("{}", i ^ sum)).collect();
        all.sort();
        sum = sum.wrapping_add(all[5].len() as u64);
        if sum == 1 { break; }
    }
}
F
rustc -O -o rust f.rs`, script: "./rust"},
	{name: "rustc (Rust)", needs: "rustc", script: "while :; do rustc -O --emit=llvm-ir -o /dev/null f.rs; done"},
	{name: "OCaml", needs: "ocamlopt", build: `cat >f.ml <<'F'
let rec fib n = if n < 2 then n else fib (n - 1) + fib (n - 2)
let () = while true do print_int (fib 35); let l = List.init 100000 (fun i -> i * 7919 mod 1000) in ignore (List.sort compare l) done
F
ocamlopt -o ocaml f.ml`, script: "./ocaml >/dev/null"},
	{name: "Haskell", needs: "ghc", build: `cat >f.hs <<'F'
main = print (sum [length (show (x * x)) | x <- [1 .. 100000000 :: Integer]])
F
ghc -O -o haskell f.hs`, script: "./haskell"},
	{name: "D", needs: "gdc", build: `cat >f.d <<'F'
int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
void main() { import std.stdio; while (true) { auto s = new int[](1000); writeln(fib(35) + cast(int) s.length); } }
F
gdc -O2 -o d f.d`, script: "./d >/dev/null"},
	{name: "Ada", needs: "gnatmake", build: `cat >fa.adb <<'F'
with Ada.Text_IO;
procedure Fa is
   function Fib (N : Integer) return Integer is (if N < 2 then N else Fib (N - 1) + Fib (N - 2));
begin
   loop
      Ada.Text_IO.Put_Line (Integer'Image (Fib (35)));
   end loop;
end Fa;
F
gnatmake -q -O2 fa.adb`, script: "./fa >/dev/null"},
	{name: "python3", needs: "python3", script: `python3 -c 'import json
f = lambda n: n if n < 2 else f(n - 1) + f(n - 2)
while True: f(22); json.loads(json.dumps(list(range(100000)))); sorted(map(str, range(100000)))'`},
	{name: "perl", needs: "perl", script: `perl -e 'sub f { my $n = shift; $n < 2 ? $n : f($n - 1) + f($n - 2) } while (1) { f(22); my @a = sort map { "$_" =~ s/1/2/r } 1 .. 100000; }'`},
	{name: "ruby", needs: "ruby", script: `ruby -e 'def f(n) = n < 2 ? n : f(n - 1) + f(n - 2)
loop { f(24); (1..100000).map(&:to_s).sort }'`},
	{name: "php", needs: "php", script: `php -r 'function f($n) { return $n < 2 ? $n : f($n - 1) + f($n - 2); } while (true) { f(25); $a = array_map("strval", range(1, 100000)); sort($a); }'`},
	{name: "lua", needs: "lua5.4", script: `lua5.4 -e 'local function f(n) if n < 2 then return n end return f(n - 1) + f(n - 2) end while true do f(25) local t = {} for i = 1, 100000 do t[i] = tostring(i) end table.sort(t) end'`},
	{name: "tcl", needs: "tclsh", script: `echo 'proc f n { expr {$n < 2 ? $n : [f [expr {$n - 1}]] + [f [expr {$n - 2}]]} }
while 1 { f 20; lsort [split [string repeat "b a c " 10000]] }' | tclsh`},
	{name: "erlang", needs: "erl", script: `erl -noshell -eval 'F = fun G(N) when N < 2 -> N; G(N) -> G(N - 1) + G(N - 2) end, [begin F(20), lists:sort([integer_to_list(I) || I <- lists:seq(1, 100000)]) end || _ <- lists:seq(1, 1000)].'`},
	{name: "node (JavaScript)", needs: "node", script: `node -e 'const f = n => n < 2 ? n : f(n - 1) + f(n - 2)
for (;;) { f(27); JSON.parse(JSON.stringify([...Array(100000).keys()].map(String).sort())) }'`},
	{name: "java", needs: "javac", build: `cat >F.java <<'F'
public class F {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    public static void main(String[] a) {
        while (true) {
            fib(30);
            java.util.stream.IntStream.range(0, 100000).mapToObj(Integer::toString).sorted().toList();
        }
    }
}
F
javac F.java`, script: "java F"},
	{name: "ImageMagick (C)", needs: "convert", script: "while :; do convert -size 1000x1000 plasma: -blur 0x8 null:; done"},
}

// prepare writes the inputs, and builds the programs that are not installed ones. It returns the names of those
// that cannot be built, mostly because a library is not installed.
func prepare(ctx context.Context, dir string) (failed []string, err error) {
	script := "seq 1 2500000 | sort -R --random-source=/bin/sh >" + file
	if out, err := shell(ctx, dir, script); err != nil {
		return nil, fmt.Errorf("write the inputs: %w\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(dir, source), []byte(cSource), 0o600); err != nil {
		return nil, err
	}
	for _, s := range subjects {
		if _, err := exec.LookPath(s.needs); err != nil || s.build == "" {
			continue
		}
		if out, err := shell(ctx, dir, s.build); err != nil {
			fmt.Fprintf(os.Stderr, "%s cannot be built: %v\n%s", s.name, err, out)
			failed = append(failed, s.name)
		}
	}
	return failed, nil
}

func shell(ctx context.Context, dir, script string) ([]byte, error) {
	c := exec.CommandContext(ctx, "sh", "-ec", script)
	c.Dir = dir
	return c.CombinedOutput()
}

// cSource spends its time in functions of the C library, called by its own.
const cSource = `#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char text[1 << 16], copy[1 << 16];

static int compare(const void *a, const void *b)
{
	return memcmp(a, b, 16);
}

__attribute__((noinline)) static size_t measures(void)
{
	size_t n = strlen(text);
	return n + 1;
}

__attribute__((noinline)) static void copies(void)
{
	memcpy(copy, text, sizeof(text));
	copy[0]++;
}

__attribute__((noinline)) static void formats(void)
{
	for (int i = 0; i < 1000; i++)
		snprintf(copy + 32 * i, 32, "%d %f", i, i / 7.0);
}

__attribute__((noinline)) static void sorts(void)
{
	qsort(copy, 1000, 32, compare);
	copy[0]++;
}

int main(void)
{
	size_t sum = 0;

	memset(text, 'a', sizeof(text) - 1);
	for (;;) {
		for (int i = 0; i < 100; i++) {
			sum += measures();
			copies();
		}
		formats();
		sorts();
		if (sum == 1)
			return 1;
	}
}
`
