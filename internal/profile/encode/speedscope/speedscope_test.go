package speedscope

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
)

func TestWrite(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"typical": encodetest.Typical(),
		"threads": encodetest.Threads(),
		"owners":  encodetest.Owners(),
		"empty":   encodetest.Empty(),
		"hostile": encodetest.Hostile(),
		"large":   encodetest.Large(1000),
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			if err := Write(&out, p); err != nil {
				t.Fatal(err)
			}
			check(t, out.Bytes(), p)
			if name == "typical" || name == "threads" {
				encodetest.Golden(t, name+".json", out.Bytes())
			}
		})
	}
}

// check checks the requirements of the format's schema, and the sums.
func check(t *testing.T, data []byte, p *profile.Profile) {
	t.Helper()
	var got struct {
		Schema   string `json:"$schema"`
		Profiles []struct {
			Type, Name, Unit     string
			StartValue, EndValue int64
			Samples              [][]int
			Weights              []int64
		}
		Shared struct{ Frames []struct{ Name string } }
	}
	if err := json.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	if got.Schema != schema || len(got.Profiles) != len(p.ValueTypes) {
		t.Fatalf("got schema %q, %d profiles", got.Schema, len(got.Profiles))
	}
	for v, k := range got.Profiles {
		var sum int64
		for _, w := range k.Weights {
			sum += w
		}
		if sum != p.Total(v) || k.EndValue != sum || len(k.Samples) != len(k.Weights) || k.Type != "sampled" {
			t.Errorf("profile %d: got %d samples, %d weights of %d, want %d", v, len(k.Samples), len(k.Weights), sum, p.Total(v))
		}
		for _, stack := range k.Samples {
			for _, f := range stack {
				if f < 0 || f >= len(got.Shared.Frames) {
					t.Fatalf("got frame %d of %d", f, len(got.Shared.Frames))
				}
			}
		}
	}
}

func TestErrors(t *testing.T) {
	if err := Write(encodetest.FullDisk{}, encodetest.Typical()); !errors.Is(err, encodetest.ErrFullDisk) {
		t.Errorf("got error %v, want the writer's", err)
	}
}

func TestWriteIsLinear(t *testing.T) {
	encodetest.Linear(t, Write)
}

func BenchmarkWrite(b *testing.B) {
	p := encodetest.Large(20_000)
	for b.Loop() {
		if err := Write(io.Discard, p); err != nil {
			b.Fatal(err)
		}
	}
}
