package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fulgur/internal/branches"
	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/target"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/offline"
	"fulgur/internal/profile/output"
	"fulgur/internal/session"
	"fulgur/internal/testenv"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// words splits a command line. No test needs quotes.
func words(line string) []string { return strings.Fields(line) }

func TestProfileOptions(t *testing.T) {
	tests := map[string]session.ProfileOptions{
		"profile":                                      {},
		"profile 10":                                   {Options: session.Options{Duration: 10 * time.Second}},
		"profile 0.5":                                  {Options: session.Options{Duration: 500 * time.Millisecond}},
		"profile 1m30s":                                {Options: session.Options{Duration: 90 * time.Second}},
		"profile --delay 2 --quiet":                    {Options: session.Options{Delay: 2 * time.Second, Quiet: true}},
		"profile --delay=0":                            {},
		"profile -p 1,2 5":                             {Options: session.Options{Target: target.Target{Scope: target.Processes, PIDs: []int{1, 2}}, Duration: 5 * time.Second}},
		"profile 5 -p 1 -p 2 --children":               {Options: session.Options{Target: target.Target{Scope: target.Processes, PIDs: []int{1, 2}, Children: true}, Duration: 5 * time.Second}},
		"profile -p 2,1,2 -p 1 -C 1 -C 0-1":            {Options: session.Options{Target: target.Target{Scope: target.Processes, PIDs: []int{1, 2}, CPUs: []int{0, 1}}}},
		"profile --pid=7":                              {Options: session.Options{Target: target.Target{Scope: target.Processes, PIDs: []int{7}}}},
		"profile -p7":                                  {Options: session.Options{Target: target.Target{Scope: target.Processes, PIDs: []int{7}}}},
		"profile -L 3,4":                               {Options: session.Options{Target: target.Target{Scope: target.Threads, TIDs: []int{3, 4}}}},
		"profile --cgroup /sys/fs/cgroup/a":            {Options: session.Options{Target: target.Target{Scope: target.Cgroup, CgroupPath: "/sys/fs/cgroup/a"}}},
		"profile -C 0,2-3":                             {Options: session.Options{Target: target.Target{CPUs: []int{0, 2, 3}}}},
		"profile -- ls":                                {Options: session.Options{Target: target.Target{Scope: target.Command}, Command: []string{"ls"}}},
		"profile 10 -- ls -l -- -p 3":                  {Options: session.Options{Target: target.Target{Scope: target.Command}, Command: []string{"ls", "-l", "--", "-p", "3"}, Duration: 10 * time.Second}},
		"profile -C 1 --children -- make --help":       {Options: session.Options{Target: target.Target{Scope: target.Command, CPUs: []int{1}, Children: true}, Command: []string{"make", "--help"}}},
		"profile -F 99":                                {Config: oncpu.Config{Frequency: 99}},
		"profile -r 99":                                {Config: oncpu.Config{Frequency: 99}},
		"profile -c 1000000 -e r1a8":                   {Config: oncpu.Config{Period: 1000000, Event: "r1a8"}},
		"profile -U -I":                                {Options: session.Options{UserOnly: true}, Config: oncpu.Config{Idle: true}},
		"profile --parallelism":                        {Config: oncpu.Config{Parallelism: true}},
		"profile -K":                                   {Options: session.Options{KernelOnly: true}},
		"profile -daf":                                 {Options: session.Options{Delimited: true, Annotate: true, Format: "folded"}},
		"profile --inverted -o a.svg":                  {Options: session.Options{Inverted: true, Output: "a.svg"}},
		"profile -f -o a.txt":                          {Options: session.Options{Format: "folded", Output: "a.txt"}},
		"profile -f -o -":                              {Options: session.Options{Format: "folded", Output: "-"}},
		"profile -f --format folded":                   {Options: session.Options{Format: "folded"}},
		"profile -o flame.html 10":                     {Options: session.Options{Output: "flame.html", Duration: 10 * time.Second}},
		"profile -o - --format svg":                    {Options: session.Options{Output: "-", Format: "svg"}},
		"profile --per-thread --per-cpu --no-demangle": {Options: session.Options{PerThread: true, PerCPU: true, NoDemangle: true}},
		"profile --max-depth 64 --ring-size 1M":        {Options: session.Options{MaxDepth: 64, RingSize: 1 << 20}},
		"profile --ring-size 4096 --count-entries 64 --seen-entries 128": {Options: session.Options{RingSize: 4096, CountEntries: 64, SeenEntries: 128}},
		"profile --stack-storage-size 16384":                             {Options: session.Options{SeenEntries: 16384}}, // bcc's name
		"profile --unwind dwarf --unwind-memory 8M":                      {Options: session.Options{Unwind: "dwarf", UnwindMemory: 8 << 20}},
	}
	for line, want := range tests {
		if want.Unwind == "" {
			want.Unwind = "auto"
		}
		want.Interpreters, want.Via = "auto", "auto"
		checkOptions(t, line, want, func(c command) (session.ProfileOptions, error) { return c.(*profileCommand).options() })
	}
}

