package browser

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/testenv"
)

// axe returns the script of axe-core, which judges pages by rules for people who use
// keyboards and screen readers, or have poor sight. test/install-deps.sh installs it.
func axe(t *testing.T) string {
	t.Helper()
	root, err := exec.Command(testenv.Tool(t, "npm"), "root", "--global").Output()
	if err != nil {
		t.Fatalf("npm root: %v", err)
	}
	script, err := os.ReadFile(testenv.File(t, filepath.Join(strings.TrimSpace(string(root)), "axe-core", "axe.min.js")))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// axe-core finds no violation in any view, light or dark.
func TestAudit(t *testing.T) {
	script := axe(t)
	c, chromium := newChromiumTab(t)
	chromium.call("Page.setBypassCSP", map[string]any{"enabled": true}, nil) // for axe-core
	c.resize(1280, 720, 1)
	line := twoThreads(t)
	// answer makes the page's requests for source and instructions have an answer.
	answer := func(listing string) func() {
		return func() {
			openFlame(c, encodetest.Typical(), flame.Options{Listings: "code"})
			c.eval(`(window.fetch = async () => new Response(`+"`"+listing+"`"+`), 0)`, new(int))
		}
	}
	const (
		source   = `{ "file": "/src/main.c", "first": 9, "lines": ["int main(void) {", "\\treturn 0; // x", "}"], "counts": [[9, 0, 5], [10, 5, 5]], "newer": true }`
		unread   = `{ "file": "/src/main.c", "first": 0, "lines": [], "counts": [[9, 0, 5], [10, 5, 5]], "problem": "open /src/main.c: no such file or directory" }`
		code     = `{ "function": "main", "module": "/bin/main", "instructions": [{ "address": "0x1130", "text": "ret", "self": 5, "total": 5, "file": "/src/main.c", "line": 10 }] }`
		unmapped = `{ "function": "main", "module": "/bin/main", "instructions": [], "problem": "no file with build ID 0123" }`
	)
	both := func(source, code string) func() {
		return answer(`{ "self": 5, "total": 5, "sources": [` + source + `], "assembly": [` + code + `] }`)
	}
	for _, page := range []struct {
		name  string
		open  func()
		views []string
	}{
		{"profile", func() { openFlame(c, encodetest.Typical(), flame.Options{}) }, []string{
			"", "view=callers", "view=sandwich", "view=table", "q=peek&filter=hide:main&color=module", "q=(", "filter=focus:nothing",
		}},
		{"comparison", func() { openFlame(c, encodetest.Typical(), flame.Options{Base: encodetest.Typical()}) }, []string{"", "view=table"}},
		{"source", both(source, code), []string{"view=code", "view=code&filter=hide:main"}},
		{"unread source", both(unread, code), []string{"view=code"}},
		{"unmapped code", both(source, unmapped), []string{"view=code"}},
		{"no source", both("", code), []string{"view=code"}},
		{"nothing", both("", ""), []string{"view=code"}},
		{"recording", func() { openFlame(c, line.Profile, flame.Options{Times: line}) }, []string{"", "view=time&time=500-1500", "heat=0"}},
	} {
		page.open()
		c.evaluate(script + "\n0")
		audit := func(state string) {
			t.Helper()
			var violations []string
			c.eval(`axe.run(document).then(({ violations }) => violations.map(({ id, nodes }) =>
				id + ": " + nodes.map(({ html, any, all, none }) => html + " " + [...any, ...all, ...none].map(({ message }) => message)).join("; ")))`, &violations)
			for _, v := range violations {
				t.Errorf("%s, %s: %s", page.name, state, v)
			}
		}
		for _, scheme := range []string{"light", "dark"} {
			chromium.call("Emulation.setEmulatedMedia", map[string]any{
				"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
			}, nil)
			for _, view := range page.views {
				c.goTo(view)
				if strings.HasPrefix(view, "view=code") {
					c.until(`document.querySelector("#code").dataset.state === "ready"`)
				}
				audit(scheme + " " + view)
			}
			if page.name != "profile" {
				continue
			}
			c.goTo("")
			c.click(boxAt(c, 0.2, 4))
			audit(scheme + " selection")
			c.press("Escape", "Escape")
			for _, button := range []string{"#options-button", "#save-button", "#lost", "#task > button", "#help-button"} {
				c.clickOn(button)
				audit(scheme + " " + button)
				c.press("Escape")
			}
			x, y := boxAt(c, 0.2, 4)
			contextMenu(c, x, y, 2)
			audit(scheme + " menu")
			c.press("Escape", "Escape", "Escape")
		}
	}
}

// Labels of boxes, which axe-core cannot see, have a contrast of at least 4.5 to 1 with every
// color that a box can have.
func TestContrast(t *testing.T) {
	c, chromium := newChromiumTab(t)
	openFlame(c, encodetest.Typical(), flame.Options{})
	for _, scheme := range []string{"light", "dark"} {
		chromium.call("Emulation.setEmulatedMedia", map[string]any{
			"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}},
		}, nil)
		var low []string
		c.eval(pageScript(c)(`load().then((data) => {
			const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
			const luminance = (color) => {
				probe.fillStyle = color;
				probe.fillRect(0, 0, 1, 1);
				const [r, g, b] = [...probe.getImageData(0, 0, 1, 1).data].map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
				return 0.2126 * r + 0.7152 * g + 0.0722 * b;
			};
			const contrast = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
			const colors = new Colors(data);
			const low = [];
			let checked = 0;
			for (const mode of ["kind", "module", "name", "change"]) {
				colors.modules = data.strings.map((_, i) => i).slice(0, MODULE_HUES);
				colors.read(mode);
				const label = luminance(colors.label);
				const all = { kind: Object.values(colors.byKind).flat(), module: [...colors.byModule.values()].flat(), name: colors.byName, change: colors.byChange }[mode];
				for (const color of [...all, colors.match]) {
					const value = contrast(label, luminance(color));
					checked++;
					if (value < 4.5) low.push(mode + " " + color + " " + value.toFixed(2));
				}
			}
			return checked > 100 ? low : ["only " + checked + " colors"];
		})`), &low)
		if len(low) > 0 {
			t.Errorf("%s: the contrast of labels is too low on %q", scheme, low)
		}
	}
}
