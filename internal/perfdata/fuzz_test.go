package perfdata

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/bolt"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/unwind"
)

// ended returns a canceled context.
func ended(t *testing.T) context.Context {
	ctx, end := context.WithCancel(t.Context())
	end()
	return ctx
}

// fuzzChains reads the call chains of data and checks the profile. It returns nil and the
// error if reading fails.
func fuzzChains(t *testing.T, data []byte) (*profile.Profile, error) {
	t.Helper()
	var samples, weight int64
	c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Each: func(s ChainSample) error {
		if s.Weight <= 0 || s.Time < 0 || len(s.Comm) > maxComm {
			t.Fatalf("got sample %+v, want a weight, a time and a bounded name", s)
		}
		samples++
		weight += s.Weight
		return nil
	}, Code: func(m Mapped, _ elf.Machine) unwind.Code {
		if m.Path == "/bin/sh" {
			return unwind.Code{}
		}
		return unwind.Code{Table: testTable(), Fallback: unwind.Chain(uint8(len(m.Path)) % (unwind.ChainAtEnd + 1))}
	}})
	if err != nil {
		checkFormat(t, err)
		return nil, err
	}
	if got := c.Profile.Total(0); got != samples {
		t.Fatalf("got a total of %[2]d for %[1]d samples", samples, got)
	}
	for v := range c.Profile.ValueTypes {
		if c.Profile.Total(v) < 0 {
			t.Fatalf("value %d: got a total of %d", v, c.Profile.Total(v))
		}
		if err := folded.Write(io.Discard, c.Profile, folded.Options{Value: v}); err != nil {
			t.Fatal(err)
		}
	}
	return c.Profile, nil
}

func checkFormat(t *testing.T, err error) {
	t.Helper()
	var format *FormatError
	if err != nil && !errors.As(err, &format) {
		t.Fatalf("got an error without offset: %v", err)
	}
}

// fuzzBranches is like fuzzChains for branches.
func fuzzBranches(t *testing.T, data []byte, prog *bolt.Binary) (Stats, bolt.Stats, error) {
	t.Helper()
	c := bolt.NewCollector(bolt.Options{Memory: 1 << 16})
	defer c.Close()
	c.Register(prog)
	stats, err := collectFrom(t.Context(), bytes.NewReader(data), int64(len(data)), "in", c, Options{Find: func(m Mapped) *bolt.Binary {
		if strings.HasPrefix(m.Path, "/usr") {
			return prog
		}
		return nil
	}})
	checkFormat(t, err)
	if err == nil && stats.Samples != stats.Ignored+stats.NoStack+c.Stats().Samples {
		t.Fatalf("got %d samples: %d counted, %d ignored and %d without branches; want them to add up", stats.Samples, c.Stats().Samples, stats.Ignored, stats.NoStack)
	}
	return stats, c.Stats(), err
}