func optionsOf(line string) (session.ProfileOptions, error) {
	selected, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		return session.ProfileOptions{}, err
	}
	return selected.(*profileCommand).options()
}

// offCPUOptions are the options that the flags select.
type offCPUOptions struct {
	session.Options
	offcpu.Config
}

// orAuto returns the value of --via, or its default.
func orAuto(via string) string {
	if via == "" {
		return "auto"
	}
	return via
}

func TestOffCPUOptions(t *testing.T) {
	for line, want := range map[string]offCPUOptions{
		"offcpu": {},
		"offcpu -p 1 -m 1000 -M 2000000 5": {
			Options: session.Options{
				Target: target.Target{Scope: target.Processes, PIDs: []int{1}}, Duration: 5 * time.Second,
			},
			Config: offcpu.Config{Shortest: time.Millisecond, Longest: 2 * time.Second},
		},
		"offcpu -u --state D --waker-stacks --pending-entries 64": {
			Config: offcpu.Config{Threads: offcpu.UserThreads, States: 4, WakerStacks: true, PendingEntries: 64},
		},
		"offcpu --via perf":      {Options: session.Options{Via: "perf"}},
		"offcpu -k --state 2":    {Config: offcpu.Config{Threads: offcpu.KernelThreads, States: 4}},
		"offcpu -fU --state S,D": {Options: session.Options{Format: "folded", UserOnly: true}, Config: offcpu.Config{States: 6}},
		"offcpu -- ls -m": {
			Options: session.Options{Target: target.Target{Scope: target.Command}, Command: []string{"ls", "-m"}},
		},
	} {
		want.Unwind, want.Interpreters, want.Via = "auto", "auto", orAuto(want.Via)
		checkOptions(t, line, want, func(c command) (offCPUOptions, error) {
			own := c.(*offCPUCommand)
			common, err := own.options()
			return offCPUOptions{common, own.config()}, err
		})
	}
}

// blockIOOptions are the options that the flags select.
type blockIOOptions struct {
	session.Options
	blockio.Config
}

func TestBlockIOOptions(t *testing.T) {
	for line, want := range map[string]blockIOOptions{
		"blockio": {},
		"blockio -Q --weight bytes --pending-entries 9 -o b.svg 1": {
			Options: session.Options{Output: "b.svg", Duration: time.Second},
			Config:  blockio.Config{Weight: "bytes", QueueInLatency: true, PendingEntries: 9},
		},
	} {
		want.Unwind, want.Interpreters = "auto", "auto"
		checkOptions(t, line, want, func(c command) (blockIOOptions, error) {
			own := c.(*blockIOCommand)
			common, err := sessionOptions(own.subjectFlags, own.profileFlags)
			return blockIOOptions{common, own.config()}, err
		})
	}
}

// faultsOptions are the options that the flags select.
type faultsOptions struct {
	session.Options
	faults.Config
}

func TestFaultsOptions(t *testing.T) {
	for line, want := range map[string]faultsOptions{
		"faults":           {},
		"faults --offsets": {Config: faults.Config{Offsets: true}},
		"faults -c 100 -C 0 -L 7": {
			Options: session.Options{Target: target.Target{Scope: target.Threads, TIDs: []int{7}, CPUs: []int{0}}},
			Config:  faults.Config{Period: 100},
		},
	} {
		want.Unwind, want.Interpreters = "auto", "auto"
		checkOptions(t, line, want, func(c command) (faultsOptions, error) {
			own := c.(*faultsCommand)
			common, err := sessionOptions(own.subjectFlags, own.profileFlags)
			common.Target.CPUs = own.CPU
			return faultsOptions{common, own.config()}, err
		})
	}
}

