package browser

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
)

// manyStacks returns a profile of n distinct stacks of 20 processes: random walks from
// main through a program of 5000 functions. Each function calls up to six others, the
// first one most often. Every call returns the same profile.
func manyStacks(n int) *profile.Profile {
	const processes, functions, calls = 20, 5000, 6
	b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"}, profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	random := rand.New(rand.NewPCG(1, 2))
	frames := make([]profile.FrameID, functions)
	callees := make([][calls]int, functions)
	for i := range frames {
		m := b.Mapping(profile.Mapping{Path: fmt.Sprintf("/usr/lib/libexample%d.so", i%40)})
		name := fmt.Sprintf("example::component%d::Handler<int>::operation%d(int, char const*)", i%97, i)
		frames[i] = b.Frame(profile.Frame{
			Function: b.Function(profile.Function{Name: name, File: fmt.Sprintf("/src/component%d.cc", i%97), StartLine: i}),
			Mapping:  m, Address: uint64(i) << 8, Inlined: i%5 == 0,
		})
		for c := range callees[i] {
			callees[i][c] = random.IntN(functions)
		}
	}
	type place struct {
		stack profile.StackID
		task  int
	}
	seen := map[place]bool{}
	for len(seen) < n {
		task := random.IntN(processes) * random.IntN(processes) / processes
		f := task
		s := b.Push(0, frames[f])
		for depth := 1; depth < 12 || random.IntN(14) > 0; depth++ {
			c := 0
			for c < calls-1 && random.IntN(3) == 0 {
				c++
			}
			f = callees[f][c]
			s = b.Push(s, frames[f])
		}
		seen[place{s, task}] = true
		b.Add(profile.Sample{
			Stack: s, Task: b.Task(profile.Task{PID: 100 + task, Comm: fmt.Sprintf("process%d", task)}),
			CPU: -1, Values: []int64{1, 10_101_010},
		})
	}
	return b.Profile(profile.Meta{Command: "a million stacks"}, profile.Losses{})
}

// BenchmarkMillionStacks opens a page of a million distinct stacks and uses it like a
// person, in a window of 1280 by 800 pixels. Times are in ms, until the page has drawn
// the result, and include the load of other programs. cpu-ms is the CPU time of the
// page's thread to open it.
//
//	open     from the address to the graph
//	hover    the pointer moves to another box
//	zoom     a click on a process, and back
//	search   a letter is typed
//	callers  the view by callers, for the first time
//	sandwich the view of the hottest function, for the first time
//	table    the table, for the first time
//	filter   another process is chosen
//	hide     functions are hidden
//	recursion  recursion is collapsed
//
// MB is the size of the file.
func BenchmarkMillionStacks(b *testing.B) {
	path, size := pageOfStacks(b, 1_000_000)
	var cpu time.Duration // to open the page
	times := map[string]time.Duration{}
	for b.Loop() {
		c, chromium := newChromiumTab(b)
		chromium.call("Performance.enable", nil, nil)
		timed := func(name string, act func()) {
			start := time.Now()
			act()
			c.eval(`new Promise((drawn) => requestAnimationFrame(() => setTimeout(() => drawn(0))))`, new(int))
			times[name] += time.Since(start)
		}
		timed("open", func() {
			c.open("file://" + path)
			c.until(`document.documentElement?.dataset.ready`)
		})
		cpu += chromium.threadTime()
		c.picture("million")
		timed("hover", func() { c.point(boxAt(c, 0.5, 1)) })
		timed("zoom", func() { c.click(boxAt(c, 0.005, 1)) })
		c.picture("million-zoomed")
		timed("zoom", func() { c.press("Escape", "Escape") })
		c.press("/")
		timed("search", func() { c.press("7") })
		c.press("Escape")
		timed("callers", func() { c.press("b") })
		c.picture("million-callers")
		timed("sandwich", func() { c.press("s") })
		timed("table", func() { c.press("t") })
		c.press("f")
		timed("filter", func() { pick(c, "#task", "c.process7") })
		pick(c, "#task", "")
		timed("hide", func() { c.eval(`(location.hash = "filter=hide:operation7", 0)`, new(int)) })
		timed("recursion", func() { c.eval(`(location.hash = "filter=recursion", 0)`, new(int)) })
		expectClean(c)
	}
	for name, d := range times {
		b.ReportMetric(float64(d.Milliseconds())/float64(b.N), name+"-ms")
	}
	b.ReportMetric(float64(cpu.Milliseconds())/float64(b.N), "cpu-ms")
	b.ReportMetric(float64(size)/1e6, "MB")
	b.ReportMetric(0, "ns/op")
}

// pageOfStacks writes a page with n distinct stacks, and returns its path and size in bytes.
func pageOfStacks(b *testing.B, n int) (path string, size int64) {
	b.Helper()
	path = filepath.Join(b.TempDir(), "flame.html")
	file, err := os.Create(path)
	if err != nil {
		b.Fatal(err)
	}
	if err := flame.WriteHTML(file, manyStacks(n), flame.Options{}); err != nil {
		b.Fatal(err)
	}
	if size, err = file.Seek(0, 1); err != nil {
		b.Fatal(err)
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	return path, size
}

// BenchmarkOpenStacks opens pages of 20 and of 150 000 distinct stacks in turn. Times are in ms:
// open-ms until the page has drawn the graph, which includes the load of other programs, and
// cpu-ms the CPU time of the page's thread. small-… is the small page.
func BenchmarkOpenStacks(b *testing.B) {
	small, _ := pageOfStacks(b, 20)
	large, size := pageOfStacks(b, 150_000)
	sums := map[string]time.Duration{}
	for b.Loop() {
		for _, page := range []struct{ prefix, path string }{{"small-", small}, {"", large}} {
			c, chromium := newChromiumTab(b)
			chromium.call("Performance.enable", nil, nil)
			start := time.Now()
			c.open("file://" + page.path)
			c.until(`document.documentElement?.dataset.ready`)
			c.eval(`new Promise((drawn) => requestAnimationFrame(() => setTimeout(() => drawn(0))))`, new(int))
			sums[page.prefix+"open-ms"] += time.Since(start)
			sums[page.prefix+"cpu-ms"] += chromium.threadTime()
			expectClean(c)
			chromium.close()
		}
	}
	for name, d := range sums {
		b.ReportMetric(float64(d.Milliseconds())/float64(b.N), name)
	}
	b.ReportMetric(float64(size)/1e6, "MB")
	b.ReportMetric(0, "ns/op")
}

// threadTime returns the CPU time of the page's thread so far.
func (d *devtools) threadTime() time.Duration {
	d.t.Helper()
	var m struct {
		Metrics []struct {
			Name  string
			Value float64 // seconds
		}
	}
	d.call("Performance.getMetrics", nil, &m)
	for _, metric := range m.Metrics {
		if metric.Name == "ThreadTime" {
			return time.Duration(metric.Value * float64(time.Second))
		}
	}
	d.t.Fatal("the browser has no metric ThreadTime")
	return 0
}
