package e2e

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// goWords has arguments of several words: a string has two, a slice three.
//
//go:noinline
func goWords(a, b int, text string, list []int, pointer *int, last int) int {
	return a + b + len(text) + cap(list) + *pointer + last
}

// goReceiver has a method whose receiver is a value of two words.
type goReceiver struct{ first, second int }

//go:noinline
func (r goReceiver) goMethod(n int) int { return r.first*n + r.second }

// goArguments calls functions with known arguments, and prints their sums, and how often some
// conditions hold.
func goArguments() {
	sums, texts := map[string]int{}, []string{"a", "longer", "the longest"}
	for i := range 60 {
		text, list := texts[i%len(texts)], make([]int, i, i+3)
		goWords(i, -i, text, list, &i, 1000+i)
		sums["a"] += i
		sums["text"] += len(text)
		sums["len"] += len(list)
		sums["cap"] += cap(list)
		sums["last"] += 1000 + i
		if len(text) == 6 && -i < -30 {
			sums["some"]++
		}
		sink += uint64(goReceiver{i, 2 * i}.goMethod(3 * i))
		sums["second"] += 2 * i
		sums["n"] += 3 * i
	}
	for i := range 3 { // on stacks that grow
		done := make(chan int)
		go func() { done <- goGrow(100 * i) }()
		<-done
		sums["grows"] += 100*i + 1
		sums["depths"] += 100 * i * (100*i + 1) / 2
	}
	for name, n := range sums {
		fmt.Printf("%s %d\n", name, n)
	}
}

// Arguments of Go functions are in the registers of Go's calling convention, and each call counts
// once, also if Go executes the function again because the stack was too small.
func TestCountGoArguments(t *testing.T) {
	testenv.Root(t)
	program := asWorkload(t, "arguments")
	for _, test := range []struct {
		function, flag, value, want string
		most                        int // of a call
	}{
		{"goWords", "--weight", "arg0", "a", 60},
		{"goWords", "--weight", "arg3", "text", 11},
		{"goWords", "--weight", "arg5", "len", 60},
		{"goWords", "--weight", "arg6", "cap", 63},
		{"goWords", "--weight", "arg8", "last", 1060},
		{"goWords", "--filter", "arg3 == 6 && arg1 < -30", "some", 1},
		{"goReceiver.goMethod", "--weight", "arg1", "second", 120},
		{"goReceiver.goMethod", "--weight", "arg2", "n", 180},
		{"goGrow", "--weight", "arg0", "depths", 200},
		{"goGrow", "--filter", "arg0 >= 0", "grows", 1},
	} {
		t.Run(test.function+" "+test.value, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out.folded")
			r := fulgur(t, "count", "--unwind", "fp", "-o", out, "-e", "uprobe:"+program+":fulgur/test/e2e."+test.function, test.flag, test.value, "--", program)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			want := hits(numbers(t, r.stdout)[test.want], test.most, r.stderr)
			if got := sum(readFolded(t, out)); !want.Has(got) || got == 0 {
				t.Errorf("got %d, want %s\n%s", got, want, r.stderr)
			}
		})
	}
	for _, test := range []struct{ function, condition, want string }{
		{"fulgur/test/e2e.goWords", `arg2 == "longer"`, "Go's strings have no NUL"},
		{"fulgur/test/e2e.goWords", "arg16 == 1", "the fields are arg0 to arg"},
		{"runtime.memmove", "arg0 == 1", "a function in assembly"},
	} {
		r := fulgur(t, "count", "-e", "uprobe:"+program+":"+test.function, "--filter", test.condition, "1")
		if r.code != 2 || !strings.Contains(r.stderr, test.want) {
			t.Errorf("%s: got code %d and %q, want 2 and %q", test.function, r.code, r.stderr, test.want)
		}
	}
}

// A filter of calls of a Go function reads Go's registers.
func TestLatencyGoArguments(t *testing.T) {
	testenv.Root(t)
	program := asWorkload(t, "arguments")
	r := fulgur(t, "latency", "--unwind", "fp", "-o", filepath.Join(t.TempDir(), "out.folded"),
		"-e", "uprobe:"+program+":fulgur/test/e2e.goWords", "--filter", "arg3 == 6 && arg1 < -30", "--", program)
	if r.code != 0 {
		t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
	}
	got := 0
	if m := regexp.MustCompile(`count (\d+), average`).FindStringSubmatch(r.stderr); m != nil {
		got, _ = strconv.Atoi(m[1])
	}
	if want := hits(numbers(t, r.stdout)["some"], 1, r.stderr); !want.Has(got) || got == 0 {
		t.Errorf("got %d intervals, want %s\n%s", got, want, r.stderr)
	}
}

// The stack of a hit has the caller, although the function has no frame yet, and so does the stack
// of an allocation.
func TestGoCaller(t *testing.T) {
	testenv.Root(t)
	program := asWorkload(t, "allocate")
	const prefix = ";fulgur/test/e2e."
	count := []string{"count", "-e", "uprobe:" + program + ":fulgur/test/e2e.byBytes"}
	alloc := []string{"alloc", "--rate", "1", "--max-overhead", "100"}
	for name, test := range map[string]struct {
		args []string
		want string // part of the stacks of byBytes
	}{
		"count":                   {count, prefix + "allocate" + prefix + "byBytes"},
		"count by frame pointers": {append(count, "--unwind", "fp"), prefix + "allocate" + prefix + "byBytes"},
		"alloc":                   {alloc, prefix + "byBytes;runtime.makeslice;runtime."},
		"alloc by frame pointers": {append(alloc, "--unwind", "fp"), prefix + "byBytes;runtime.makeslice;runtime."},
	} {
		t.Run(name, func(t *testing.T) {
			pid, ask := serve(t, program)
			out := filepath.Join(t.TempDir(), "out.folded")
			c := command(t, append(test.args, "-o", out, "-p", strconv.Itoa(pid))...)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			awaitSampling(t, c)
			ask("r")
			r := interrupt(t, c)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			all, whole := 0, 0
			for stack, n := range readFolded(t, out) {
				if strings.Contains(stack, prefix+"byBytes") {
					all += n
					if strings.Contains(stack, test.want) {
						whole += n
					}
				}
			}
			if all == 0 || whole != all {
				t.Errorf("%d of %d hits have the stack %s", whole, all, test.want)
			}
		})
	}
}
