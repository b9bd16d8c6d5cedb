package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/timeline/timelinetest"
)

// readTimed reads the page of a recording, with its times.
func readTimed(t *testing.T, file []byte) (*profile.Profile, *profile.Timeline) {
	t.Helper()
	d, err := ReadWith(t.Context(), bytes.NewReader(file), "page", Options{Times: true})
	if err != nil {
		t.Fatal(err)
	}
	if d.Times == nil {
		t.Fatal("the page has no times")
	}
	return d.Profile, d.Times.Timeline(d.Profile, func(s profile.StackID) profile.StackID { return s })
}

// The page of a page has its values, stacks and times: the same weights in each step.
func TestReadPageTimes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for name, line := range map[string]*profile.Timeline{"busy": timelinetest.Busy(t, random), "recording": timelinetest.Recording(t)} {
		t.Run(name, func(t *testing.T) {
			first := page(t, line.Profile, flame.Options{Times: line})
			p, again := readTimed(t, first)
			second := page(t, p, flame.Options{Times: again})
			one, two := decoded(t, first, Page), decoded(t, second, Page)
			if diff := cmp.Diff(one.ValueTypes, two.ValueTypes); diff != "" {
				t.Fatalf("values (-page +again):\n%s", diff)
			}
			for v := range one.ValueTypes {
				if diff := cmp.Diff(sortedLines(t, one, v), sortedLines(t, two, v)); diff != "" {
					t.Errorf("%v (-page +again):\n%s", one.ValueTypes[v], diff)
				}
			}
			want, got := stepSums(t, first), stepSums(t, second)
			for key := range got {
				want[key] += 0 // also those that only the second page has
			}
			for key, sum := range want {
				if rounding := int64(1000); got[key] < sum-rounding || got[key] > sum+rounding {
					t.Errorf("thread %d, kind %d: the weight of step %d is %d, want %d", key[0], key[1], key[2], got[key], sum)
				}
			}
		})
	}
}

// stepSums returns the weights of a page by thread, kind and step.
func stepSums(t *testing.T, file []byte) map[[3]int]int64 {
	t.Helper()
	d, err := ReadWith(t.Context(), bytes.NewReader(file), "page", Options{Times: true})
	if err != nil {
		t.Fatal(err)
	}
	times := d.Times.(*pageTimes)
	sums := map[[3]int]int64{}
	for _, r := range times.rows {
		for i := r.first; i < r.end; i++ {
			sums[[3]int{int(r.thread), int(r.kind), int(times.at[i])}] += times.weight[i]
		}
	}
	return sums
}

func TestRequestNote(t *testing.T) {
	for op := profile.BlockRead; op <= profile.BlockOther; op++ {
		for flags := range profile.BlockFlags(32) {
			device, gotOp, gotFlags := request("nvme0n1 " + op.String() + flags.String())
			if device != "nvme0n1" || gotOp != op || gotFlags != flags {
				t.Errorf("%v%v: got %s %v%v", op, flags, device, gotOp, gotFlags)
			}
		}
	}
}

// dataOf returns the header and the columns of a page.
func dataOf(t testing.TB, file []byte) (header, columns []byte) {
	t.Helper()
	_, data, _ := bytes.Cut(file, []byte(pageScript))
	data, _, _ = bytes.Cut(data, []byte("</script>"))
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	size := binary.LittleEndian.Uint32(text)
	return text[4 : 4+size], text[4+size:]
}
