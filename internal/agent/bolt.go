package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"fulgur/internal/branches"
	"fulgur/internal/capture/target"
	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// Bolt configures branch profiles of programs. The zero value makes none.
type Bolt struct {
	// Programs are the absolute paths of executables, as their processes see them.
	Programs []string
	// Dir is the directory for the profiles, and DirSize the limit of their sizes in bytes.
	Dir     string
	DirSize int64
	// In each period of Every, there is a window of the length Window for each program, at
	// a random time.
	Every, Window time.Duration
	// LLVM is the version to write for; see [branches.ProfileOptions].
	LLVM string
}

// Check rejects options that make no profile.
func (b Bolt) Check() error {
	if len(b.Programs) == 0 && b.Dir == "" {
		return nil
	}
	if len(b.Programs) == 0 || b.Dir == "" {
		return usage.Errorf("branch profiles need programs and a directory: choose both %s and %s", usage.Bolt, usage.BoltDir)
	}
	for _, p := range b.Programs {
		if !filepath.IsAbs(p) || filepath.Clean(p) != p {
			return usage.Errorf("%s %s: give the absolute path of the program, as in ls -l /proc/PID/exe", usage.Bolt, p)
		}
	}
	if b.Window < time.Second || b.Every < b.Window*time.Duration(len(b.Programs)) {
		return usage.Errorf("%s must be at least 1 second, and the windows of all programs must fit into %s", usage.BoltWindow, usage.BoltEvery)
	}
	return boltDir{path: b.Dir}.open()
}

// maxRoots limits the processes of a window that are named one by one. Their descendants
// belong to it, too.
const maxRoots = 64

// errIdle means that no process runs the program.
var errIdle = errors.New("the program does not run")

// bolter makes branch profiles for as long as the agent runs.
type bolter struct {
	options func() Bolt
	warn    func(string)
	collect func(context.Context, branches.Options) (branches.Collected, error)
	changed chan struct{} // receives when there are new options

	mu      sync.Mutex
	state   boltState
	printed map[string]bool // messages
}

// boltState is the state that the metrics show.
type boltState struct {
	// added counts windows that were added to a profile, and failed windows that failed. In
	// idle windows, no process ran the program, or nothing was sampled.
	added, idle, failed uint64
	samples             uint64
	files, bytes        int64
	removed             uint64 // old files
	stall               time.Duration
}

func newBolter(options func() Bolt, warn func(string)) *bolter {
	return &bolter{options: options, warn: warn, collect: branches.Collect, changed: make(chan struct{}, 1)}
}

// use notes that there are new options.
func (b *bolter) use() {
	select {
	case b.changed <- struct{}{}:
	default: // noted before
	}
}

// run makes profiles until ctx is done.
func (b *bolter) run(ctx context.Context) {
	for ctx.Err() == nil {
		o := b.options()
		if len(o.Programs) > 0 {
			b.period(ctx, o)
			continue
		}
		select {
		case <-ctx.Done():
		case <-b.changed:
		}
	}
}

// period takes the windows of a period. New options and the end of ctx end it early.
func (b *bolter) period(ctx context.Context, o Bolt) {
	begin := time.Now()
	for _, w := range plan(o, rand.Int64N) {
		if !b.sleep(ctx, time.Until(begin.Add(w.after))) {
			return
		}
		b.window(ctx, o, w.program)
	}
	b.sleep(ctx, time.Until(begin.Add(o.Every)))
}

// sleep waits for d. It returns false when ctx is done or there are new options.
func (b *bolter) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-b.changed:
	case <-t.C:
		return true
	}
	return false
}

// planned is a window that begins some time after its period.
type planned struct {
	program string
	after   time.Duration
}

// plan plans a period: a window for each program, in a random order at random times. They
// do not overlap. random returns a random number below its argument.
func plan(o Bolt, random func(int64) int64) []planned {
	// First choose starts as if windows had no length, independently. Then move each window
	// by the lengths of the earlier ones.
	spare := o.Every - o.Window*time.Duration(len(o.Programs))
	var windows []planned
	for _, p := range o.Programs {
		windows = append(windows, planned{p, time.Duration(random(int64(spare) + 1))})
	}
	slices.SortStableFunc(windows, func(a, b planned) int { return int(max(min(a.after-b.after, 1), -1)) })
	for i := range windows {
		windows[i].after += time.Duration(i) * o.Window
	}
	return windows
}

// window profiles a program.
func (b *bolter) window(ctx context.Context, o Bolt, program string) {
	dir := boltDir{o.Dir, o.DirSize}
	c, err := b.profile(ctx, o, dir, program)
	b.mu.Lock()
	defer b.mu.Unlock()
	s := &b.state
	switch {
	case ctx.Err() != nil && err != nil:
		return
	case errors.Is(err, errIdle):
		s.idle++
	case err != nil:
		s.failed++
		b.printOnce(fmt.Sprintf("no branch profile of %s: %s", plain.Terminal(program), plain.Error(err)))
	default:
		s.added++
		s.samples += c.Samples
		s.stall = max(s.stall, c.LongestStall)
	}
}

