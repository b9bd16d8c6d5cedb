package decode

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/folded"
)

// The first frame is a task in the files of some tools, a function in those of others.
func TestFoldedFirstFrame(t *testing.T) {
	for in, want := range map[string]string{ // the task's name, a function
		"main 10\nmain;foo 5\n":                                        "",
		"<module> (app.py:10);work (app.py:3) 139\n":                   "",
		"<main> - a.rb:1;work - a.rb:7 3\n":                            "",
		"java/lang/Thread.run_[j];Foo.bar_[i];read_[k] 2\n":            "",
		"start_thread;thread_native_entry;main 2\n":                    "",
		"all;main;work 2\nall;work 1\nmain;work 1\n":                   "",
		"runtime.goexit;main.main 5\nruntime.mcall;runtime.park_m 1\n": "",
		"some_function_with_a_long_name;main 5\n":                      "",
		"a;b 1\n":             "",
		"{main};App::run 3\n": "",
		"tar;_start;__libc_start_main;main;read 7\n":  "tar",
		"main;_start;__libc_start_main;main;read 7\n": "main",
		"main 3\nmain;_start;main 7\n":                "main",
		"java;start_thread;java_start;Foo::bar 3\n":   "java",
		"swapper/0;cpuidle_idle_call 3\n":             "swapper/0",
		"dd;[unknown];read;-;ksys_read_[k] 3\n":       "dd",
		"dd;read;-;ksys_read 3\n":                     "dd",
		"work-1/2;f 3\n":                              "work",
		"[http worker tid=33];f 3\n":                  "http worker",
		"[CPU 3];work;f 3\n":                          "work",
		"# off-cpu in microseconds\nwork;f 3\n":       "work",
		"app;runtime.goexit;main.main 5\n":            "app",
		"python3.11-12345;[unknown];f 3\n":            "python3.11-12345",
	} {
		p := decoded(t, []byte(in), Folded)
		got := p.Tasks[p.Samples[0].Task]
		if got.Comm != want || len(p.Tasks) != 1 && want != "" && len(p.Samples) == 1 && got.Comm == "" {
			t.Errorf("%q: got task %q, want %q", in, got.Comm, want)
		}
		stack, _, _ := folded.CutNumber(strings.SplitN(in, "\n", 2)[0])
		first, _, _ := folded.CutFrame(stack)
		first, _ = folded.CutSuffix(first)
		if written := fold(t, p, 0); want == "" && !strings.Contains(written, first+";") {
			t.Errorf("%q: lost the first function: %q", in, written)
		}
	}
	if p := decoded(t, []byte("main 10\nmain;foo 5\n"), Folded); cmp.Diff([]string{"main", "foo"}, functions(p)[1:]) != "" {
		t.Errorf("got functions %q, want main and foo", functions(p)[1:])
	}
}

// A unit that the command line states is that of numbers before they are rounded, but not of numbers
// whose unit the file states.
func TestFoldedStatedUnit(t *testing.T) {
	for _, c := range []struct {
		in, unit string
		want     map[string]int64
	}{
		{"a;b 0.25\na;c 1.5\na;d 2\n", "s", map[string]int64{"time": 3750000000}},
		{"a;b 3\n", "us", map[string]int64{"time": 3000}},
		{"a;b 0.5\n", "kilobytes", map[string]int64{"bytes": 512}},
		{"a;b 3\n", "count", map[string]int64{"samples": 3}},
		{"a;b 1 2\na;c 0.5 4\n", "ms", map[string]int64{"base": 1500000, "new": 6000000}},
		{"# off-cpu in us\na;b 3\n", "s", map[string]int64{"off-cpu": 3000}},
	} {
		d, err := ReadWith(t.Context(), strings.NewReader(c.in), "input", Options{Unit: c.unit})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, typeTotals(d.Profile)); diff != "" {
			t.Errorf("%q in %s (-want +got):\n%s", c.in, c.unit, diff)
		}
	}
	if _, err := ReadWith(t.Context(), strings.NewReader("a;b 9223372037\n"), "input", Options{Unit: "s"}); err == nil {
		t.Error("got no error for a time that does not fit")
	}
}

