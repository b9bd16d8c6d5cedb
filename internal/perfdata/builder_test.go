package perfdata

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"io"
	"testing"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
)

// builder writes perf.data like perf.
type builder struct {
	attr    []byte // perf_event_attr
	records [][]byte
	ids     []byte // build-ID records
	time    uint64
}

const builtSampleType = unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_BRANCH_STACK

func words(v ...any) []byte {
	var b []byte
	for _, v := range v {
		b, _ = binary.Append(b, binary.NativeEndian, v)
	}
	return b
}

// padded returns s with at least one NUL, padded to a multiple of 8 bytes.
func padded(s string) []byte {
	return append([]byte(s), make([]byte, 8-len(s)%8)...)
}

func recordOf(typ uint32, misc uint16, body []byte) []byte {
	return append(words(typ, misc, uint16(headerSize+len(body))), body...)
}

// newBuilder returns a builder for samples of cycles with branch stacks. hwIndex adds the
// field that perf records since 5.7.
func newBuilder(hwIndex bool) *builder {
	b := &builder{attr: make([]byte, 112), time: 1e9}
	branchType := uint64(unix.PERF_SAMPLE_BRANCH_ANY)
	if hwIndex {
		branchType |= unix.PERF_SAMPLE_BRANCH_HW_INDEX
	}
	for offset, v := range map[int]uint64{
		0: 112 << 32, 16: 4000, offsetSampleType: builtSampleType,
		offsetFlags: attrSampleIDAll | 1<<8 | 1<<9 | 1<<10 | 1<<13 | 1<<23 | 1<<24, offsetBranchType: branchType,
	} {
		binary.NativeEndian.PutUint64(b.attr[offset:], v)
	}
	return b
}

// add adds a record with a sample_id.
func (b *builder) add(typ uint32, misc uint16, pid int32, body []byte) {
	b.time += 1000
	b.records = append(b.records, recordOf(typ, misc, append(body, words(pid, pid, b.time)...)))
}

func (b *builder) mmap2(pid int32, start, size, offset uint64, path string) {
	body := words(pid, pid, start, size, offset, uint32(8), uint32(1), uint64(77), uint64(0), uint32(unix.PROT_READ|unix.PROT_EXEC), uint32(2))
	b.add(unix.PERF_RECORD_MMAP2, 2, pid, append(body, padded(path)...))
}

// mmap adds an MMAP record, as from kernels before 3.12.
func (b *builder) mmap(pid int32, start, size, offset uint64, path string) {
	b.add(unix.PERF_RECORD_MMAP, 2, pid, append(words(pid, pid, start, size, offset), padded(path)...))
}

// requestBuildIDs sets the event's flag that makes the kernel write build IDs in place of inodes.
func (b *builder) requestBuildIDs() {
	flags := b.attr[offsetFlags:]
	binary.NativeEndian.PutUint64(flags, binary.NativeEndian.Uint64(flags)|attrBuildID)
}

// mmapBuildID adds a record with a build ID in place of the inode.
func (b *builder) mmapBuildID(pid int32, start, size, offset uint64, path, id string) {
	b.requestBuildIDs()
	raw, _ := hex.DecodeString(id)
	body := append(words(pid, pid, start, size, offset, uint32(len(raw))), raw...)
	body = append(body, make([]byte, 20-len(raw))...)
	body = append(body, words(uint32(unix.PROT_READ|unix.PROT_EXEC), uint32(2))...)
	b.add(unix.PERF_RECORD_MMAP2, 2|unix.PERF_RECORD_MISC_MMAP_BUILD_ID, pid, append(body, padded(path)...))
}

func (b *builder) fork(parent, pid int32) {
	b.add(unix.PERF_RECORD_FORK, 0, parent, words(pid, parent, pid, parent, b.time))
}

func (b *builder) exec(pid int32, comm string) {
	b.add(unix.PERF_RECORD_COMM, unix.PERF_RECORD_MISC_COMM_EXEC|2, pid, append(words(pid, pid), padded(comm)...))
}