func TestRecordOptions(t *testing.T) {
	for line, want := range map[string]session.RecordOptions{
		"record": {Options: session.Options{Output: "fulgur.json.gz"}},
		"record -r 499 -m 50 --no-open --waker-stacks --fault-count 10 -p 7 2": {
			Options: session.Options{
				Output: "fulgur.json.gz", Target: target.Target{Scope: target.Processes, PIDs: []int{7}}, Duration: 2 * time.Second,
			},
			Frequency: 499, Shortest: 50 * time.Microsecond, WakerStacks: true, FaultPeriod: 10,
		},
		"record -F 499 -p 7": {
			Options: session.Options{Output: "fulgur.json.gz", Target: target.Target{Scope: target.Processes, PIDs: []int{7}}}, Frequency: 499,
		},
		"record --save-only --no-cpu --no-offcpu --no-blockio --stack-nodes 9 -- ls": {
			Options: session.Options{
				Output: "fulgur.json.gz", Target: target.Target{Scope: target.Command}, Command: []string{"ls"}, StackNodes: 9,
			},
			NoCPU: true, NoOffCPU: true, NoBlockIO: true,
		},
		"record --format pprof --no-symbols": {Options: session.Options{Format: "pprof", NoSymbols: true}},
		"record --value off-cpu --no-faults -o a.html 1": {
			Options: session.Options{Output: "a.html", Duration: time.Second}, NoFaults: true, Value: "off-cpu",
		},
	} {
		want.Unwind, want.Interpreters, want.Via, want.TimesIfAny = "auto", "auto", orAuto(want.Via), true
		checkOptions(t, line, want, func(c command) (session.RecordOptions, error) { return c.(*recordCommand).options() })
	}
}

// checkOptions compares the options of a command line.
// -p takes what pgrep writes: an ID in each line.
func TestIDs(t *testing.T) {
	for text, want := range map[string][]int{"17": {17}, "42\n17\n": {17, 42}, "17,42 7": {7, 17, 42}} {
		var got ids
		if err := got.UnmarshalText([]byte(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %v, %v, want %v", text, got, err, want)
		}
	}
	var got ids
	if err := got.UnmarshalText([]byte("\n")); err == nil || !strings.Contains(err.Error(), "no ID: perhaps nothing matched") {
		t.Errorf("got %v, want an error that nothing matched", err)
	}
}

func checkOptions[O any](t *testing.T, line string, want O, options func(command) (O, error)) {
	t.Run(line, func(t *testing.T) {
		selected, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := options(selected)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(session.Options{}, branches.Options{})); d != "" {
			t.Error("(-want +got):\n" + d)
		}
	})
}

func TestConvertOptions(t *testing.T) {
	tests := map[string]offline.ConvertOptions{
		"convert --binary b -o a.preagg in":       {Input: "in", ProfileOptions: branches.ProfileOptions{Binary: "b", LLVM: "auto"}, Output: "a.preagg"},
		"convert --embed-sources -o a.json.gz in": {Input: "in", Output: "a.json.gz", EmbedSources: true, ProfileOptions: branches.ProfileOptions{LLVM: "auto"}},
		"convert --format preagg --binary b -":    {Input: "-", ProfileOptions: branches.ProfileOptions{Binary: "b", LLVM: "auto"}, Format: "preagg"},
		"convert --all-binaries -o d --llvm 16 --strict --basic --stats json -q in": {
			Input: "in", ProfileOptions: branches.ProfileOptions{AllBinaries: true, LLVM: "16", Strict: true, Basic: true, StatsJSON: true}, Output: "d", Quiet: true,
		},
	}
	for line, want := range tests {
		checkOptions(t, line, want, func(c command) (offline.ConvertOptions, error) { return c.(*convertCommand).options(), nil })
	}
}

// On a terminal, a recording is shown unless flags prevent it.
func TestRecordShows(t *testing.T) {
	for line, want := range map[string]bool{
		"record 1": true, "record -o a.json.gz -- ls": true, "record -o a --format firefox 1": true,
		"record --save-only 1": false, "record --no-open 1": false, "record -q 1": false,
		"record -o a.pb.gz 1": false, "record -o - --format firefox 1": false, "record --format text 1": false,
	} {
		selected, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		c := selected.(*recordCommand)
		o, err := c.options()
		if err != nil {
			t.Fatal(err)
		}
		if got := c.shows(o, true); got != want {
			t.Errorf("%s on a terminal: got %v, want %v", line, got, want)
		}
		if c.shows(o, false) {
			t.Errorf("%s without a terminal: got true, want false", line)
		}
	}
}

func TestViewOptions(t *testing.T) {
	tests := map[string]offline.ViewOptions{
		"view cpu.json.gz": {Input: "cpu.json.gz", Listen: "127.0.0.1"},
		"view --base a.pb.gz --value cpu --port 4000 --listen ::1 --no-open -q -": {
			Input: "-", Base: "a.pb.gz", Value: "cpu", Port: 4000, Listen: "::1", NoOpen: true, Quiet: true,
		},
	}
	for line, want := range tests {
		checkOptions(t, line, want, func(c command) (offline.ViewOptions, error) { return c.(*viewCommand).options(), nil })
	}
}

