package offline

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fulgur/internal/perfdata"
	"fulgur/internal/profile"
	"fulgur/internal/profile/decode"
	"fulgur/internal/profile/encode/proto"
	"fulgur/internal/testenv"
)

// Limits for reading, comparing and writing a hostile file, far below the sizes that the
// files declare.
const (
	bombMemory = 2 << 30
	bombCPU    = 60 * time.Second
)

// writeBomb writes a file with write, compressed if its name ends in .gz.
func writeBomb(t *testing.T, name string, write func(w *bufio.Writer)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var out io.Writer = f
	var z *gzip.Writer
	if strings.HasSuffix(name, ".gz") {
		if z, err = gzip.NewWriterLevel(f, gzip.BestSpeed); err != nil {
			t.Fatal(err)
		}
		out = z
	}
	w := bufio.NewWriterSize(out, 1<<20)
	write(w)
	err = w.Flush()
	if z != nil {
		err = errors.Join(err, z.Close())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

// repeat writes text n times.
func repeat(w *bufio.Writer, text string, n int) {
	for range n {
		w.WriteString(text)
	}
}

// convertTo converts a file and returns the output and the error. The messages must
// contain each of warnings.
func convertTo(t *testing.T, path, format string, warnings ...string) (string, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out")
	var stderr strings.Builder
	_, err := Convert(t.Context(), ConvertOptions{Input: path, Output: out, Format: format, Stderr: &stderr})
	if err != nil {
		return "", err
	}
	for _, text := range warnings {
		if !strings.Contains(stderr.String(), text) {
			t.Errorf("got messages %[2]q, want %[1]q", text, stderr.String())
		}
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return string(data), nil
}

// profileFormats are the target formats.
var profileFormats = []string{"folded", "text", "html", "svg", "pprof", "firefox", "speedscope"}

// A pprof profile of a few kilobytes is compressed twice, and would unpack into
// gigabytes.
func TestBombPprofPackedTwice(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
		var member bytes.Buffer
		z := gzip.NewWriter(&member)
		if _, err := z.Write(make([]byte, 64<<20)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		path := writeBomb(t, "cpu.pb.gz", func(w *bufio.Writer) { repeat(w, member.String(), 64) })
		if info, err := os.Stat(path); err != nil || info.Size() > 64<<10 {
			t.Fatalf("got file %v, %v; want at most 64 KiB", info, err)
		}
		if _, err := convertTo(t, path, "folded"); err == nil || !strings.Contains(err.Error(), "compressed twice") {
			t.Errorf("got error %v, want %q in it", err, "compressed twice")
		}
	})
}

// A pprof profile has empty samples, which take a hundred times more memory than bytes.
func TestBombPprofEmptySamples(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
		path := writeBomb(t, "cpu.pb.gz", func(w *bufio.Writer) { repeat(w, "\x12\x00", 32<<20) })
		if _, err := convertTo(t, path, "folded"); err == nil || !strings.Contains(err.Error(), "in memory") {
			t.Errorf("got error %v, want %q in it", err, "in memory")
		}
	})
}