func (b *builder) sample(pid int32, stack []bolt.Entry) {
	b.time += 1000
	var ip uint64
	if len(stack) > 0 {
		ip = stack[0].To
	}
	body := words(ip, pid, pid, b.time, uint64(1), uint64(len(stack)))
	if binary.NativeEndian.Uint64(b.attr[offsetBranchType:])&unix.PERF_SAMPLE_BRANCH_HW_INDEX != 0 {
		body = append(body, words(^uint64(0))...)
	}
	for _, e := range stack {
		body = append(body, words(e.From, e.To, e.Flags)...)
	}
	b.records = append(b.records, recordOf(unix.PERF_RECORD_SAMPLE, 2, body))
}

func (b *builder) finishRound() {
	b.records = append(b.records, recordOf(recordFinishedRound, 0, nil))
}

func (b *builder) buildID(path, id string) {
	raw, _ := hex.DecodeString(id)
	body := append(words(int32(-1)), append(raw, make([]byte, 24-len(raw))...)...)
	b.ids = append(b.ids, recordOf(recordHeaderBuildID, 2, append(body, padded(path)...))...)
}

// file returns a perf.data file with the given records.
func (b *builder) file(data []byte) []byte {
	const features = 1<<featureBuildID | 1<<27 // HEADER_COMPRESSED
	attrAt := uint64(fileHeaderSize)
	attrSize := uint64(len(b.attr) + 16)
	idsAt := attrAt + attrSize
	dataAt := idsAt + 8
	out := append([]byte(magicFile), words(uint64(fileHeaderSize), attrSize, attrAt, attrSize,
		dataAt, uint64(len(data)), uint64(0), uint64(0), uint64(features), [3]uint64{})...)
	out = append(append(out, b.attr...), words(idsAt, uint64(8), uint64(1))...)
	out = append(out, data...)
	table := uint64(len(out)) + 32
	out = append(out, words(table, uint64(len(b.ids)), table+uint64(len(b.ids)), uint64(20))...)
	out = append(out, b.ids...)
	// Version, type (zstd), level, ratio, length of the mmap.
	return append(out, words([5]uint32{1, 1, 1, 1, 528384})...)
}

func (b *builder) plain() []byte { return bytes.Join(b.records, nil) }

// compressed returns the records in compressed records, split at arbitrary offsets.
// FINISHED_ROUND records stay uncompressed.
func (b *builder) compressed(t testing.TB, typ uint32) []byte {
	var out, piece bytes.Buffer
	z, err := zstd.NewWriter(&piece, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	flush := func() {
		if err := z.Flush(); err != nil {
			t.Fatal(err)
		}
		if piece.Len() == 0 {
			return
		}
		body := piece.Bytes()
		if typ == recordCompressed2 {
			body = append(words(uint64(len(body))), body...)
			body = append(body, make([]byte, -len(body)&7)...)
		}
		out.Write(recordOf(typ, 0, body))
		piece.Reset()
	}
	n := 0
	for _, rec := range b.records {
		if binary.NativeEndian.Uint32(rec) == recordFinishedRound {
			flush()
			out.Write(rec)
			continue
		}
		for len(rec) > 0 {
			part := rec[:min(len(rec), 4096-n%4096)]
			rec = rec[len(part):]
			z.Write(part)
			if n += len(part); n%4096 == 0 {
				flush()
			}
		}
	}
	flush()
	return out.Bytes()
}

// pipe returns the format that perf writes to a pipe, with the given records.
func (b *builder) pipe(data []byte) []byte {
	out := append([]byte(magicFile), words(uint64(pipeHeaderSize))...)
	out = append(out, recordOf(recordHeaderAttr, 0, append(bytes.Clone(b.attr), words(uint64(1))...))...)
	out = append(out, data...)
	return append(out, b.ids...)
}

// collectFrom adds the samples of a perf.data file to c.
func collectFrom(ctx context.Context, r io.ReaderAt, size int64, name string, c *bolt.Collector, opts Options) (Stats, error) {
	f, err := openFile(r, size, name)
	if err != nil {
		return Stats{}, err
	}
	return f.collect(ctx, c, opts)
}

// readCallChains reads the call chains of a perf.data file.
func readCallChains(ctx context.Context, r io.ReaderAt, size int64, name string, o ChainOptions) (*CallChains, error) {
	f, err := openFile(r, size, name)
	if err != nil {
		return nil, err
	}
	return f.callChains(ctx, o)
}
