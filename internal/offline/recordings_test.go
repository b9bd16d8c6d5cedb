package offline

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/report"
	"fulgur/internal/symbols/debugfile/debugfiletest"
)

// Reports of real programs say what an expert would say first.
func TestRecordings(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        map[string]string // by rule, with parts of the sentence
	}{
		{"redis-bgsave", "off-cpu", map[string]string{
			"load":       "It used 10 % of a CPU in 8.0 s.",
			"waits":      "Threads waited for 15.0 s, 95.1 % of their time",
			"idle":       "mostly in bioProcessBackgroundJobs",
			"starved":    "redis-server 32668 was ready to run, but got no CPU, for 4.0 s",
			"memory":     "Copying pages shared since a fork (copy-on-write) took 137.1 ms, 17.9 % of the CPU time.",
			"interrupts": "",
		}},
		{"thread-pool", "", map[string]string{
			"idle":    "8 idle threads waited",
			"starved": "Threads were ready to run, but got no CPU",
		}},
	} {
		p, err := readProfile(t.Context(), recordingPath(c.name), "", func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		value, err := chooseValue(p, "")
		if err != nil {
			t.Fatal(err)
		}
		if first := report.First(p, value); c.value != "" && p.ValueTypes[first].Type != c.value {
			t.Errorf("%s: %s is first, want %s", c.name, p.ValueTypes[first].Type, c.value)
		}
		got := map[string]string{}
		for _, f := range report.New(p, value, 20, false).Findings {
			got[f.Rule] = f.Text
		}
		for rule, part := range c.want {
			if text, ok := got[rule]; !ok || !strings.Contains(text, part) {
				t.Errorf("%s: rule %s says %q, want %q", c.name, rule, text, part)
			}
		}
	}
}

// A page of a recording, and a report of that page, have the findings of a report of the recording.
func TestFindingsOfPages(t *testing.T) {
	for _, name := range []string{"redis-bgsave", "thread-pool"} {
		page := filepath.Join(t.TempDir(), "page.html")
		if code, err := Convert(t.Context(), ConvertOptions{Input: recordingPath(name), Output: page, Stderr: io.Discard}); err != nil {
			t.Fatalf("exit code %d: %v", code, err)
		}
		want, got := findingsOf(t, recordingPath(name)), findingsOf(t, page)
		if len(want) < 4 || !slices.Equal(got, want) {
			t.Errorf("%s: a report of the page says %q\nwant at least 4 findings, %q", name, got, want)
		}
		var header struct{ Findings []finding }
		if err := json.Unmarshal(headerOf(t, page), &header); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(header.Findings, want) {
			t.Errorf("%s: the page says %q\nwant %q", name, header.Findings, want)
		}
	}
}

// finding is a finding of a report or of a page.
type finding struct{ Text, Remedy string }

// findingsOf returns the findings of a report of a file.
func findingsOf(t *testing.T, path string) []finding {
	t.Helper()
	var out strings.Builder
	if code, err := Report(t.Context(), ReportOptions{Input: path, Functions: report.Functions, Format: "json", Stdout: &out, Stderr: io.Discard}); err != nil {
		t.Fatalf("exit code %d: %v", code, err)
	}
	var r struct{ Findings []finding }
	if err := json.Unmarshal([]byte(out.String()), &r); err != nil {
		t.Fatal(err)
	}
	return r.Findings
}

// headerOf returns the header of the data of a page.
func headerOf(t *testing.T, path string) []byte {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := bytes.Cut(page, []byte(`<script id="data" type="application/octet-stream">`))
	data, _, _ = bytes.Cut(data, []byte("<"))
	unpacked, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	var size [4]byte
	if _, err := io.ReadFull(unpacked, size[:]); err != nil {
		t.Fatal(err)
	}
	header := make([]byte, binary.LittleEndian.Uint32(size[:]))
	if _, err := io.ReadFull(unpacked, header); err != nil {
		t.Fatal(err)
	}
	return header
}

// The numbers of a run, which its file has, are those of a report, of a page, of the pages of fulgur view and of other formats
// of that file, and those that the command printed.
func TestSameNumbers(t *testing.T) {
	paths, err := filepath.Glob(recordingPath("*"))
	if err != nil || len(paths) < 9 {
		t.Fatalf("got %d recordings, %v", len(paths), err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".pb.gz")
		warn := func(err error) { t.Error(err) }
		p, err := readProfile(t.Context(), path, "", warn)
		if err != nil {
			t.Fatal(err)
		}
		recounted := *p
		recounted.CountUnnamed(false)
		if recounted.Losses != p.Losses {
			t.Errorf("%s: the file has %q, a count of its samples gives %q", name, lossesOf(p, p.Losses), lossesOf(p, recounted.Losses))
		}
		want := whats(describe.Of(p))
		if diff := cmp.Diff(want, whats(report.New(p, 0, 20, false).Losses)); diff != "" {
			t.Errorf("%s: report (-file +got):\n%s", name, diff)
		}
		for _, ending := range []string{".html", ".json.gz", ".otlp", ".pb.gz"} {
			out := filepath.Join(t.TempDir(), "x"+ending)
			if code, err := Convert(t.Context(), ConvertOptions{Input: path, Output: out, Stdout: io.Discard, Stderr: io.Discard}); err != nil || code != 0 {
				t.Fatalf("%s%s: exit code %d, %v", name, ending, code, err)
			}
			again, err := readProfile(t.Context(), out, "", warn)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, whats(describe.Of(again))); diff != "" {
				t.Errorf("%s%s (-file +got):\n%s", name, ending, diff)
			}
		}
		shown, err := readShown(t.Context(), path, debugfiletest.NewFinder(t), noTimes, warn)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, whats(describe.Of(shown.Profile))); diff != "" {
			t.Errorf("%s: view (-file +got):\n%s", name, diff)
		}
		if err := shown.Close(); err != nil {
			t.Error(err)
		}
		printed, err := os.ReadFile(strings.TrimSuffix(path, ".pb.gz") + ".txt")
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, line := range strings.Split(strings.TrimSpace(string(printed)), "\n")[1:] { // after the headline
			what, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
			got = append(got, what)
		}
		if diff := cmp.Diff(withoutFiles(describe.Of(p)), got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: what the command printed (-file +printed):\n%s", name, diff)
		}
	}
}

// whats returns losses with their amounts.
func whats(list []describe.Loss) (texts []string) {
	for _, l := range list {
		texts = append(texts, l.What+" "+l.Effect)
	}
	return texts
}

// withoutFiles returns losses with their amounts, without those of files, which commands print elsewhere.
func withoutFiles(list []describe.Loss) (texts []string) {
	for _, l := range list {
		if l.Cause != "stripped" {
			texts = append(texts, l.What)
		}
	}
	return texts
}

// lossesOf returns losses in words.
func lossesOf(p *profile.Profile, l profile.Losses) []string {
	return describe.Brief(l, describe.NounOfProfile(p))
}

func recordingPath(name string) string {
	return filepath.Join("testdata", "recordings", name+".pb.gz")
}