func TestBoltOptions(t *testing.T) {
	tests := map[string]branches.Options{
		"bolt -p 1": {
			Target: target.Target{Scope: target.Processes, PIDs: []int{1}},
		},
		"bolt -p 1 -f 99 -v 30": {
			Target: target.Target{Scope: target.Processes, PIDs: []int{1}}, Duration: 30 * time.Second,
			Frequency: 99, Verbose: true,
		},
		"bolt -p 1,2 --children --strict -o x.preagg --llvm 16 --stats json": {
			Target:         target.Target{Scope: target.Processes, PIDs: []int{1, 2}, Children: true},
			ProfileOptions: branches.ProfileOptions{Strict: true, LLVM: "16", StatsJSON: true}, Output: "x.preagg",
		},
		"bolt --binary /bin/sh --event r1a8 1m": {
			ProfileOptions: branches.ProfileOptions{Binary: "/bin/sh"}, Event: "r1a8", Duration: time.Minute,
		},
		"bolt --cgroup /sys/fs/cgroup/a --all-binaries -o dir --ring-size 1M": {
			Target:         target.Target{Scope: target.Cgroup, CgroupPath: "/sys/fs/cgroup/a"},
			ProfileOptions: branches.ProfileOptions{AllBinaries: true}, Output: "dir", RingSize: 1 << 20,
		},
		"bolt -p 1 --branches stepping --max-overhead 2.5% --burst 5ms": {
			Target:   target.Target{Scope: target.Processes, PIDs: []int{1}},
			Branches: "stepping", MaxOverhead: 0.025, BurstMax: 5 * time.Millisecond,
		},
		"bolt -p 1 --basic --optimize a.bolt": {
			Target:         target.Target{Scope: target.Processes, PIDs: []int{1}},
			ProfileOptions: branches.ProfileOptions{Basic: true}, Optimize: "a.bolt", Check: branches.DefaultCheck,
		},
		"bolt --optimize a.bolt --check 0 -- ls": {
			Target: target.Target{Scope: target.Command}, Command: []string{"ls"}, Optimize: "a.bolt",
		},
		"bolt --optimize a.bolt --check 5m -- ls": {
			Target: target.Target{Scope: target.Command}, Command: []string{"ls"}, Optimize: "a.bolt", Check: 5 * time.Minute,
		},
		"bolt -q -- ls -l": {
			Target: target.Target{Scope: target.Command}, Command: []string{"ls", "-l"}, Quiet: true,
		},
	}
	for line, want := range tests {
		if want.LLVM == "" {
			want.LLVM = "auto"
		}
		if want.Branches == "" {
			want.Branches = "auto"
		}
		checkOptions(t, line, want, func(c command) (branches.Options, error) { return c.(*boltCommand).options() })
	}
}

func TestAutoFDOOptions(t *testing.T) {
	for line, want := range map[string]branches.Options{
		"autofdo -p 1 -o x.prof 30": {
			Target: target.Target{Scope: target.Processes, PIDs: []int{1}}, Duration: 30 * time.Second, Output: "x.prof",
			ProfileOptions: branches.ProfileOptions{Samples: "extbinary"},
		},
		"autofdo --binary b --format text --branches stepping --stats json -q": {
			ProfileOptions: branches.ProfileOptions{Binary: "b", Samples: "text", StatsJSON: true}, Branches: "stepping", Quiet: true,
		},
	} {
		if want.Branches == "" {
			want.Branches = "auto"
		}
		checkOptions(t, line, want, func(c command) (branches.Options, error) { return c.(*autofdoCommand).options() })
	}
}

func TestFrequencyMax(t *testing.T) {
	o, err := optionsOf("profile -F max")
	if err != nil {
		testenv.Skip(t, "needs sysctl kernel.perf_event_max_sample_rate: %v", err)
	}
	b, err := os.ReadFile("/proc/sys/kernel/perf_event_max_sample_rate")
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprintln(o.Frequency); got != string(b) {
		t.Errorf("got frequency %s, want %s", got, b)
	}
	_, err = optionsOf("profile -F 0")
	if want := "from 1 to " + strings.TrimSpace(string(b)) + " (sysctl"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got error %v, want %q", err, want)
	}
}

