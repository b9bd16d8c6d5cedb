package perfdata

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
	"fulgur/internal/testenv"
)

// gunzip decompresses a file of testdata.
func gunzip(t testing.TB, name string) []byte {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name+".gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func writeFile(t testing.TB, path string, content []byte) string {
	t.Helper()
	if err := os.WriteFile(path, content, 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPerf2boltData compares with perf2bolt on perf.data from a real machine.
func TestPerf2boltData(t *testing.T) {
	testenv.Tool(t, "perf")
	dir := t.TempDir()
	data := gunzip(t, "propeller_sample_1.perfdata1")
	binary := writeFile(t, filepath.Join(dir, "propeller_sample_1.bin"), gunzip(t, "propeller_sample_1.bin"))
	input := writeFile(t, filepath.Join(dir, "perf.data"), data)
	traces, branches, c := profileOf(t, binary, data)
	if got := c.Stats().Inside; got != 119419 {
		t.Errorf("got %d branches inside, want perf2bolt's 119419", got)
	}
	judge(t, "", binary, input, traces, branches, 22)

	// The code begins in page 0 of the file, so versions 16 and 19 take its mapping for
	// the first segment's, one page too high. A corrected mapping compensates for that.
	var samples [2][]byte
	for i, fields := range []string{"pid,brstack", "pid,ip,brstack"} {
		var err error
		if samples[i], err = exec.Command("perf", "script", "-i", input, "-F", fields).Output(); err != nil {
			t.Fatal(err)
		}
	}
	fakePerf(t, dir, samples[0], samples[1],
		"PERF_RECORD_MMAP2 5595/5595: [0x5629ec741000(0x2000) @ 0 00:6a 2006825049 1625258238]: r-xp /x/propeller_sample_1.bin\n")
	judge(t, dir, binary, input, traces, branches, 16, 19)
}

// TestSkylake detects the duplicated newest entries in records of a Skylake server, and
// drops the impossible fall-throughs that perf2bolt would report.
func TestSkylake(t *testing.T) {
	dir := t.TempDir()
	binary := writeFile(t, filepath.Join(dir, "propeller_sample_1.bin"), gunzip(t, "propeller_sample_1.bin"))
	data := gunzip(t, "propeller_sample_1.perfdata1")
	for _, tc := range []struct {
		duplicates bolt.Duplicates
		mismatches string
	}{
		{bolt.KeepDuplicates, "966 "},
		{bolt.DetectDuplicates, "0 "},
	} {
		profile, _, err := collect(t, data, dataBinary(t), bolt.Options{Duplicates: tc.duplicates})
		if err != nil {
			t.Fatal(err)
		}
		ours := writeFile(t, filepath.Join(dir, "preagg"), []byte(profile))
		out, err := exec.Command(perf2bolt(t, 22), binary, "--pa", "-p", ours, "-o", filepath.Join(dir, "fdata")).Output()
		if err != nil {
			t.Fatal(err)
		}
		if want := "traces mismatching disassembled function contents: " + tc.mismatches; !strings.Contains(string(out), want) {
			t.Errorf("duplicates %d: got no %q in\n%s", tc.duplicates, want, out)
		}
	}
}

// fakePerf puts a perf into dir that prints the given text: samples for -F pid,brstack,
// withIP for -F pid,ip,brstack, and mappings.
func fakePerf(t testing.TB, dir string, samples, withIP []byte, mappings string) {
	t.Helper()
	writeFile(t, filepath.Join(dir, "perf"), []byte(`#!/bin/sh
here=${0%/*}
case "$*" in
*pid,ip,brstack*) cat "$here/samples-ip" ;;
*pid,brstack*) cat "$here/samples" ;;
*show-mmap-events*) cat "$here/mmaps" ;;
esac
`))
	writeFile(t, filepath.Join(dir, "samples"), samples)
	writeFile(t, filepath.Join(dir, "samples-ip"), withIP)
	writeFile(t, filepath.Join(dir, "mmaps"), []byte(mappings))
}

// TestPerf2boltScript compares with perf2bolt on the output of perf script, with
// synthetic mappings and PIDs, which perf2bolt needs.
func TestPerf2boltScript(t *testing.T) {
	for _, tc := range []struct{ data, binary string }{
		{"cs-preinline-cost", "a.out"},
		{"inline-noprobe2", "inline-noprobe2"},
	} {
		t.Run(tc.data, func(t *testing.T) {
			dir := t.TempDir()
			text := gunzip(t, tc.data+".perfscript")
			binary := writeFile(t, filepath.Join(dir, tc.binary), gunzip(t, tc.data+".perfbin"))
			const pid = 1881628
			var samples, withIP strings.Builder
			for line := range strings.Lines(string(text)) {
				if i := strings.Index(line, " 0x"); i >= 0 && strings.Contains(line, "/-/-/") {
					fmt.Fprintf(&samples, "%d %s", pid, line[i:])
					fmt.Fprintf(&withIP, "%d %16x %s", pid, 0x400000, line[i:])
				}
			}
			fakePerf(t, dir, []byte(samples.String()), []byte(withIP.String()), fmt.Sprintf(
				"PERF_RECORD_MMAP2 %d/%[1]d: [0x400000(0x1000) @ 0 103:01 538893601 3816301948]: r-xp /x/%s\n", pid, tc.binary))
			input := writeFile(t, filepath.Join(dir, "perf.data"), []byte(magicFile))
			traces, branches, _ := profileOf(t, binary, text)
			judge(t, dir, binary, input, traces, branches, 16, 19, 22)
		})
	}
}

// TestPerfScript compares the samples read from perf.data with the output of perf script.
func TestPerfScript(t *testing.T) {
	testenv.Tool(t, "perf")
	walk := newBuilder(false)
	walk.sample(7, []bolt.Entry{
		{From: 0x1000, To: 0x2000, Flags: bolt.FlagPredicted},
		{From: 0x3000, To: 0x4000, Flags: bolt.FlagMispredicted | bolt.FlagAbort},
	})
	for name, data := range map[string][]byte{
		"propeller_sample_1.perfdata1": gunzip(t, "propeller_sample_1.perfdata1"),
		"perf.data.branch_stack_spec":  gunzip(t, "perf.data.branch_stack_spec"),
		"perf.data.branch-4.14":        gunzip(t, "perf.data.branch-4.14"),
		"pipe":                         walk.pipe(walk.plain()),
		"compressed in a file":         walk.file(walk.compressed(t, recordCompressed)),
	} {
		t.Run(name, func(t *testing.T) {
			input := writeFile(t, filepath.Join(t.TempDir(), "perf.data"), data)
			out, err := exec.Command("perf", "script", "-i", input, "-F", "pid,brstack").Output()
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for line := range strings.Lines(string(out)) {
				pid, rest := word(strings.TrimSpace(line))
				text := pid
				for {
					var first string
					if first, rest = word(rest); first == "" {
						break
					}
					if !strings.Contains(first, "/") {
						continue // perf adds the address when it reads from a pipe
					}
					e, ok := parseBranch(first)
					if !ok {
						t.Fatalf("got branch %q from perf", first)
					}
					text += " " + show(e)
				}
				want = append(want, text)
			}
			got := samplesOf(t, data)
			slices.Sort(want) // they were sorted by time
			slices.Sort(got)
			if !cmp.Equal(want, got) {
				t.Errorf("(-perf +fulgur):\n%s", cmp.Diff(want, got))
			}
		})
	}
}

func show(e bolt.Entry) string {
	const known = bolt.FlagMispredicted | bolt.FlagAbort | 3<<24
	flags := e.Flags & known
	if flags>>24 != 1 {
		flags &^= 3 << 24 // compare only the wrong-path bits
	}
	return fmt.Sprintf("%x/%x/%x", e.From, e.To, flags)
}

// samplesOf returns the samples in file order.
func samplesOf(t testing.TB, data []byte) (all []string) {
	t.Helper()
	f, err := openFile(bytes.NewReader(data), int64(len(data)), "perf.data")
	if err != nil {
		t.Fatal(err)
	}
	cl := &collection{ctx: t.Context(), file: f, procs: newProcesses(func(Mapped) *bolt.Binary { return nil })}
	if err := cl.pass(cl.sideband); err != nil {
		t.Fatal(err)
	}
	err = cl.pass(func(rec record) error {
		if rec.typ != 9 {
			return nil
		}
		a, _ := f.attrs.sample(rec.body)
		s, err := a.ParseSample(rec.body)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprint(s.PID)
		for _, e := range bolt.AppendEntries(nil, s.Branches) {
			text += " " + show(e)
		}
		all = append(all, text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
