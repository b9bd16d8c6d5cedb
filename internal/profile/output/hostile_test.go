package output

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/testenv"
)

// Names of functions, files, tasks, owners, labels, machines and values reach no terminal, no markup
// and no other line of any format.
func TestHostileNames(t *testing.T) {
	for _, name := range encodetest.HostileNames {
		p := *encodetest.Hostile()
		p.ValueTypes = slices.Clone(p.ValueTypes)
		for i := range p.ValueTypes {
			p.ValueTypes[i].Type = name
			if i > 0 {
				p.ValueTypes[i].Unit = name
			}
		}
		encodetest.NameAll(&p, name)
		for _, unit := range []string{"nanoseconds", "bytes", name} {
			p.ValueTypes[0].Unit = unit
			for _, f := range formats {
				for _, c := range []struct {
					Options
					profile.Grouping
				}{
					{Options{}, profile.GroupNone}, {Options{}, profile.GroupLabel},
					{Options{ShortNames: true, Annotate: true}, profile.GroupContainer},
				} {
					p.Meta.Grouping = c.Grouping
					var out bytes.Buffer
					if err := f.Write(&out, &p, nil, c.Options, 0); err != nil {
						t.Fatalf("%s: %v", f.Name, err)
					}
					checkHarmless(t, f.Name, out.Bytes(), len(p.Samples))
				}
			}
		}
	}
}

// checkHarmless checks an output for characters and markup that only hostile names have.
func checkHarmless(t *testing.T, format string, out []byte, samples int) {
	t.Helper()
	printable := func(text string) {
		t.Helper()
		for i, r := range text {
			if r != '\n' && !unicode.IsPrint(r) || r == utf8.RuneError {
				t.Fatalf("%s: got %q in %q", format, r, text[max(0, i-200):min(len(text), i+200)])
			}
		}
	}
	switch format {
	case "text":
		printable(string(out))
	case "folded":
		printable(string(out))
		if n := strings.Count(string(out), "\n"); n > samples+1 {
			t.Fatalf("folded: got %d lines for %d samples:\n%s", n, samples, out)
		}
	case "svg":
		d := xml.NewDecoder(bytes.NewReader(out))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("svg: %v", err)
			}
			switch token := token.(type) {
			case xml.StartElement:
				if !slices.Contains([]string{"svg", "style", "rect", "text", "g", "title", "script"}, token.Name.Local) {
					t.Fatalf("svg: got an element %q", token.Name.Local)
				}
				for _, a := range token.Attr {
					printable(a.Value)
					if strings.HasPrefix(a.Name.Local, "on") {
						t.Fatalf("svg: got an attribute %q", a.Name.Local)
					}
				}
			case xml.CharData:
				printable(string(token))
			}
		}
	case "speedscope":
		if !json.Valid(out) {
			t.Fatal("speedscope: got invalid JSON")
		}
		// It is data for a page, and JSON escapes the characters below the space.
	case "html": // package browser opens pages
		if n := strings.Count(string(out), "<script"); n != 2 {
			t.Fatalf("html: got %d scripts, want the data and the page's own", n)
		}
	}
}

// Formats with a thread or a profile for each value of each task refuse too many of them.
func TestBombValuesOfTasks(t *testing.T) {
	for _, f := range formats {
		if f.Name != "firefox" && !f.HasOwners() {
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			testenv.Limited(t, 512<<20, time.Minute, func(t *testing.T) {
				var types []profile.ValueType
				for i := range profile.MaxValues {
					types = append(types, profile.ValueType{Type: fmt.Sprint("event", i), Unit: "count"})
				}
				values := slices.Repeat([]int64{1}, len(types))
				b := profile.NewBuilder(types...)
				for i := range 4000 {
					b.Add(profile.Sample{Task: b.Task(profile.Task{PID: 1 + i, Comm: "task"}), CPU: -1, Values: values})
				}
				err := f.Write(io.Discard, b.Profile(profile.Meta{}, profile.Losses{}), nil, Options{}, 0)
				if err == nil || !strings.Contains(err.Error(), "with their values: choose one value") {
					t.Errorf("got error %v, want one about their number", err)
				}
			})
		})
	}
}

// Many tasks have the same thousand labels, which are in memory once.
func TestBombLabels(t *testing.T) {
	for _, f := range formats {
		if !f.HasLabels() || f.Name == "otlp-json" { // which is made of otlp
			continue
		}
		t.Run(f.Name, func(t *testing.T) {
			testenv.Limited(t, 640<<20, time.Minute, func(t *testing.T) {
				b := profile.NewBuilder(profile.ValueType{Type: "samples", Unit: "count"})
				var list []profile.Label
				for i := range 1000 {
					list = append(list, profile.Label{Key: fmt.Sprint("key", i), Value: "value"})
				}
				labels := b.Labels(profile.NewLabels(list))
				for i := range 60_000 {
					b.Add(profile.Sample{Task: b.Task(profile.Task{PID: 1, TID: 1 + i, Labels: labels}), CPU: -1, Values: []int64{1}})
				}
				if err := f.Write(io.Discard, b.Profile(profile.Meta{}, profile.Losses{}), nil, Options{}, 0); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
