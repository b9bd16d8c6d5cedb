package samples

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

// taken returns the samples of p, each as one sample, in order.
func taken(p *profile.Profile) Batch {
	b := Batch{Profile: p}
	for i, s := range p.Samples {
		b.Samples = append(b.Samples, Sample{
			Time:  time.Date(2026, 1, 2, 3, 4, 5, 1000*(i+1), time.UTC),
			Stack: s.Stack, Task: s.Task, CPU: i % 4, Weight: 10_101_010, End: s.End,
		})
	}
	return b
}

var formats = map[string]func(io.Writer, Batch) error{"txt": WriteText, "jsonl": WriteJSON}

func TestWrite(t *testing.T) {
	for ending, write := range formats {
		for name, p := range map[string]*profile.Profile{
			"typical": encodetest.Typical(), "threads": encodetest.Threads(),
			"hostile": encodetest.Hostile(), "empty": encodetest.Empty(),
		} {
			b := taken(p)
			if name == "threads" {
				b.Dropped = 17
			}
			var out bytes.Buffer
			if err := write(&out, b); err != nil {
				t.Fatal(err)
			}
			encodetest.Golden(t, name+"."+ending, out.Bytes())
		}
	}
}

// Names cannot put unprintable characters or lines into the output.
func TestHostileNames(t *testing.T) {
	for ending, write := range formats {
		var out bytes.Buffer
		if err := write(&out, taken(encodetest.Hostile())); err != nil {
			t.Fatal(err)
		}
		for _, r := range out.String() {
			if !strconv.IsPrint(r) && r != '\n' {
				t.Errorf("%s: got %q, want it escaped", ending, r)
			}
		}
	}
}

// A line of JSON matches a sample of the profile.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	p := encodetest.Hostile()
	if err := WriteJSON(&out, taken(p)); err != nil {
		t.Fatal(err)
	}
	i := 0
	for text := range strings.Lines(out.String()) {
		var got line
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		want := p.Tasks[p.Samples[i].Task]
		comm := strings.ToValidUTF8(want.Comm, "\uFFFD")
		if strings.ReplaceAll(got.Comm, "\uFFFD", "") != strings.ReplaceAll(comm, "\uFFFD", "") || got.PID != want.PID {
			t.Errorf("got task %q %d, want %q %d", got.Comm, got.PID, want.Comm, want.PID)
		}
		i++
	}
	if i != len(p.Samples) {
		t.Errorf("got %d lines, want %d", i, len(p.Samples))
	}
}

func TestFullDisk(t *testing.T) {
	for ending, write := range formats {
		if err := write(encodetest.FullDisk{}, taken(encodetest.Typical())); !errors.Is(err, encodetest.ErrFullDisk) {
			t.Errorf("%s: got error %v, want the writer's", ending, err)
		}
	}
}