// profile takes a window of the program, and adds it to its profile.
func (b *bolter) profile(ctx context.Context, o Bolt, dir boltDir, program string) (branches.Collected, error) {
	roots, err := running(program)
	if err != nil {
		return branches.Collected{}, err
	}
	if err := errors.Join(dir.open(), dir.clear()); err != nil {
		return branches.Collected{}, err
	}
	c, err := b.collect(ctx, branches.Options{
		Target:         target.Target{Scope: target.Processes, PIDs: roots, Children: true},
		Duration:       o.Window,
		Output:         dir.window(),
		ProfileOptions: branches.ProfileOptions{LLVM: o.LLVM},
	})
	if err != nil {
		return c, err
	}
	if c.Profile == "" {
		return c, errors.Join(errIdle, dir.clear())
	}
	path, fresh, removed, err := dir.add(ctx, c, time.Now())
	b.mu.Lock()
	defer b.mu.Unlock()
	b.state.removed += uint64(removed)
	if names, size, statErr := dir.files(); statErr == nil {
		b.state.files, b.state.bytes = int64(len(names)), size
	}
	if fresh {
		b.printOnce("branch profile: " + plain.Terminal(path))
	}
	return c, err
}

// maxPrinted limits the messages that are remembered.
const maxPrinted = 1000

// printOnce prints a message that was not printed before: the same message may come up in every period.
func (b *bolter) printOnce(text string) {
	if b.printed[text] || len(b.printed) >= maxPrinted {
		return
	}
	if b.printed == nil {
		b.printed = map[string]bool{}
	}
	b.printed[text] = true
	b.warn(text)
}

// running returns processes that run the program at path: at most maxRoots, all of one file,
// and none that descends from another. While a new build replaces an old one, it chooses one
// of the two files at random.
func running(path string) ([]int, error) {
	pids, err := procfs.Processes()
	if err != nil {
		return nil, err
	}
	var files []os.FileInfo
	found := map[int]int{} // the index of its file by process
	for _, pid := range pids {
		name, err := procfs.Readlink(pid, "exe")
		if err != nil || strings.TrimSuffix(name, " (deleted)") != path || pid == os.Getpid() {
			continue
		}
		info, err := safeopen.StatTrusted(procfs.Program(pid), toReadProgram)
		if err != nil {
			continue // it has exited, or its file system does not respond
		}
		found[pid] = slices.IndexFunc(files, func(f os.FileInfo) bool { return safeopen.Same(f, info) })
		if found[pid] < 0 {
			found[pid], files = len(files), append(files, info)
		}
	}
	if len(found) == 0 {
		return nil, errIdle
	}
	return roots(found, func(pid int) int {
		s, err := procfs.Process(pid).Stat()
		if err != nil {
			return 0
		}
		return s.Parent
	}), nil
}

// toReadProgram are the capabilities to read the program of another user's process.
var toReadProgram = capability.SetOf(capability.SysPtrace, capability.DACReadSearch)

// roots returns the processes of one file whose parent runs another one: at most maxRoots of
// a random file. The file of each process is found[PID].
func roots(found map[int]int, parent func(int) int) []int {
	byFile := map[int][]int{}
	for pid, file := range found {
		if above, ok := found[parent(pid)]; !ok || above != file {
			byFile[file] = append(byFile[file], pid)
		}
	}
	files := slices.Collect(maps.Keys(byFile))
	if len(files) == 0 {
		return nil
	}
	pids := byFile[files[rand.IntN(len(files))]]
	rand.Shuffle(len(pids), func(i, j int) { pids[i], pids[j] = pids[j], pids[i] })
	return pids[:min(len(pids), maxRoots)]
}

// metrics writes the state.
func (b *bolter) metrics(family func(name, kind, help string), one func(name, kind, help string, value any), line func(string, ...any)) {
	if len(b.options().Programs) == 0 {
		return
	}
	b.mu.Lock()
	s := b.state
	b.mu.Unlock()
	family("fulgur_bolt_windows_total", "counter", "Windows for branch profiles, by result.")
	line("fulgur_bolt_windows_total{result=\"added\"} %d\n", s.added)
	line("fulgur_bolt_windows_total{result=\"failed\"} %d\n", s.failed)
	line("fulgur_bolt_windows_total{result=\"idle\"} %d\n", s.idle)
	one("fulgur_bolt_samples_total", "counter", "Samples for branch profiles.", s.samples)
	one("fulgur_bolt_files", "gauge", "Branch profiles in the directory.", s.files)
	one("fulgur_bolt_bytes", "gauge", "Bytes of branch profiles in the directory.", s.bytes)
	one("fulgur_bolt_removed_files_total", "counter", "Branch profiles that were removed to make room.", s.removed)
	one("fulgur_bolt_longest_stall_seconds", "gauge", "The longest time that counting jumps stalled a thread.", s.stall.Seconds())
}

// waitAtEnd is the maximum wait for the end of a window when the agent ends.
const waitAtEnd = 5 * time.Second

// startBolter starts the branch profiles. The returned function ends them.
func (a *Agent) startBolter(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.bolter.run(ctx)
	}()
	return func() {
		cancel()
		select {
		case <-done:
		case <-time.After(waitAtEnd): // files appear complete or not at all
		}
	}
}