// Files with random records and hostile sizes give valid profiles, and the same profile
// as a file, as a pipe and with compressed records.
func FuzzGenerated(f *testing.F) {
	for _, seed := range []string{
		"\x01\x05\x01\x06\x01\x07\x00\x01\x08\x09\x01\x01\x00\x0f\x01\x01\x02\x05\x00\x64\x65\x70\xff",
		"\x00\x00\x01\x01\x02\x03\x04\x01\x0f\x05\x90\x91\x92\x93\x94\x95\x96\x97\x01\x0f\x07\x04\x01\x02\x03",
		"\x03\xbf\x07\x00\x01\x01\x10\x40\x01\x0f\x01\x01\x02\x01\x50\x02\x18\x10\x11\x12\x13",
		"\x02\x0a\xbf\x05\x0e\x01\x01\x01\x02\x80\x81\x0b\x44\x07\x01\x02\x03\x40\x00\x03\x05\x08\x10",
	} {
		f.Add([]byte(seed), []byte{})
		f.Add([]byte(seed), []byte("\x03\x81\x20\x00\x30\xbf\x07\x01\x05\x05\x05\x05"))
	}
	prog := dataBinary(f)
	f.Fuzz(func(t *testing.T, records, patches []byte) {
		p := recipe(records)
		b, samples, wellFormed := p.build()
		plain := b.plain()
		if len(plain) == 0 {
			return // in a file, this means that perf was killed
		}
		file := b.file(bytes.Clone(plain))
		if len(patches) > 0 {
			q := recipe(patches)
			q.patch(file)
			_, _ = fuzzChains(t, file)
			_, _, _ = fuzzBranches(t, file, prog)
			return
		}
		for _, input := range [][]byte{file, b.pipe(plain)} {
			if _, err := readCallChains(ended(t), bytes.NewReader(input), int64(len(input)), "in", ChainOptions{}); err == nil {
				t.Fatal("got no error after the end of the context")
			}
		}
		want, failure := fuzzChains(t, file)
		if want != nil && uint64(want.Total(0)) != samples {
			t.Fatalf("got %[2]d samples, want %[1]d", samples, want.Total(0))
		}
		wantStats, wantBranches, branchFailure := fuzzBranches(t, file, prog)
		if branchFailure == nil && wantStats.Samples != samples {
			t.Fatalf("got %[2]d samples, want %[1]d", samples, wantStats.Samples)
		}
		if !wellFormed {
			return
		}
		for name, input := range map[string][]byte{
			"pipe": b.pipe(plain), "compressed": b.file(b.compressed(t, recordCompressed)), "compressed pipe": b.pipe(b.compressed(t, recordCompressed2)),
		} {
			got, err := fuzzChains(t, input)
			if (err == nil) != (failure == nil) {
				t.Fatalf("%s: got error %v, want the file's %v", name, err, failure)
			}
			if got != nil {
				if diff := cmp.Diff(stacks(want), stacks(got)); diff != "" {
					t.Fatalf("%s (-file +%s):\n%s", name, name, diff)
				}
			}
			stats, branches, err := fuzzBranches(t, input, prog)
			if (err == nil) != (branchFailure == nil) || err == nil && (stats != wantStats || branches != wantBranches) {
				t.Fatalf("%s: got branches %+v %+v %v, want the file's %+v %+v %v", name, stats, branches, err, wantStats, wantBranches, branchFailure)
			}
		}
	})
}

// FuzzReadCallChains reads arbitrary bytes.
func FuzzReadCallChains(f *testing.F) {
	b := chainFile()
	f.Add(b.file(b.plain()))
	f.Add(b.pipe(b.plain()))
	f.Add(b.file(b.compressed(f, recordCompressed)))
	b = copyFile()
	f.Add(b.file(b.plain()))
	f.Fuzz(func(t *testing.T, input []byte) { _, _ = fuzzChains(t, input) })
}

func FuzzCollect(f *testing.F) {
	b := newBuilder(true)
	b.mmap2(1, base1&^0xfff, 0x1000, 0, "/usr/bin/prog")
	b.fork(1, 2)
	b.exec(2, "prog")
	b.sample(1, []bolt.Entry{at(base1, 0), at(base1, 8)})
	b.finishRound()
	b.buildID("/usr/bin/prog", "00112233")
	f.Add(b.file(b.plain()))
	f.Add(b.file(b.compressed(f, recordCompressed)))
	f.Add(b.pipe(b.plain()))
	f.Add(b.pipe(b.compressed(f, recordCompressed2)))
	prog := dataBinary(f)
	f.Fuzz(func(t *testing.T, input []byte) { _, _, _ = fuzzBranches(t, input, prog) })
}

// Every sample in a text is counted, ignored, or has no branches.
func FuzzScript(f *testing.F) {
	f.Add("PERF_RECORD_MMAP2 1/1: [0x100000000(0x1000) @ 0 08:01 1 1]: r-xp /usr/bin/prog\n 1 100000740 0x100000740/0x100000744/M/-/-/3\n")
	f.Add("PERF_RECORD_FORK(2:2):(1:1)\nPERF_RECORD_COMM exec: a:b:2/2\n\t 7f0000\n\n")
	prog := dataBinary(f)
	f.Fuzz(func(t *testing.T, input string) {
		c := bolt.NewCollector(bolt.Options{Memory: 1 << 16})
		defer c.Close()
		c.Register(prog)
		stats, err := collectScript(strings.NewReader(input), "in", c, Options{Find: func(Mapped) *bolt.Binary { return prog }})
		var syntax *bolt.SyntaxError
		if err != nil && !errors.As(err, &syntax) {
			t.Errorf("got an error without line: %v", err)
		}
		if err == nil && stats.Samples != stats.Ignored+stats.NoStack+c.Stats().Samples {
			t.Errorf("got %d samples: %d counted, %d ignored and %d without branches; want them to add up", stats.Samples, c.Stats().Samples, stats.Ignored, stats.NoStack)
		}
	})
}
