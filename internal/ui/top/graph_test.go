package top

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/ui/terminal"
)

// selves returns the self values of a graph by the names from the process to the box.
func selves(g *graph) map[string]int64 {
	sums := map[string]int64{}
	for id, n := range g.nodes {
		var names []string
		for _, at := range g.path(id)[1:] {
			names = append(names, g.nodes[at].name+" "+g.nodes[at].module)
		}
		if n.self != 0 {
			sums[strings.Join(names, ";")] += n.self
		}
	}
	return sums
}

// A graph of several windows has the sums of their samples, and every box the sum of its
// callees and itself.
func TestGraph(t *testing.T) {
	profiles := []*profile.Profile{encodetest.Typical(), encodetest.Threads(), encodetest.Hostile(), encodetest.Large(300), encodetest.Typical()}
	want, only := map[string]int64{}, 0
	var windows []*window
	for _, p := range profiles {
		w := newWindow(p, false)
		windows = append(windows, w)
		for _, s := range p.Samples {
			names := []string{commOf(p, s) + " "}
			for _, f := range slices.Backward(p.AppendFrames(nil, s.Stack)) {
				names = append(names, w.functions[f].name+" "+w.functions[f].module)
			}
			if s.Values[0] != 0 {
				want[strings.Join(names, ";")] += s.Values[0]
			}
			only = p.Tasks[s.Task].PID
		}
	}
	g := tables{windows: windows}.graph()
	if diff := cmp.Diff(want, selves(g)); diff != "" {
		t.Errorf("-samples +graph:\n%s", diff)
	}
	for id, n := range g.nodes {
		sum := n.self
		for _, c := range n.children {
			sum += g.nodes[c].total
			if g.nodes[c].parent != id {
				t.Errorf("box %d has callee %d of %d", id, c, g.nodes[c].parent)
			}
		}
		if sum != n.total {
			t.Errorf("box %d: got total %d, want %d", id, n.total, sum)
		}
	}
	part := tables{windows, process{pid: only}}
	if got, want := part.graph().nodes[0].total, part.whole(); got != want || got == g.nodes[0].total {
		t.Errorf("of process %d: got %d, want %d", only, got, want)
	}
}

func commOf(p *profile.Profile, s profile.Sample) string {
	return plain.Terminal(p.Tasks[s.Task].Comm)
}

// Boxes lie within their callers', do not overlap, and their widths follow their shares.
func TestLayout(t *testing.T) {
	g := tables{windows: []*window{newWindow(encodetest.Large(2000), false)}}.graph()
	for _, width := range []int{1, 7, 60, 250} {
		for zoomed := 0; zoomed < len(g.nodes); zoomed += 37 {
			at := map[int]box{}
			for _, row := range g.layout(zoomed, width) {
				end := 0
				for _, b := range row {
					n := g.nodes[b.node]
					if caller, ok := at[n.parent]; ok && n.depth > 0 && (b.from < caller.from || b.to > caller.to) || b.from < end || b.to <= b.from || b.to > width {
						t.Fatalf("width %d: box %+v of caller %+v after column %d", width, b, at[n.parent], end)
					}
					whole := float64(max(g.nodes[zoomed].total, 1))
					if exact := float64(n.total) / whole * float64(width); n.depth > g.nodes[zoomed].depth && (float64(b.to-b.from) > exact+1 || float64(b.to-b.from) < exact-1) {
						t.Fatalf("width %d: box %+v of %.2f columns", width, b, exact)
					}
					at[b.node], end = b, b.to
				}
			}
			if b := at[zoomed]; b.from != 0 || b.to != width {
				t.Fatalf("got %+v zoomed into %d, want the whole width %d", b, zoomed, width)
			}
		}
	}
}

// The selection and the zoom survive new windows as far as their functions are in them.
func TestFlameStays(t *testing.T) {
	s := newState(encodetest.Typical())
	press(s, 'f')
	lay(s)
	press(s, terminal.Down, terminal.Down, terminal.Down, terminal.Enter, terminal.Down)
	name := s.flame.nodes[s.flame.selected].name
	if !strings.HasPrefix(name, "http::Server") || s.flame.nodes[s.flame.zoomed].name != "main" {
		t.Fatalf("got %q selected, want the widest callee of main", name)
	}
	s.add(encodetest.Threads())
	if f := &s.flame; f.nodes[f.selected].name != name || f.nodes[f.zoomed].name != "main" {
		t.Errorf("got %q selected in %q, want %q in main", f.nodes[f.selected].name, f.nodes[f.zoomed].name, name)
	}
	for range 3 {
		s.add(encodetest.Empty())
	}
	if f := &s.flame; f.selected != 0 || f.zoomed != 0 {
		t.Errorf("got %d selected in %d, want the root", f.selected, f.zoomed)
	}
	lay(s)
	press(s, terminal.Up, terminal.Left, terminal.Down, terminal.Enter, 'n', 'N')
}

// The color of a box is its kind's, and a search colors its matches.
func TestColors(t *testing.T) {
	s := newState(encodetest.Typical())
	s.Colored = true
	press(s, 'f')
	write(s, "/main")
	seen := map[uint8]bool{}
	for _, l := range s.render(100, 24) {
		for _, span := range l.Spans {
			seen[span.Background] = true
			if strings.HasPrefix(span.Text, "main") && !slices.Contains(foundColors[:], span.Background) {
				t.Errorf("got color %d for main, want a match's", span.Background)
			}
			if strings.HasPrefix(span.Text, "vfs_write") && !slices.Contains(boxColors[kernelBox][:], span.Background) {
				t.Errorf("got color %d for vfs_write, want the kernel's", span.Background)
			}
		}
	}
	if len(seen) < 6 {
		t.Errorf("got colors %v, want colors of several kinds", seen)
	}
}

// A whole profile begins with its flame graph, and says how long it took if that is known.
func TestWhole(t *testing.T) {
	p := *encodetest.Typical()
	for duration, want := range map[time.Duration]string{10 * time.Second: "fulgur: x.pb.gz, 100 samples in 10.0 s", 0: "fulgur: x.pb.gz, 100 samples"} {
		p.Meta.Duration = duration
		s := newScreen(Options{Title: "x.pb.gz", Windows: 1, Whole: true})
		if empty := screen(s, 100, 24); !strings.Contains(empty, "flame graph") {
			t.Errorf("got %s before the profile", empty)
		}
		s.add(&p)
		lines := strings.Split(screen(s, 100, 24), "\n")
		if lines[0] != "* "+want || !strings.Contains(lines[3], "<all ") {
			t.Errorf("got %q, want %q and the root", lines[:4], want)
		}
	}
}
