package browser

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/png"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	pprof "github.com/google/pprof/profile"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
)

// stacksOf returns the sums of the values of p by task, CPU and names of the stack.
func stacksOf(p *profile.Profile) map[string][]int64 {
	sums := map[string][]int64{}
	for _, s := range p.Samples {
		task := p.Tasks[s.Task]
		group := strings.Replace(p.Group(s.Task), "[unknown ", "[no ", 1)
		key := fmt.Sprintf("%s %d/%d group %q CPU %d", task.Comm, task.PID, task.TID, group, s.CPU)
		for _, f := range p.AppendFrames(nil, s.Stack) {
			key += "\n" + p.FrameName(f)
		}
		if sums[key] == nil {
			sums[key] = make([]int64, len(s.Values))
		}
		for i, v := range s.Values {
			sums[key][i] += v
		}
	}
	return sums
}

// readBack reads a page or a file that it saved like fulgur convert.
func readBack(t *testing.T, file []byte) *profile.Profile {
	t.Helper()
	p, _, err := decode.Read(t.Context(), bytes.NewReader(file), "file")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The page saves profiles that pprof and fulgur read, with the samples of the page.
func TestSavePprof(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(), "hostile": encodetest.Hostile(), "threads": encodetest.Threads(), "empty": encodetest.Empty(),
		"owners": encodetest.Owners(), "large": encodetest.Large(3000),
	} {
		t.Run(name, func(t *testing.T) {
			c := newTab(t)
			openFlame(c, p, flame.Options{})
			file := []byte(c.downloads()("#save-pprof"))
			judge, err := pprof.ParseData(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := judge.CheckValid(); err != nil {
				t.Error(err)
			}
			totals := make([]int64, len(p.ValueTypes))
			for _, s := range judge.Sample {
				for i, v := range s.Value {
					totals[i] += v
				}
			}
			for i, v := range p.ValueTypes {
				if judge.SampleType[i].Type != v.Type || judge.SampleType[i].Unit != v.Unit || totals[i] != p.Total(i) {
					t.Errorf("value %d: pprof reads %d of %+v, want %d of %v", i, totals[i], judge.SampleType[i], p.Total(i), v)
				}
			}
			if name == "empty" || name == "hostile" { // fulgur gives its nameless process the name of a file
				return
			}
			// The page itself, read by fulgur, has what the page can save. pprof has no place for
			// owners that are unknown.
			var page bytes.Buffer
			if err := flame.WriteHTML(&page, p, flame.Options{}); err != nil {
				t.Fatal(err)
			}
			want, got := readBack(t, page.Bytes()), readBack(t, file)
			if diff := cmp.Diff(stacksOf(want), stacksOf(got)); diff != "" {
				t.Errorf("stacks (-page +saved):\n%s", diff)
			}
			if diff := cmp.Diff(want.Meta, got.Meta, cmpopts.IgnoreFields(profile.Meta{}, "Value", "ValueGuessed")); diff != "" {
				t.Errorf("description (-page +saved):\n%s", diff)
			}
			if want.Losses != got.Losses {
				t.Errorf("losses = %v, want %v", got.Losses, want.Losses)
			}
			expectClean(c)
		})
	}
}

// Numbers of any size are written as pprof reads them.
func TestSaveNumbers(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	values := []int64{0, 1, 127, 128, 300, 1<<31 - 1, 1 << 31, 1 << 32, 1<<53 - 1, -1, -128, -(1<<53 - 1)}
	text, _ := json.Marshal(values)
	var file []byte
	c.eval(pageScript(c)(fmt.Sprintf(`load().then(async (data) => {
		const values = %s;
		const out = { ...data, values: values.map((_, i) => ({ type: "v" + i, unit: "count" })), builds: { "/bin/x": "<b>" }, meta: { start: "2026-01-02T03:04:05Z", seconds: 1.5 } };
		out.samples = { ...data.samples, values: values.map((v) => new Float64Array(data.samples.count).fill(0).map((_, s) => s === 0 ? v : 0)) };
		return btoa(String.fromCharCode(...pprof(out, new Names(data), { keeps: taskFilter(data, ""), value: 2 })));
	})`, text)), &file)
	p, err := pprof.ParseUncompressed(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Sample) != 1 || !cmp.Equal(p.Sample[0].Value, values) {
		t.Errorf("samples = %+v, want one with %d", p.Sample, values)
	}
	if p.DefaultSampleType != "v2" || p.DurationNanos != 1.5e9 || p.TimeNanos != 1767323045e9 {
		t.Errorf("default %q, duration %d, time %d; want those of the page", p.DefaultSampleType, p.DurationNanos, p.TimeNanos)
	}
	for _, m := range p.Mapping {
		if strings.HasPrefix(m.File, "/") && m.Limit != math.MaxUint64 {
			t.Errorf("%s covers addresses up to %#x, want all", m.File, m.Limit)
		}
	}
}

// What is saved has what is shown: after filters, of a process, in a part of the run.
func TestSaveShown(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	save := c.downloads()
	for hash, want := range map[string]int64{
		"": 100, "task=c.server": 77, "filter=focus:peek": 30, "filter=ignore:peek&task=p.4242": 43, "filter=focus:nothing": 0,
	} {
		c.goTo(hash)
		judge, err := pprof.ParseData([]byte(save("#save-pprof")))
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, s := range judge.Sample {
			total += s.Value[0]
		}
		if total != want {
			t.Errorf("%s: pprof reads %d samples, want %d", hash, total, want)
		}
		var file struct {
			Schema   string `json:"$schema"`
			Profiles []struct {
				Type, Name, Unit string
				EndValue         int64
				Samples          [][]int
				Weights          []int64
			}
			Shared struct{ Frames []struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(save("#save-json")), &file); err != nil {
			t.Fatal(err)
		}
		folded := map[string]int64{}
		total = 0
		for i, stack := range file.Profiles[0].Samples {
			var names []string
			for _, f := range stack {
				names = append(names, strings.ReplaceAll(file.Shared.Frames[f].Name, ";", ":"))
			}
			folded[strings.Join(names, ";")] += file.Profiles[0].Weights[i]
			total += file.Profiles[0].Weights[i]
		}
		if diff := cmp.Diff(parseFolded(t, save("#save-folded")), folded); diff != "" || total != want || file.Profiles[0].EndValue != want {
			t.Errorf("%s: speedscope's file has %d samples of %d, want %d (-folded +file):\n%s", hash, total, file.Profiles[0].EndValue, want, diff)
		}
		if file.Schema != "https://www.speedscope.app/file-format-schema.json" || len(file.Profiles) != 2 || file.Profiles[1].Unit != "nanoseconds" {
			t.Errorf("%s: file = %+v, want a profile for each value", hash, file)
		}
	}
	line := twoThreads(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	c.goTo("time=1000-2000&filter=focus:sort")
	judge, err := pprof.ParseData([]byte(save("#save-pprof")))
	if err != nil {
		t.Fatal(err)
	}
	if len(judge.Sample) != 1 || judge.Sample[0].Value[1] != 1e9 || judge.Sample[0].Location[0].Line[0].Function.Name != "sort" {
		t.Errorf("samples of a second = %+v, want one of sort with 1 s of CPU time", judge.Sample)
	}
	expectClean(c)
}

// A picture has all rows of what is shown, whatever of it the window shows.
func TestSavePNG(t *testing.T) {
	c := newTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	save := c.downloads()
	heights := map[string]int{}
	for _, view := range []string{"flame", "callers", "sandwich", "table"} {
		for _, height := range []int{300, 700} {
			c.resize(1280, height, 1)
			c.goTo("view=" + view)
			picture, err := png.Decode(strings.NewReader(save("#save-png")))
			if err != nil {
				t.Fatal(err)
			}
			size := picture.Bounds()
			if old, ok := heights[view]; ok && old != size.Dy() || size.Dy() < 2*9*rowHeight || size.Dx() < 1900 {
				t.Errorf("%s in a window of %d pixels: the picture has %v pixels, before %d", view, height, size.Max, old)
			}
			heights[view] = size.Dy()
			colors := map[[3]uint32]bool{}
			for x := 20; x < size.Dx(); x += 7 {
				for y := 100; y < size.Dy(); y += 5 {
					r, g, b, a := picture.At(x, y).RGBA()
					colors[[3]uint32{r >> 8, g >> 8, b >> 8}] = true
					if a != 0xffff {
						t.Fatalf("%s: the picture is transparent at %d, %d", view, x, y)
					}
				}
			}
			if len(colors) < 5 {
				t.Errorf("%s: the picture has %d colors, want those of boxes", view, len(colors))
			}
		}
	}
	expectClean(c)
}

// The window around a picture is as dark as the picture itself.
func TestPictureGround(t *testing.T) {
	c, chromium := newChromiumTab(t)
	c.resize(1280, 720, 1)
	chromium.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": "dark"}},
	}, nil)
	openFlame(c, encodetest.Typical(), flame.Options{})
	saved := c.downloads()("#save-svg")
	var written bytes.Buffer
	if err := flame.WriteSVG(&written, encodetest.Typical(), flame.Options{Width: 600}); err != nil {
		t.Fatal(err)
	}
	for name, file := range map[string][]byte{"saved": []byte(saved), "written": written.Bytes()} {
		path := filepath.Join(t.TempDir(), name+".svg")
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
		c.open("file://" + path)
		picture, err := png.Decode(bytes.NewReader(c.screenshot()))
		if err != nil {
			t.Fatal(err)
		}
		size := picture.Bounds().Max
		r, g, b, _ := picture.At(size.X-2, size.Y-2).RGBA()
		if r>>8 > 40 || g>>8 > 40 || b>>8 > 40 {
			t.Errorf("%s: the window around a dark picture has the color %d, %d, %d", name, r>>8, g>>8, b>>8)
		}
	}
	expectClean(c)
}
