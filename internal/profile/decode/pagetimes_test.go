package decode

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/encodetest"
	"fulgur/internal/profile/encode/flame"
	"fulgur/internal/profile/timeline"
	"fulgur/internal/profile/timeline/timelinetest"
)

// busy returns a recording with all kinds of events of three threads.
func busy(t testing.TB, random *rand.Rand) *profile.Timeline {
	t.Helper()
	const start, ms = int64(3_000_000_000), int64(time.Millisecond)
	p, stacks := encodetest.TypicalStacks()
	p.Tasks, p.Samples = nil, nil
	r, err := timeline.NewRecorder(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	process := r.Process(42, start)
	r.NameProcess(process, start, "app")
	hit := r.AddMarkerType(profile.MarkerType{Name: "sched:x", Event: "sched:x"})
	sizes := r.AddMarkerType(profile.MarkerType{Name: "malloc", Event: "alloc", Unit: "bytes"})
	for i, name := range []string{"main", "worker", "log"} {
		thread := r.Thread(process, 42+i, start)
		r.NameThread(thread, start, name)
		for at := start; at < start+3000*ms; {
			s := stacks[1+random.IntN(len(stacks)-1)]
			length := (1 + random.Int64N(40)) * ms / 4
			var err error
			switch random.IntN(6) {
			case 0:
				err = r.AddOffCPU(thread, profile.OffCPU{Start: at, Duration: length, State: profile.TaskState(random.IntN(3)), Stack: s})
			case 1:
				err = r.AddBlockIO(thread, profile.BlockIO{Queued: at, Issued: at, Completed: at + length, Device: "sda", Bytes: 512, Op: profile.BlockOp(random.IntN(5)), Flags: profile.BlockFlags(random.IntN(32)), Stack: s, File: "/data"})
			case 2:
				err = r.AddFault(thread, profile.Fault{Time: at, Count: 3, File: []string{"", "/bin/app"}[random.IntN(2)], Stack: s})
			case 3:
				err = r.AddMarker(thread, profile.Marker{Time: at, Type: hit, Stack: s})
				if err == nil {
					err = r.AddMarker(thread, profile.Marker{Time: at, Type: sizes, Stack: s, Weight: 100})
				}
			default:
				err = r.AddOnCPU(thread, profile.OnCPU{Time: at + length - 1, Stack: s, Weight: length})
			}
			if err != nil {
				t.Fatal(err)
			}
			at += length
		}
	}
	line, err := r.Timeline(p, start+3001*ms, func(s profile.StackID) profile.StackID { return s })
	if err != nil {
		t.Fatal(err)
	}
	line.Interval = 5 * ms
	line.Reasons = map[profile.StackID]string{stacks[1]: "futex", stacks[3]: "disk read"}
	return line
}

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
	for name, line := range map[string]*profile.Timeline{"busy": busy(t, random), "recording": timelinetest.Recording(t)} {
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