// A sample of a pprof profile has 200 000 labels with one long value, and all samples of another
// have the same thousand long labels and one of their own. Each label is in memory once.
func TestBombPprofLabels(t *testing.T) {
	testenv.Slow(t)
	const many, shared, samples = 200_000, 1000, 100
	long := strings.Repeat("x", profile.MaxName)
	for name, test := range map[string]struct {
		labels, samples int
		want            string // in the error
	}{
		"one sample": {many, 1, "more than 1024 labels"}, "many samples": {shared, samples, ""},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Limited(t, 512<<20, bombCPU, func(t *testing.T) {
				var p, kind, label proto.Message
				kind.Int(1, 1)
				kind.Int(2, 2)
				p.Message(1, kind)
				for i := range test.samples {
					var s proto.Message
					s.Int(2, 1) // its value
					for k := range test.labels {
						label = label[:0]
						label.Int(1, int64(5+test.samples+k))
						label.Int(2, 3)
						s.Message(3, label)
					}
					label = label[:0]
					label.Int(1, 4)
					label.Int(2, int64(5+i))
					s.Message(3, label)
					p.Message(2, s)
				}
				for _, text := range []string{"", "samples", "count", long, "own"} {
					p.String(6, text)
				}
				for i := range test.samples {
					p.String(6, fmt.Sprint(i))
				}
				for k := range test.labels {
					p.String(6, fmt.Sprint("k", k))
				}
				path := writeBomb(t, "cpu.pb.gz", func(w *bufio.Writer) { w.Write(p) })
				got, err := convertTo(t, path, "folded")
				switch {
				case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
					t.Errorf("got error %v, want %q in it", err, test.want)
				case test.want == "" && (err != nil || !strings.HasSuffix(got, fmt.Sprintf("\n\"\" %d\n", test.samples))):
					t.Errorf("got %.100q, error %v, want %d samples", got, err, test.samples)
				}
			})
		})
	}
}

// A Firefox profile of a few kilobytes has millions of samples, which take no more memory
// than one number each.
func TestBombFirefoxRows(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, 512<<20, bombCPU, func(t *testing.T) {
		const rows = 16 << 20
		path := writeBomb(t, "profile.json.gz", func(w *bufio.Writer) {
			w.WriteString(`{"meta":{"preprocessedProfileVersion":70},"shared":{"stringArray":["f"],"funcTable":{"name":[0]},` +
				`"frameTable":{"address":[-1],"lib":[-1],"func":[0],"category":[null],"line":[null],"inlineDepth":[0]},` +
				`"stackTable":{"frame":[0],"prefixOffset":[0]}},"threads":[{"name":"t","pid":"1","tid":1,"samples":{"weightType":"samples","stack":[0`)
			repeat(w, ",0", rows-1)
			w.WriteString(`]}}]}`)
		})
		if got, err := convertTo(t, path, "folded"); err != nil || got != fmt.Sprintf("# samples in count\nt;f %d\n", rows) {
			t.Errorf("got %.100q, error %v, want %.100q", got, err, fmt.Sprintf("# samples in count\nt;f %d\n", rows))
		}
	})
}

// A Firefox profile of a few kilobytes has millions of elements that are nearly empty, or long
// texts that are not names.
func TestBombFirefoxElements(t *testing.T) {
	testenv.Slow(t)
	for name, test := range map[string]struct {
		before, element, after string
		n                      int
	}{
		"libs":       {`{"libs":[`, `{}`, `]}`, 40 << 20},
		"categories": {`{"meta":{"categories":[`, `{}`, `]}}`, 80 << 20},
		"threads":    {`{"threads":[`, `{"tid":"` + strings.Repeat("1", 16000) + `"}`, `]}`, 80_000},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Limited(t, bombMemory/2, bombCPU, func(t *testing.T) {
				path := writeBomb(t, "profile.json.gz", func(w *bufio.Writer) {
					w.WriteString(test.before + test.element)
					repeat(w, ","+test.element, test.n-1)
					w.WriteString(test.after)
				})
				if _, err := convertTo(t, path, "folded"); err == nil || !strings.Contains(err.Error(), "tables take more than 512 MiB") {
					t.Errorf("got error %v, want one about the size of tables", err)
				}
			})
		})
	}
}

// A Firefox profile has millions of categories, which are not searched for each of its threads.
func TestBombFirefoxCategories(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory/2, bombCPU, func(t *testing.T) {
		path := writeBomb(t, "profile.json.gz", func(w *bufio.Writer) {
			w.WriteString(`{"meta":{"preprocessedProfileVersion":50,"categories":[{}`)
			repeat(w, `,{}`, 4_000_000)
			w.WriteString(`]},"threads":[{}`)
			repeat(w, `,{"stackTable":{}}`, 200_000)
			w.WriteString(`]}`)
		})
		if _, err := convertTo(t, path, "folded"); err == nil || !strings.Contains(err.Error(), "no stacks") {
			t.Errorf("got error %v, want %q in it", err, "no stacks")
		}
	})
}