// Wrong command lines print an error, and the exit code is 2.
func TestUsageErrors(t *testing.T) {
	tests := map[string]string{
		"help proflie":                           `did you mean "profile"`,
		"help nosuch":                            "\nSee fulgur --help, or fulgur COMMAND --help.",
		"proflie":                                `did you mean "profile"`,
		"version 1":                              "unexpected argument 1",
		"version -- ls":                          `version does not run a command`,
		"profile --":                             `no command follows "--"`,
		"profile --nonsense":                     "unknown flag --nonsense",
		"profile --format":                       "--format: a value is missing",
		"profile -o":                             "-o: a value is missing",
		"profile -qo":                            "-o: a value is missing",
		"profile -C -o":                          `"-o" is not a list of CPUs`,
		"offcpu -m -5":                           "is not a number of microseconds",
		"offcpu -m 1s":                           "is not a number of microseconds",
		"offcpu --state Q":                       "is not a thread state",
		"offcpu --state 3":                       "not a thread state of the kernel",
		"offcpu -u -k":                           "can't be used together",
		"blockio --weight pounds":                "is not a value of disk requests",
		"offcpu -m 2000 -M 1000":                 "no wait is both at least 2ms and at most 1ms",
		"profile 10 20":                          "unexpected argument 20",
		"profile ls":                             `"ls" is not a duration: give seconds like 10 or 0.5, or 1m30s; a command comes after "--"`,
		"profile 10x":                            "is not a duration",
		"profile 1e3":                            "is not a duration",
		"profile nan":                            "is not a duration",
		"profile inf":                            "is not a duration",
		"profile -5":                             "unknown flag -5\n",
		"profile --frequenzy 9":                  `unknown flag --frequenzy, did you mean "--frequency"?`,
		"completion":                             "give a shell: bash, zsh or fish",
		"completion tcsh":                        "must be one of",
		"profile --delay -5s":                    "-5s is negative",
		"profile --delay=-5s":                    "-5s is negative",
		"profile 0":                              "a duration of 0 measures nothing",
		"profile 99999h":                         "99999h is longer than a year",
		"profile 99999999999999999999":           "is not a duration",
		"profile -F 0":                           "kernel.perf_event_max_sample_rate",
		"profile -F -1":                          `"-1" is not a frequency`,
		"profile -F 49.5":                        "frequency",
		"profile -F fast":                        `"fast" is not a frequency`,
		"profile -F 99 -c 1000":                  "--frequency and --count can't be used together",
		"profile -c 0":                           `"0" is not a number from 1 to`,
		"profile -e cpu-clock -c 9999":           "period 9999 is below the minimum of 10000 ns for kernel timers",
		"profile -e task-clock:u -c 1":           "task-clock counts nanoseconds",
		"profile --tui 1":                        "--tui needs a terminal as standard input and output",
		"profile --tui -o x.html 1":              "--tui shows the profile on the terminal: it cannot be combined with -o",
		"profile --parallelism -I":               "--parallelism and -I cannot be combined",
		"profile --parallelism --times":          "--parallelism cannot be combined with --wall, --times or --stream",
		"profile --tui --interval 1":             "it cannot be combined with",
		"view --tui x.pb.gz":                     "--tui needs a terminal",
		"profile --width 100 -o x.svg 1":         `"100" is not a width in pixels: give a number from 300 to 30000`,
		"convert --width 900 -o x.html x":        "only pictures have a width",
		"diff --width 900 x y":                   "only pictures have a width",
		"convert --times --format text x":        "only a page (.html) with all values",
		"profile -U -K":                          "--user-stacks-only and --kernel-stacks-only can't be used together",
		"profile -p 1 -L 2":                      "--pid and --tid can't be used together",
		"profile -p 1 --cgroup /x":               "can't be used together",
		"profile -p 1 -- ls":                     "--container, --pod and --unit cannot be combined with it",
		"profile -p 0":                           `"0" is not an ID`,
		"profile -p 1,":                          `"" is not an ID`,
		"profile -p init":                        `"init" is not an ID: give positive numbers, like 17,42, or "$(pgrep NAME)"`,
		"profile -p 99999999999":                 "is not an ID",
		"profile -p":                             "-p: a value is missing",
		"profile -p -1":                          `"-1" is not an ID: give positive numbers`,
		"profile -L -1 5":                        `"-1" is not an ID`,
		"profile -p -F 99":                       `"-F" is not an ID`,
		"profile -o -f 5":                        `unknown ending of "-f"`,
		"profile -C x":                           `"x" is not a list of CPUs`,
		"profile -C 3-1":                         "is not a list of CPUs",
		"profile --children":                     "--children needs -p or a command",
		"profile --children -L 1":                "--children needs -p or a command",
		"profile -f --format svg":                "-f and --format svg cannot be combined",
		"profile -f -o a.otlp":                   "-f writes folded stacks, but the name a.otlp is for otlp: leave out -f",
		"profile --format tar":                   "choose " + plain.Or(output.Names()),
		"profile -o flame.png":                   ".folded",
		"profile --max-depth 0":                  "is not a number",
		"profile --max-depth 100000":             "depth 100000",
		"profile --ring-size 5G":                 "is not a size",
		"profile --ring-size 18014398509481985K": "is not a size",
		"profile --ring-size K":                  "is not a size",
		"profile --ring-size 0":                  "is not a size",
		"profile --ring-size 1":                  fmt.Sprintf("--ring-size 1 is out of range: give %d to 1073741824", os.Getpagesize()),
		"profile --ring-size 3G":                 "--ring-size 3221225472 is out of range",
		"profile --count-entries 4294967295":     "--count-entries 4294967295 is out of range: give 1 to 16777216",
		"profile --seen-entries 4294967295":      "--seen-entries 4294967295 is out of range: give 1 to 16777216",
		"profile --count-entries 5000000000":     "is not a number",
		"profile -F 4000000000":                  "kernel.perf_event_max_sample_rate",

		"convert":                            "give a file to convert",
		"report":                             "give a profile, or - for standard input",
		"view":                               "give a profile, or - for standard input",
		"diff":                               "give two profiles to compare",
		"profile -g":                         "unknown flag -g: stacks are always recorded; --unwind selects how they are found\n",
		"top --call-graph dwarf":             "unknown flag --call-graph: stacks are always recorded",
		"bolt -g":                            "unknown flag -g\n",
		"-o":                                 "unknown flag -o: a command comes first, as in fulgur profile -o\n",
		"-p 1 10":                            "unknown flag -p: a command comes first, as in fulgur profile -p 1 10\n",
		"--pid 1":                            "unknown flag --pid: a command comes first, as in fulgur profile --pid 1\n",
		"-y 1":                               "unknown flag -y\n",
		"1234":                               "1234 is not a command: to profile a process, give fulgur profile -p 1234\n",
		"./prog":                             "./prog is not a command: to profile a command, give fulgur profile -- ./prog\n",
		"sleep 1":                            "sleep is not a command: to profile a command, give fulgur profile -- sleep\n",
		"main.go":                            "main.go is not a command: to show a profile, give fulgur view main.go\n",
		"stat":                               "stat is not a command: fulgur count -e EVENT counts an event by stack\n",
		"script":                             "script is not a command: fulgur convert -o stacks.folded perf.data",
		"dump":                               "dump is not a command: fulgur profile --wall -p PID 1",
		"trace":                              "trace is not a command: fulgur record -e EVENT",
		"flamegraph":                         "flamegraph is not a command: fulgur profile -o flame.html 10",
		"profile -n":                         "unknown flag -n: native functions are always shown",
		"record --perf-map":                  "unknown flag --perf-map: perf maps and jitdump files of programs are always read\n",
		"top --nonblocking":                  "unknown flag --nonblocking: sampling never stops the program\n",
		"bolt --nonblocking":                 "unknown flag --nonblocking\n",
		"convert -n x":                       "unknown flag -n\n",
		"offcpu --duration 5":                "unknown flag --duration: the duration is an argument, as in fulgur offcpu 10\n",
		"convert --duration=5 x":             "unknown flag --duration\n",
		"bolt":                               "no binary given: use -p PID",
		"bolt --all-binaries":                "-o DIR",
		"bolt -p 1 0":                        "a duration of 0 measures nothing",
		"bolt --children":                    "--children needs -p or a command",
		"bolt -p 1 --branches x":             "--branches must be one of",
		"bolt --max-overhead 0":              "is not a percentage",
		"bolt --max-overhead nan":            "is not a percentage",
		"bolt --burst 20":                    "with a unit, like 20ms",
		"bolt --burst 2s":                    "from 1ms to 1s",
		"bolt -p 1 --branches stepping -f 9": "--frequency is only for sampling",
		"bolt -p 1 --branches stepping -e cycles":        "--event is only for sampling",
		"bolt -p 1 --branches hardware --burst 9ms":      "--burst is only for stepping",
		"bolt -p 1 --branches hardware --max-overhead 9": "--max-overhead is only for counting and stepping",
		"bolt -p 1 --basic --max-overhead 9":             "--max-overhead is only for counting and stepping",
		"bolt -p 1 --branches stepping --max-stall 9ms":  "--max-stall is only for counting",
		"bolt -p 1 --branches counting --burst 9ms":      "--burst is only for stepping",
		"bolt -p 1 --branches counting -e cycles":        "--event is only for sampling",
		"bolt --branches counting --all-binaries -o d":   "--branches counting is for one binary",
		"bolt -p 1 --basic --branches stepping":          "cannot be combined",
		"bolt -p 1 --basic --llvm 16":                    "only perf2bolt of LLVM 22 and newer",
		"bolt --all-binaries -o d --optimize a":          "cannot be combined",
		"bolt -p 1 --check 5m":                           "--check is only for --optimize",
		"bolt -p 1 --optimize a -o -":                    "reads the profile from a file",
		"convert -o a.preagg in":                         "--binary FILE, or --all-binaries",
		"convert -o a.svg --output=b.svg in":             "-o is given more than once",
		"profile -o a.svg 1 -o b.svg":                    "-o is given more than once",
		"convert in":                                     ", or choose a format with --format",
		"convert -o out.jpeg in":                         `unknown ending of "out.jpeg"`,
		"convert --format jpeg in":                       `unknown format "jpeg"`,
		"convert --binary b -o out.svg in":               "use a name ending in .preagg (BOLT), .afdo (AutoFDO) or .prof (AutoFDO), or choose a format with --format",
		"convert --value cpu -o a.preagg --binary b in":  "cannot have a chosen value",
		"autofdo":                      "no binary given: use -p PID",
		"autofdo -p 1 --format preagg": "--format must be one of",
		"autofdo -p 1 0":               "a duration of 0 measures nothing",
		"autofdo --all-binaries":       "-o DIR",
		"autofdo -p 1 --branches hardware --burst 9ms": "--burst is only for stepping",
		"diff a":                     "give a second profile, to compare with the first",
		"diff - -":                   "only one of the profiles",
		"diff a b c":                 `3 profiles are given: put "--" between`,
		"diff a --":                  `no profile follows "--"`,
		"diff --fail-above much a b": `"much" is not a percentage`,
		"diff --fail-function f a b": `"f" is not a function and a percentage`,
		"diff -n --per requests a b": "can't be used together",
		"diff -o d.pb.gz a b":        `a comparison cannot be written to "d.pb.gz"`,
		"diff --format jpeg a b":     "a comparison cannot be written as jpeg: choose text, md, json",
		"convert --binary b --all-binaries -o d in":       "can't be used together",
		"convert --all-binaries in":                       "-o DIR",
		"convert --all-binaries -o - in":                  "-o DIR",
		"convert --binary b --llvm 9 -o a.preagg in":      "--llvm 9: give 16 for LLVM 16 to 21, 22 for newer ones",
		"convert --basic --llvm 16 --all-binaries -o d i": "use --llvm 22",
		"convert --stats xml -o a.preagg in":              "--stats must be one of",
		"merge":                                           "give the profiles to merge",
	}
	for line, want := range tests {
		t.Run(line, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), words(line), &stdout, &stderr)
			if code != exitUsage {
				t.Errorf("got exit code %d, want %d", code, exitUsage)
			}
			if stdout.Len() > 0 {
				t.Errorf("got standard output %s, want none", &stdout)
			}
			if !strings.HasPrefix(stderr.String(), "fulgur: ") || !strings.Contains(stderr.String(), want) {
				t.Errorf("got message %q, want it to contain %q", &stderr, want)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	lines := map[string]string{"fulgur": "--help"}
	for _, c := range subcommands {
		if c.group != hiddenGroup {
			lines[c.name] = c.name + " --help"
		}
	}
	for name, line := range lines {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(t.Context(), words(line), &stdout, &stderr); code != 0 || stderr.Len() > 0 {
				t.Errorf("got exit code %d, standard error %q; want 0 and none", code, &stderr)
			}
			golden := filepath.Join("testdata", "help-"+name+".txt")
			if *update {
				if err := os.WriteFile(golden, stdout.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(string(want), stdout.String()); d != "" {
				t.Errorf("-update rewrites %s (-want +got):\n%s", golden, d)
			}
		})
	}
}

// An empty command line is an error, and prints the commands.
func TestNoCommand(t *testing.T) {
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), nil, &stdout, &stderr)
	if code != exitUsage || stdout.Len() > 0 || !strings.HasPrefix(stderr.String(), "Usage: fulgur <command>") {
		t.Errorf("got exit code %d, stdout %q, stderr %q; want the usage on stderr", code, stdout.String(), stderr.String())
	}
}

