package main

import (
	"flag"
	"runtime"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// The rig runs tests only, so this test also measures, in a machine with 16 CPUs for example:
//
//	go run ./test/rig -kernels 6.12 -cpus 16 -memory 4096 -program ./cmd/fulgur -v -timeout 30m -run TestPerCPU \
//		-arg -processes=100,1000,5000 -arg -settle=8s -arg -observe=20s ./bench/scale
var (
	processes = flag.String("processes", "20", "as the command's flag")
	perSecond = flag.String("forks", "0", "as the command's flag")
	command   = flag.String("command", strings.Join(defaultCommand, " "), "fulgur's arguments")
	settle    = flag.Duration("settle", 0, "as the command's flag")
	observe   = flag.Duration("observe", 0, "as the command's flag")
)

// Each CPU costs three perf events, and the size of their rings is bounded.
func TestPerCPU(t *testing.T) {
	testenv.Root(t)
	if *observe == 0 {
		testenv.SlowInVM(t)
	}
	runtime.LockOSThread() // for measure
	defer runtime.UnlockOSThread()
	loads, err := parseLoads(*processes, *perSecond)
	if err != nil {
		t.Fatal(err)
	}
	helper := testenv.Compile(t, "processes", "gcc", "testdata/processes.c", "-O2", "-static")
	fulgur := testenv.Program(t, "fulgur/cmd/fulgur", t.TempDir())
	results, err := measureAll(t.Context(), append([]string{fulgur}, strings.Fields(*command)...), helper, loads,
		times{*settle, *observe})
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := write(&table, results); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
	if *command != strings.Join(defaultCommand, " ") {
		return
	}
	for _, r := range results {
		if got, want := r.Held.Files[perfEvents], 3*r.CPUs; got != want {
			t.Errorf("%+v: %d perf events on %d CPUs, want %d", r.Load, got, r.CPUs, want)
		}
		if got, most := r.Held.Rings, uint64(min(r.CPUs*516<<10, 36<<20)); got > most {
			t.Errorf("%+v: rings of %d bytes on %d CPUs, want at most %d", r.Load, got, r.CPUs, most)
		}
	}
}

// Each number of processes is combined with each number of forks.
func TestParseLoads(t *testing.T) {
	got, err := parseLoads("1,20", "0,3")
	if want := []load{{1, 0}, {1, 3}, {20, 0}, {20, 3}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "x", "1,", "-1"} {
		if _, err := parseLoads(bad, "0"); err == nil {
			t.Errorf("%q: got no error", bad)
		}
	}
}