// The stack table of a Firefox profile has millions of rows that are the same wait. They take
// no more memory than the numbers in the file, with and without times.
func TestBombFirefoxWaits(t *testing.T) {
	testenv.Slow(t)
	for _, format := range []string{"folded", "html"} {
		t.Run(format, func(t *testing.T) {
			testenv.Limited(t, 400<<20, bombCPU, func(t *testing.T) {
				const rows = 6_000_000
				path := writeBomb(t, "profile.json.gz", func(w *bufio.Writer) {
					w.WriteString(`{"meta":{"preprocessedProfileVersion":70,"categories":[{"name":"Idle"}]},"shared":{"stringArray":["f","[off-CPU: futex]"],` +
						`"funcTable":{"name":[0,1]},"frameTable":{"address":[-1,-1],"lib":[-1,-1],"func":[0,1],"category":[null,0],"line":[null,null],` +
						`"inlineDepth":[0,0]},"stackTable":{"frame":[0`)
					repeat(w, ",1", rows)
					w.WriteString(`],"prefix":[null`)
					repeat(w, ",0", rows)
					w.WriteString(`]}},"threads":[{"name":"t","pid":"1","tid":1,"samples":{"weightType":"tracing-ms","weight":[1],"stack":[1],"time":[1]}}]}`)
				})
				got, err := convertTo(t, path, format)
				if err != nil || format == "folded" && got != "# off-cpu in microseconds\nt;f;[off-CPU: futex] 1000\n" {
					t.Errorf("got %.100q, error %v, want a wait of 1 ms", got, err)
				}
			})
		})
	}
}

// A folded line has eight million frames. All formats and the comparison contain the full
// value, without the frames beyond the limit.
func TestBombDeepStack(t *testing.T) {
	testenv.Slow(t)
	for _, format := range append(profileFormats, "diff-html", "diff-svg", "diff-text", "diff-folded") {
		t.Run(format, func(t *testing.T) {
			testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
				path := writeBomb(t, "deep.folded", func(w *bufio.Writer) {
					w.WriteString("task")
					repeat(w, ";f", 8_000_000)
					w.WriteString(" 7\ntask;g 2\n")
				})
				if to, ok := strings.CutPrefix(format, "diff-"); ok {
					var out, stderr strings.Builder
					if _, err := Diff(t.Context(), DiffOptions{Base: []string{path}, New: []string{path}, Format: to, Stdout: &out, Stderr: &stderr}); err != nil {
						t.Fatal(err)
					}
					if to == "folded" && !strings.Contains(out.String(), "[truncated] 7 7\n") {
						t.Errorf("got %.100q…, want the marker with both values", out.String())
					}
					return
				}
				got, err := convertTo(t, path, format, "7 stacks truncated: after 16384 frames")
				if err != nil {
					t.Fatal(err)
				}
				if format == "folded" && !strings.Contains(got, ";f;[truncated] 7\n") {
					t.Errorf("got …%.100q, want the marker with its value", got[max(0, len(got)-100):])
				}
			})
		})
	}
}

// A sample has 600 000 inlined frames, each of which is processed once.
func TestBombInlinedFrames(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory, 15*time.Second, func(t *testing.T) {
		path := writeBomb(t, "script.txt", func(w *bufio.Writer) {
			w.WriteString("task 1/1 1.5: 7 cycles:\n")
			repeat(w, "\t1000 f (inlined)\n", 600_000)
			w.WriteString("\t1000 main (/bin/task)\n\n")
		})
		if got, err := convertTo(t, path, "folded", "1 stack truncated"); err != nil || !strings.HasPrefix(got, "task;main;f;f;") {
			t.Errorf("got %.100q, error %v; want the cut stack", got, err)
		}
	})
}