// "fulgur help" prints the same as --help.
func TestHelpCommand(t *testing.T) {
	for asked, same := range map[string]string{"help": "--help", "help offcpu": "offcpu --help"} {
		var got, want, stderr bytes.Buffer
		if code := run(t.Context(), words(asked), &got, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: got exit code %d, standard error %q; want 0 and none", asked, code, stderr.String())
		}
		if code := run(t.Context(), words(same), &want, &stderr); code != 0 || got.String() != want.String() || got.Len() == 0 {
			t.Errorf("%s: got exit code %d, %q, want %q", asked, code, got.String(), want.String())
		}
	}
}

func TestVersion(t *testing.T) {
	for _, asked := range []string{"version", "--version"} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), []string{asked}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
			t.Errorf("%s: got exit code %d, standard error %q; want 0 and none", asked, code, &stderr)
		}
		if !strings.HasPrefix(stdout.String(), "fulgur ") || strings.Count(stdout.String(), "\n") != 1 {
			t.Errorf("%s: got standard output %q, want a line with the version", asked, &stdout)
		}
	}

	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef"}
	modified := debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	tests := map[string]*debug.BuildInfo{
		"(devel)":            {},
		"v1.2.3":             {Main: debug.Module{Version: "v1.2.3"}, Settings: []debug.BuildSetting{revision}},
		"0123456789ab":       {Main: debug.Module{Version: "(devel)"}, Settings: []debug.BuildSetting{revision}},
		"0123456789ab+dirty": {Settings: []debug.BuildSetting{revision, modified}},
	}
	for want, info := range tests {
		if got := version(info); got != want {
			t.Errorf("got version %q, want %q", got, want)
		}
	}
}