// What fulgur writes it reads, also without tasks, and with names that end in numbers.
func TestFoldedAgain(t *testing.T) {
	for in, unit := range map[string]string{
		"<module> (a.py:1);work 3\n":              "us",
		"# off-cpu in us\ntar;_start;f 3\n":       "",
		"a;thread 5 2\na;thread 6 7\na;b 3\n":     "",
		"# x in count\n  more 3\ntwo  blanks 2\n": "",
		"a;thread 5 2\n# note\nb;thread -6e2 7\n": "bytes",
		";# 1\n":                         "",
		"#;f 1\n":                        "",
		"# x in count\n0 = 1\nf() = 3\n": "",
		"# x in count\nwork;f 3\n":       "",
		"# x in count, without tasks\ntar;_start;f 3\n[CPU 1];a;-;b 2\n": "",
		"# x in count, without tasks\nwork-1/2;f 3\nwork-1/3;f 3\n":      "",
	} {
		first, err := ReadWith(t.Context(), strings.NewReader(in), "input", Options{Unit: unit})
		if err != nil {
			t.Fatal(err)
		}
		p := first.Profile.Only(len(first.Profile.ValueTypes) - 1)
		text := fold(t, p, 0)
		again := decoded(t, []byte(text), Folded)
		if diff := cmp.Diff(text, fold(t, again, 0)); diff != "" || again.Tasks[again.Samples[0].Task].Comm != p.Tasks[p.Samples[0].Task].Comm {
			t.Errorf("%q (-first +second):\n%s", text, diff)
		}
	}
	compared := decoded(t, []byte("tar;_start;thread 5 0 3\n"), Folded)
	p := compared.Only(1)
	if text := fold(t, p, 0); decoded(t, []byte(text), Folded).Total(0) != 3 {
		t.Errorf("%q was not read as what was written", text)
	}
}

