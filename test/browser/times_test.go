package browser

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/timeline"
)

// takenAt is a sample of a recording: its milliseconds, and its stack's number.
type takenAt struct{ ms, stack int }

// recorded returns a recording of a process with samples of 10 ms, and their stacks as
// in folded text.
func recorded(t *testing.T, samples []takenAt) (line *profile.Timeline, folded func(keep func(ms int) bool) map[string]int64) {
	t.Helper()
	const start = int64(7_000_000_000)
	p, stacks := encodetest.TypicalStacks()
	p.Tasks, p.Samples = nil, nil
	r, err := timeline.NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	process := r.Process(42, start)
	r.NameProcess(process, start, "tar")
	main := r.Thread(process, 42, start)
	r.NameThread(main, start, "tar")
	end := 0
	for _, s := range samples {
		if err := r.AddOnCPU(main, profile.OnCPU{
			Time: start + int64(s.ms)*int64(time.Millisecond), Stack: stacks[1+s.stack%(len(stacks)-1)], Weight: int64(10 * time.Millisecond),
		}); err != nil {
			t.Fatal(err)
		}
		end = max(end, s.ms)
	}
	line, err = r.Timeline(p, start+int64(end+1)*int64(time.Millisecond), func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	return line, func(keep func(int) bool) map[string]int64 {
		sums := map[string]int64{}
		for _, s := range samples {
			if !keep(s.ms) {
				continue
			}
			names := []string{}
			for _, f := range p.AppendFrames(nil, stacks[1+s.stack%(len(stacks)-1)]) {
				names = append([]string{p.FrameName(f)}, names...)
			}
			sums["tar;"+strings.Join(names, ";")]++
		}
		return sums
	}
}

// The heat map selects a part of the run with the pointer, with keys and in the address:
// all views and exports then have the samples of that part.
func TestTimes(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var samples []takenAt
	for ms := 0; ms < 7500; ms += 10 {
		if ms/1000 != 3 { // idle in the fourth second
			samples = append(samples, takenAt{ms, r.IntN(1 + ms/500)})
		}
	}
	line, folded := recorded(t, samples)
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	save := c.downloads()
	// check compares what the page saves with the samples from one time to another.
	check := func(from, end int) {
		t.Helper()
		text := save("#save-folded")
		if diff := cmp.Diff(folded(func(ms int) bool { return ms >= from && ms < end }), parseFolded(t, text)); diff != "" {
			t.Errorf("%d to %d ms (-samples +page):\n%s", from, end, diff)
		}
	}
	check(0, 8000)
	c.picture("times")
	var at struct{ Left, Top, Width, Height float64 }
	c.eval(`(({left, top, width, height}) => ({left, top, width, height}))(document.querySelector("#heat").getBoundingClientRect())`, &at)
	// A column is 100 ms, a cell 20 ms. The times are below the map, which is as wide as the page.
	const mapHeight = 48
	cell := func(ms int) (x, y float64) {
		return at.Left + (float64(ms/100)+0.5)*at.Width/75, at.Top + (float64(ms%100/20)+0.5)*mapHeight/5
	}
	if at.Width < 1200 || at.Height < mapHeight+10 {
		t.Errorf("the heat map has %g by %g pixels, want the width of the page, and times below it", at.Width, at.Height)
	}
	c.click(cell(2040))
	expectList(c, "#chips span", "2 s to 2.1 s")
	check(2000, 2100)
	c.press("t")
	var total int
	c.eval(`Number(document.querySelector("#rows tr td:nth-child(2)").firstChild.textContent)`, &total)
	if total == 0 || total > 10 {
		t.Errorf("the table has a total of %d samples, want at most 10", total)
	}
	c.press("b")
	expectContains(c, "#details", "Hottest functions")
	c.press("f")

	x, y := cell(1200)
	c.point(x, y)
	expect(c, "#tip h2", "1.2 s to 1.22 s")
	expectContains(c, "#tip dl", "Samples2")
	c.pointer(press, x, y)
	x, y = cell(4500)
	c.point(x, y)
	c.pointer(release, x, y)
	expectList(c, "#chips span", "1.2 s to 4.52 s")
	check(1200, 4520)
	c.picture("times-selected")
	state := address(c)
	c.openAgain()
	c.until(`document.documentElement?.dataset.ready && document.querySelector("#chips span")`)
	if again := address(c); again != state || !strings.Contains(state, "time=1200-4520") {
		t.Errorf("the address %q became %q when loaded", state, again)
	}
	check(1200, 4520)
	c.press("/")
	c.write("peek")
	c.press("F") // typed
	c.press("Escape")
	c.clickOn("#chips button")
	check(0, 8000)

	c.click(cell(3000)) // idle
	expect(c, "#notice", "No samples pass the filters.")
	c.press("Escape") // the heat map has the focus
	c.until(`document.querySelector("#filters").hidden`)
	c.eval(`(document.querySelector("#heat").focus(), 0)`, new(int))
	c.press("ArrowRight", "Enter")
	expectList(c, "#chips span", "3.1 s to 3.2 s")
	c.press("ArrowLeft", "ArrowLeft", "ArrowLeft", "ArrowDown", "Enter")
	expectList(c, "#chips span", "2.8 s to 2.9 s")
	check(2800, 2900)
	c.eval(`(document.querySelector("#heat").focus(), 0)`, new(int))
	c.keys(true, "ArrowRight")
	expectList(c, "#chips span", "2.82 s to 2.94 s")
	check(2820, 2940)
	for _, hash := range []string{"time=5-1", "time=x", "time=-", "time=1e9-2e9", "time=0-1e99", "time=<b>"} {
		c.goTo(hash)
		c.until(`document.querySelector("#filters").hidden || document.querySelector("#chips span").textContent === "0 s to 7.5 s"`)
	}
	expectClean(c)
}

// In the heat map, the cell with the largest value has the full color, also if a cell has
// many steps. Its value is below the map.
func TestHeatColors(t *testing.T) {
	samples := []takenAt{{0, 1}}
	for range 5 {
		samples = append(samples, takenAt{500, 1}) // most of a cell in one of its steps
	}
	for ms := 501; ms < 520; ms += 3 {
		samples = append(samples, takenAt{ms, 1})
	}
	line, _ := recorded(t, append(samples, takenAt{3000, 1}))
	line.Interval = int64(time.Millisecond)
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	var most int
	c.eval(`(() => {
		const heat = document.querySelector("#heat");
		const { data } = heat.getContext("2d").getImageData(0, 0, heat.width, 48 * devicePixelRatio); // without the times
		let most = 0;
		for (let i = 3; i < data.length; i += 4) most = Math.max(most, data[i]);
		return most;
	})()`, &most)
	if most != 255 {
		t.Errorf("the largest cell has an opacity of %d of 255", most)
	}
	expect(c, "#heat-note", "at most 6 samples in 4 ms")
	c.picture("heat-colors")
	choose(c, "#value", "1")
	expect(c, "#heat-note", "at most 60 ms in 4 ms")
	expectClean(c)
}

// The page of a recording that was written for the Firefox Profiler has its times.
func TestTimesFromFirefox(t *testing.T) {
	var samples []takenAt
	for ms := 0; ms < 4000; ms += 10 {
		samples = append(samples, takenAt{ms, ms / 700})
	}
	line, folded := recorded(t, samples)
	line.Interval = int64(10 * time.Millisecond)
	var file bytes.Buffer
	if err := firefox.Write(&file, line, firefox.Options{}); err != nil {
		t.Fatal(err)
	}
	d, err := decode.ReadWith(t.Context(), &file, "recording", decode.Options{Times: true})
	if err != nil || d.Times == nil {
		t.Fatalf("got times %v: %v", d.Times, err)
	}
	c := newTab(t)
	openFlame(c, d.Profile, flame.Options{Times: d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })})
	save := c.downloads()
	c.goTo("value=0&time=1200-2500")
	expectList(c, "#chips span", "1.2 s to 2.5 s")
	if diff := cmp.Diff(folded(func(ms int) bool { return ms >= 1200 && ms < 2500 }), parseFolded(t, save("#save-folded"))); diff != "" {
		t.Errorf("1.2 to 2.5 s (-samples +page):\n%s", diff)
	}
	c.picture("times-firefox")
	expectClean(c)
}

// The heat map fits into a narrow window.
func TestNarrowTimes(t *testing.T) {
	line, _ := recorded(t, []takenAt{{0, 3}, {90_000, 3}})
	c := newTab(t)
	openFlame(c, line.Profile, flame.Options{Times: line})
	c.resize(420, 800, 1)
	var over bool
	c.eval(`document.documentElement.scrollWidth > innerWidth`, &over)
	if over {
		t.Error("the page is wider than the window")
	}
	var cut []string
	c.eval(`[...document.querySelectorAll("button")].filter((b) => b.scrollHeight > b.clientHeight || b.scrollWidth > b.clientWidth).map((b) => b.textContent + " " + b.id)`, &cut)
	if len(cut) > 0 {
		t.Errorf("the texts of the buttons %q are cut off", cut)
	}
	c.picture("times-narrow")
	expectClean(c)
}