func TestReport(t *testing.T) {
	_, notFound := target.Start([]string{"no-such-command"})
	tests := map[string]struct {
		code int
		err  error
		want int
		says string
	}{
		"success":        {0, nil, 0, ""},
		"command's code": {42, nil, 42, ""},
		"failure":        {1, errors.New("no luck"), 1, "fulgur: no luck\n"},
		"escapes":        {1, errors.Join(errors.New("/tmp/\x1b]0;x\a"), errors.New("more")), 1, "fulgur: /tmp/\\x1b]0;x\\a; more\n"},
		"usage":          {1, fmt.Errorf("%w: no sense", usage.Err), 2, "fulgur: usage: no sense\nSee fulgur profile --help.\n"},
		"no command":     {1, fmt.Errorf("launch: %w", notFound), 127, "fulgur: launch: no-such-command: command not found\n"},
		"no branches":    {1, fmt.Errorf("sampling branches: %w", branches.ErrNoHardware), 1, "fulgur: sampling branches: no branch recording hardware\nRun fulgur doctor to see what works on this machine.\n"},
		"a thread":       {1, target.ThreadError{TID: 8, PID: 7}, 1, "fulgur: 8 is a thread of process 7, not a process: profile its process with -p 7, or only the thread with fulgur profile -L 8\n"},
		"reader left":    {1, &os.PathError{Op: "write", Path: "/dev/fd/63", Err: syscall.EPIPE}, 1, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			if got := reportError(&stderr, words("profile 10"), test.code, test.err); got != test.want {
				t.Errorf("got exit code %d, want %d", got, test.want)
			}
			if got := stderr.String(); got != test.says {
				t.Errorf("got %q, want %q", got, test.says)
			}
		})
	}
}