// Each sample has another event, which would add a value to all samples.
func TestBombValues(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory/2, bombCPU, func(t *testing.T) {
		path := writeBomb(t, "script.txt", func(w *bufio.Writer) {
			for i := range 30_000 {
				fmt.Fprintf(w, "task 1/1 1.5: 7 event%d:\n\t1000 f%d (/bin/task)\n\n", i, i)
			}
		})
		if _, err := convertTo(t, path, "pprof"); err == nil || !strings.Contains(err.Error(), "types of values") {
			t.Errorf("got error %v, want %q in it", err, "types of values")
		}
	})
}

// Many threads have the same deep stack, and each would have its own boxes.
func TestBombThreads(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
		const threads, depth = 5000, 16_000
		path := writeBomb(t, "profile.json.gz", func(w *bufio.Writer) {
			w.WriteString(`{"meta":{"preprocessedProfileVersion":70},"shared":{"stringArray":["f"],"funcTable":{"name":[0]},` +
				`"frameTable":{"address":[-1],"lib":[-1],"func":[0],"category":[null],"line":[null],"inlineDepth":[0]},` +
				`"stackTable":{"frame":[0`)
			repeat(w, ",0", depth-1)
			w.WriteString(`],"prefixOffset":[0`)
			repeat(w, ",1", depth-1)
			w.WriteString(`]}},"threads":[`)
			for i := range threads {
				fmt.Fprintf(w, `%.*s{"name":"t%d","pid":"%d","tid":%d,"samples":{"weightType":"samples","stack":[%d]}}`, min(i, 1), ",", i, i+1, i+1, depth-1)
			}
			w.WriteString(`]}`)
		})
		if got, err := convertTo(t, path, "html"); err != nil || !strings.Contains(got, "</html>") {
			t.Errorf("got %d bytes, error %v; want a whole page", len(got), err)
		}
	})
}

// The samples of perf.data with times have few threads and names, since each stays in memory.
func TestBombPerfTimes(t *testing.T) {
	testenv.Slow(t)
	for name, sample := range map[string]func(i int) perfdata.ChainSample{
		"threads": func(i int) perfdata.ChainSample { return perfdata.ChainSample{PID: 1, TID: i, Main: true} },
		"names":   func(i int) perfdata.ChainSample { return perfdata.ChainSample{PID: 1, TID: 2, Comm: fmt.Sprint(i % 2)} },
	} {
		times, err := newPerfTimes()
		if err != nil {
			t.Fatal(err)
		}
		times.rows = 100
		for i := 0; err == nil && i < 2*times.rows; i++ {
			err = times.add(sample(i))
		}
		if err == nil || !strings.Contains(err.Error(), "more than 100 processes, threads and names") {
			t.Errorf("%s: got error %v, want one about their number", name, err)
		}
		if err := times.recorder.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Many mappings of a file that exists are looked up, but not all frames for each of them.
func TestBombMappings(t *testing.T) {
	testenv.Slow(t)
	testenv.Limited(t, bombMemory, bombCPU/2, func(t *testing.T) {
		program, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		const mappings, frames = 20_000, 4_000_000
		p := &profile.Profile{Mappings: make([]profile.Mapping, 1), Frames: make([]profile.Frame, frames)}
		for i := range mappings {
			p.Mappings = append(p.Mappings, profile.Mapping{Path: program, Start: uint64(1+i) << 20})
		}
		p.Frames[frames-1] = profile.Frame{Mapping: mappings, Address: 1}
		linkAddresses(t.Context(), decode.Decoded{Profile: p, Format: decode.Firefox, Relative: true}, nil)
		if got, want := p.Frames[frames-1].Address, 1+p.Mappings[mappings].Base; got != want {
			t.Errorf("got address %#x, want %#x", got, want)
		}
	})
}
