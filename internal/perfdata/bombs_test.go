package perfdata

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// Limits for reading a hostile file.
const (
	bombMemory = 512 << 20
	bombCPU    = 60 * time.Second
)

// packed returns perf.data of a pipe with n compressed records, made by record.
func packed(t *testing.T, n int, record func(i int) []byte) []byte {
	t.Helper()
	var out, piece bytes.Buffer
	z, err := zstd.NewWriter(&piece, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		z.Write(record(i))
		if i%100 == 99 || i == n-1 {
			z.Flush()
			out.Write(recordOf(recordCompressed, 0, piece.Bytes()))
			piece.Reset()
		}
	}
	return newChainBuilder().pipe(out.Bytes())
}

// trailed returns a record with a sample_id of process 1 and a time.
func trailed(typ uint32, misc uint16, body []byte, when int) []byte {
	return recordOf(typ, misc, append(body, words(int32(1), int32(1), uint64(when))...))
}

// Names of 60 kB, which compress well, are kept only up to the length of a task's name.
func TestBombNames(t *testing.T) {
	testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
		name := padded(strings.Repeat("x", 60_000))
		sample := recordOf(unix.PERF_RECORD_SAMPLE, modeUser, words(uint64(1), int32(1), int32(1), uint64(1<<40), uint64(10), uint64(1), uint64(1)))
		const n = 12_000
		data := packed(t, n, func(i int) []byte {
			if i == n-1 {
				return sample
			}
			return trailed(unix.PERF_RECORD_COMM, 0, append(words(int32(1), int32(i)), name...), i+1)
		})
		if len(data) > 2<<20 {
			t.Fatalf("got a file of %d bytes", len(data))
		}
		c := readChains(t, data)
		if got := c.Profile.Total(0); got != 1 {
			t.Errorf("got %d samples, want 1", got)
		}
	})
}

// Many different paths of 60 kB are refused before they use much memory.
func TestBombPaths(t *testing.T) {
	testenv.Limited(t, bombMemory, bombCPU, func(t *testing.T) {
		long := strings.Repeat("x", 60_000)
		data := packed(t, 10_000, func(i int) []byte {
			body := words(int32(1), int32(1), uint64(i)<<20, uint64(0x1000), uint64(0))
			return trailed(unix.PERF_RECORD_MMAP, 0, append(body, padded(fmt.Sprint("/", i, long))...), i+1)
		})
		_, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{})
		if err == nil || !strings.Contains(err.Error(), "more different mapped files") {
			t.Errorf("got error %v, want %q in it", err, "more different mapped files")
		}
	})
}

// Thousands of events that share one long table of IDs are refused: the table is read for
// each.
func TestBombIDs(t *testing.T) {
	testenv.Limited(t, bombMemory, 20*time.Second, func(t *testing.T) {
		const events, ids = 8000, 1 << 20
		attr := newChainBuilder().attr
		entry := uint64(len(attr) + 16)
		idsAt := fileHeaderSize + entry*events
		dataAt := idsAt + 8*ids
		data := append([]byte(magicFile), words(uint64(fileHeaderSize), entry, uint64(fileHeaderSize), entry*events,
			dataAt, uint64(8), uint64(0), uint64(0), [4]uint64{})...)
		for range events {
			data = append(append(data, attr...), words(idsAt, uint64(8*ids))...)
		}
		for i := range uint64(ids) {
			data = binary.NativeEndian.AppendUint64(data, i)
		}
		data = append(data, recordOf(recordFinishedRound, 0, nil)...)
		_, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{})
		if err == nil || !strings.Contains(err.Error(), "too many events") {
			t.Errorf("got error %v, want %q in it", err, "too many events")
		}
	})
}