// A frame may have a suffix for its kind, semicolons in a Java signature, spaces, or a minus.
func TestFoldedFrames(t *testing.T) {
	for in, want := range map[string][]string{
		"x;[unknown];a_[j];b_[1];c_[0];d_[i];e_[k] 1\n":        {"[unknown]", "a jit", "b jit", "c", "d inlined", "e kernel"},
		"x;_start;-;e_[k];f 1\n":                               {"_start", "e kernel", "f kernel"},
		"x;_start;a;-;k;--;k2;-;u;waker 1\n":                   {"_start", "a", "k kernel", "-- marker", "k2 kernel", "u", "waker"},
		"x;_start;f(Ljava/lang/String;I)V;g([JLa/B;)La/C; 1\n": {"_start", "f(Ljava/lang/String;I)V", "g([JLa/B;)La/C;"},
		"x;_start;Ljava/lang/String;::length;L 1\n":            {"_start", "Ljava/lang/String;::length", "L"},
		"x;_start;operator new(unsigned long);a (b;c d) 1\r\n": {"_start", "operator new(unsigned long)", "a (b", "c d)"},
		"x;_start;_[k];a_[x];b[k] 1\n":                         {"_start", "_[k]", "a_[x]", "b[k]"},
	} {
		p := decoded(t, []byte(in), Folded)
		var got []string
		for _, id := range p.AppendFrames(nil, p.Samples[0].Stack) {
			f, name := p.Frames[id], p.FrameName(id)
			switch {
			case f.Inlined:
				name += " inlined"
			case f.Kind == profile.KindKernel:
				name += " kernel"
			case f.Kind == profile.KindJIT:
				name += " jit"
			case f.Kind == profile.KindMarker:
				name += " marker"
			}
			got = append([]string{name}, got...)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
}

// Numbers may be fractions, negative, with exponents, or two. The total of fractions is exact.
func TestFoldedNumbers(t *testing.T) {
	for in, want := range map[string]map[string]int64{
		"a;b 1.5\na;c 1.5\na;d 0.25\na;e 0.75\n":              {"samples": 4},
		"a;b 1e3\na;c 2.5E+1\n":                               {"samples": 1025},
		"a;b -3\na;c 1\n":                                     {"samples": -2},
		"a;b\t7 \r\na;c  8\t\r\n":                             {"samples": 15},
		"# off-cpu in ms\na;b 0.001\na;c 2\n":                 {"off-cpu": 2001000},
		"a;b 1 2\na;b;c 0 4\n":                                {"base": 1, "new": 6},
		"# base, new in microseconds\na;b 1 2\na;b;c 0 4\n":   {"base": 1000, "new": 6000},
		"a;b 1\nunknown\n\na;c 5\nmore; things\n":             {"samples": 6},
		"# cpu in us\na;b 1\n# off-cpu in us\na;b 2\na;b 3\n": {"cpu": 1000, "off-cpu": 5000},
		"a;b 1\n" + strings.Repeat("a;thread 5 2\n", 3):       {"samples": 7},
	} {
		if diff := cmp.Diff(want, typeTotals(decoded(t, []byte(in), Folded))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", in, diff)
		}
	}
	if p := decoded(t, []byte("a;b 1\nunknown\n\na;c 5\nmore; things\n"), Folded); p.Losses[profile.LossUnread] != 2 {
		t.Errorf("got %d lines that were not read, want 2", p.Losses[profile.LossUnread])
	}
	for _, in := range []string{"a;b 9223372036854775808\n", "a;b 1e300\n", "# x in s\na;b -9223372037\n"} {
		if _, _, err := Read(t.Context(), strings.NewReader(in), "input"); err == nil || !strings.Contains(err.Error(), "too large") {
			t.Errorf("%q: got error %v, want one about a number that is too large", in, err)
		}
	}
}

// typeTotals returns the totals of a profile by type.
func typeTotals(p *profile.Profile) map[string]int64 {
	sums := map[string]int64{}
	for v, n := range p.ValueTypes {
		sums[n.Type] += p.Total(v)
	}
	return sums
}

// Generated files with lines of other kinds in between give the numbers of a simple reading.
func TestFoldedGenerated(t *testing.T) {
	random := rand.New(rand.NewPCG(43, 1))
	pick := func(from ...string) string { return from[random.IntN(len(from))] }
	for range 200 {
		byTask, delimited := random.IntN(2) == 0, random.IntN(2) == 0
		var text strings.Builder
		want, junk := map[string]int64{}, uint64(0)
		for line := range 30 {
			if random.IntN(4) == 0 && line > 3 {
				other := pick("", "# comment 7", "   ", "WARNING: lost", "a;b;c", "half;of 0x12", "x;y NaN", "x;y 1e")
				if other != "" && other[0] != '#' && other[0] != ' ' {
					junk++
				}
				text.WriteString(other + pick("\n", "\r\n"))
				continue
			}
			frames := []string{}
			if byTask {
				frames = append(frames, pick("tar", "my app", "kworker/0:1", "a-1/2", "main"))
			}
			frames = append(frames, pick("_start", "start_thread", "runtime.goexit"))
			for range random.IntN(5) {
				frames = append(frames, pick("f", "operator()(int)", "a b", "Foo.bar(La/B;I)V", "std::x<1>", "<module> (a.py:1)", "f+1", "{closure}"))
			}
			names := frames
			if byTask && delimited && random.IntN(2) == 0 {
				frames = append(frames[:len(frames):len(frames)], "-", "sys_read_[k]", "io")
				names = append(names[:len(names):len(names)], "sys_read", "io")
			}
			n := int64(random.IntN(1000))
			want[strings.ReplaceAll(strings.Join(names, "|"), ";", ":")] += n
			fmt.Fprintf(&text, "%s%s%d%s", strings.Join(frames, ";"), pick(" ", "\t", "  "), n, pick("\n", " \n", "\r\n"))
		}
		p := decoded(t, []byte(text.String()), Folded)
		var again strings.Builder
		if err := folded.Write(&again, p, folded.Options{}); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for line := range strings.Lines(again.String()) {
			line = strings.TrimSpace(line)
			i := strings.LastIndexByte(line, ' ')
			n, err := strconv.ParseInt(line[i+1:], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			got[strings.ReplaceAll(line[:i], ";", "|")] += n
		}
		maps.DeleteFunc(want, func(_ string, n int64) bool { return n == 0 })
		if diff := cmp.Diff(want, got); diff != "" || p.Losses[profile.LossUnread] != junk {
			t.Fatalf("%s\n(-want +got):\n%s\ngot %d lines not read, want %d", text.String(), diff, p.Losses[profile.LossUnread], junk)
		}
	}
}

// What fulgur writes reads back: annotated, with delimiters, as a comparison, without tasks.
func TestFoldedOwn(t *testing.T) {
	p := encodetest.Typical()
	want := fold(t, p, 0)
	for _, o := range []folded.Options{{Annotate: true}, {Annotate: true, Delimited: true}} {
		var text strings.Builder
		if err := folded.Write(&text, p, o); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, fold(t, decoded(t, []byte(text.String()), Folded), 0)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", o, diff)
		}
	}
	compared := encodetest.Compared()
	var text strings.Builder
	if err := folded.Write(&text, compared, folded.Options{Compare: true}); err != nil {
		t.Fatal(err)
	}
	got := decoded(t, []byte(text.String()), Folded)
	for v := range 2 {
		if diff := cmp.Diff(fold(t, compared, v), fold(t, got, v)); diff != "" {
			t.Errorf("a comparison, value %d (-want +got):\n%s", v, diff)
		}
	}
}

// Texts of other kinds have some lines that could be stacks or frames by chance.
func TestForeignText(t *testing.T) {
	prose := strings.Repeat("This line says nothing about stacks.\n", 40)
	code := strings.Repeat("    1139:\tc3                   \tret\n", 40)
	for _, c := range []struct{ name, text, want string }{
		{"prose", prose + "                       Version 3, 29 June 2007\n", "no known format"},
		{"settings", "; the limits\n;users 10\n;orgs; and users 100\n" + prose, "only 2 of 43 lines"},
		{"one stack among many lines", "main;work 10\n" + prose, "only 1 of 41 lines"},
		{"settings with =", "; the limits\n;users = 10\n;orgs; and users = 100\n" + prose, "no known format"},
		{"a table", "COMMAND       READS    WRITES\n" + strings.Repeat("gcc            1234        5\n", 9), "is a table"},
		{"a table of names", "ADDR             FUNC                          COUNT\n" + strings.Repeat("ffffffff811e6f01 vfs_open                        475\n", 9), "is a table"},
		{"a table with file names", "TIME     COMM           PID    T BYTES   MS\n" + strings.Repeat("10:20:30 dd             20001  W 65536   30.92 data1\n", 9), "no known format"},
		{"a table with arguments", "COMM             PID    PPID   RET ARGS\n" + strings.Repeat("bzip2            200002 200001   0 /bin/bzip2 -d c\n", 9), "no known format"},
		{"a table of addresses", "PID COMM         PROT ADDR            PORT   OPTS IF\n" + strings.Repeat("2000001 dig          TCP  ::              62087 .....  0\n2001 db  TCPv6  128  ::    6379\n", 9), "no known format"},
		{"a table of paths", "TIME(s)            COMM             PID    ARGS\n" + strings.Repeat("20000324.561322998 node             20728  path:/index.html\n", 9), "no known format"},
		{"numbers with names", strings.Repeat("10:20:30: forks: 4\n", 9), "no known format"},
		{"sentences with numbers", strings.Repeat("10:20:30 load averages: 2.09 2.05 1.95\n", 9), "another text"},
		{"sentences before lists", strings.Repeat("It prints a sum after 2 seconds:\n", 9), "no known format"},
		{"versions", strings.Repeat("As in Linux 6.12 to 6.18:\n", 9), "no known format"},
		{"numbered lines", strings.Repeat("     1\t#include <stdio.h>\n\n", 9), "no known format"},
		{"counts after tabs", strings.Repeat("$ count\n\t4          $COMM = b'node'\n", 9), "no line is the head"},
		{"lists of numbers", strings.Repeat("1801, 1506, 255, 6\n20, 16\n", 9), "another text"},
		{"commented settings", strings.Repeat("; socket 7\nname = value\n", 9), "another text"},
		{"a list of files", "Files:\n" + strings.Repeat(" 10 to 19\t\tdefaults (for all, too)\n", 9), "no line is the head"},
		{"documentation of bpftrace", strings.Repeat("Maps are printed at the end.\n", 40) + "@x[7]: 3\n", "only 1 of 41 lines"},
		{"ftrace", "Tracing\n" + strings.Repeat("      worker-2001  [001] d... 1763.021204: do_nanosleep <-hrtimer_nanosleep\n", 9), "ftrace"},
		{"ftrace without flags", "Tracing\n" + strings.Repeat("      worker-2001  [001]  1763.021204: probe: (work+0x0/0x30) arg=1\n", 9), "ftrace"},
		{"bcc's waits", strings.Repeat("    target:          vmstat\n    ffffffff810df082 hrtimer_wakeup\n    waker:           swapper/1\n        4000415\n\n", 9), "run the tool with -f"},
		{"strace", strings.Repeat("12:00:00 read(3, \"a;b 1\\n\", 6) = 6\n", 9), "strace"},
		{"calls", strings.Repeat("ret: read(3, \"a;b 1\\n\", 6) = 6\n", 9), "no known format"},
		{"assembly", "0000000000001139 <main>:\n" + code, ""},
		{"report of pprof", "Showing nodes accounting for 4s, 100% of 4s total\n      flat  flat%   sum%        cum   cum%\n     1.10s 98.21% 98.21%      1.10s 98.21%  main 12\n", "text report of pprof"},
		{"report of GHC", "\tSun Aug  6 14:50 2023 Time and Allocation Profiling Report  (Final)\n\nmain  Main  a.hs:1  30.0  9.4\n", "profile of GHC"},
	} {
		_, _, err := Read(t.Context(), strings.NewReader(c.text), "in")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", c.name, err, c.want)
		}
	}
	// Messages around a profile do not matter.
	for _, text := range []string{
		"main;work 10\n" + strings.Repeat("sampled\n", 8),
		strings.Repeat("main;work 10\nsampled\nand again\n", 40),
	} {
		if _, _, err := Read(t.Context(), strings.NewReader(text), "in"); err != nil {
			t.Errorf("with messages: %v", err)
		}
	}
}

// A name may begin with "#", as comments do.
func TestFoldedComment(t *testing.T) {
	const text = "# a comment; with a number 7\n#!/bin/sh;x 5\n##;y 6\n#private;work 3\n#private;rest of it 4\n# 5\n"
	p, format, err := Read(t.Context(), strings.NewReader(text), "in")
	if err != nil || format != Folded {
		t.Fatal(format, err)
	}
	if total := p.Total(0); len(p.Samples) != 2 || total != 7 {
		t.Errorf("%d stacks with %d samples, want 2 with 7", len(p.Samples), total)
	}
}