// panicking is a stream that panics when used.
type panicking struct{}

func (panicking) Write([]byte) (int, error) { panic("unforeseen") }

func TestBugIsReported(t *testing.T) {
	var stderr bytes.Buffer
	if code := run(t.Context(), []string{"version"}, panicking{}, &stderr); code != exitFailed {
		t.Errorf("got exit code %d, want %d", code, exitFailed)
	}
	if got := stderr.String(); !strings.HasPrefix(got, "fulgur: internal error: unforeseen\nPlease report this bug") {
		t.Errorf("got %q, want an internal error", got)
	}
}

// TestAgentOwners checks that an agent finds the containers, pods and units of processes,
// since the file format does not ask for them as it does in other commands.
func TestAgentOwners(t *testing.T) {
	o, err := loadAgent(environment{args: []string{"agent"}, stdout: t.Output(), stderr: t.Output()})
	if err != nil {
		t.Fatal(err)
	}
	if !o.Measure.Owners {
		t.Error("got an agent that does not look up owners")
	}
}

// Commands that only read files drop the capabilities of fulgur's file.
func TestUsesCapabilities(t *testing.T) {
	for c, want := range map[command]bool{
		&profileCommand{}: true, &boltCommand{}: true, &doctorCommand{}: true, &completeCommand{}: true,
		&convertCommand{}: false, &viewCommand{}: false, &stepperCommand{}: false,
	} {
		if got := usesCapabilities(c); got != want {
			t.Errorf("%T: got %v, want %v", c, got, want)
		}
	}
}
