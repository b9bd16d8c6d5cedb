package process

import (
	"bytes"
	"debug/elf"
	"io"
	"log/slog"
	"os"
	"slices"
	"sort"

	"fulgur/internal/linux/procfs"
	"fulgur/internal/symbols/elffile"
)

// Some programs copy their code to huge pages, at the same addresses: iodlr, "node
// --use-largepages", HHVM, ClickHouse, libhugetlbfs. The mapping then has no file, or one in
// memory. It is in the hole that the file's segment left, and has the same bytes. A JIT may reserve
// memory in such a hole, too; only the bytes tell them apart.
//
// V8 copies its built-in functions, whole pages, to memory near the code that it generates if it cannot map
// them there, as with --use-largepages.

const (
	// maxNeighbors is the number of mappings below and above a hole that may be the file's.
	maxNeighbors = 8
	// maxHoles is the number of mappings in a process that are compared with a file. Programs copy
	// their own code, and perhaps that of a few libraries.
	maxHoles = 16
	// maxLoaded is the number of segments of a file that are considered.
	maxLoaded = 32
	// compared is the size of a piece that is compared at a time, and maxCompared the number of
	// pieces. Of larger code, they are a sample.
	compared    = 64 << 10
	maxCompared = 64
	// comparedPage is the size of the parts of a piece, each of which has to be the same. A
	// debugger or a tracer may have changed up to 1/maxPatched of its code.
	comparedPage = 4 << 10
	maxPatched   = 8
	// minCopied and maxCopied bound the size of a copy at other addresses.
	minCopied = 128 << 10
	maxCopied = 16 << 20
	// maxSearched is the size of the code that is searched for where it is from, in a look.
	maxSearched = 256 << 20
	// maxAlike is the number of places in a file's code that are compared with a copy because they begin
	// alike.
	maxAlike = 8
	// minEvidence is the number of bytes other than zero that a copy has at least, where its code
	// is not shorter.
	minEvidence = 256
)

// code is a part of a file's code, and the mapping in which it may be.
type code struct {
	mapping
	from, until uint64 // addresses of the first byte, and one past the last
}

// copiesIn returns the current mappings of i, the image of process pid, that have no file but hold a
// copy of a file's code, as mappings of that file. maps are all mappings of the process. doubtful
// means that there is memory where a file's code should be, with other bytes: a copy may be under way.
// Copies at other addresses are searched once, in what is new since the look before.
func (t *Table) copiesIn(pid int, i *image, maps []procfs.Map, before looks) (copies []mapping, doubtful bool) {
	memory, tried, left := NewMemory(pid, t.files.budget), 0, uint64(maxSearched)
candidates:
	for known := range i.mappings().All() {
		at := known.start
		if known.holds(before.again) {
			at = before.again
		}
		n := sort.Search(len(maps), func(n int) bool { return maps[n].Limit > at })
		if known.kind != KindAnon || n == len(maps) || at < maps[n].Start || !maps[n].Executable {
			continue
		}
		hole := known.within(at, maps[n].Limit)
		for _, c := range t.codeAround(pid, i, maps, n, hole) {
			if tried++; tried > maxHoles {
				return copies, doubtful
			}
			// Writable memory may hold other code the next moment.
			if !maps[n].Writable && c.in(memory) {
				slog.Debug("copy of code", "pid", pid, "path", c.file.Path, "start", c.start, "limit", c.limit)
				copies = append(copies, c.mapping)
				continue candidates
			}
			doubtful = true
		}
		if !maps[n].Writable && hole.limit-hole.start >= minCopied && (before.last == 0 || known.from > before.last || at == before.again) {
			if tried++; tried > maxHoles {
				return copies, doubtful
			}
			if m, found := i.copiedTo(hole, memory, &left); found {
				slog.Debug("copy of code elsewhere", "pid", pid, "path", m.file.Path, "start", m.start, "limit", m.limit)
				copies = append(copies, m)
			}
		}
	}
	return copies, doubtful
}

// copiedTo finds the file whose code was copied to the beginning of hole, page by page. left is the size of
// the code that it may search; it subtracts what it has.
func (i *image) copiedTo(hole mapping, memory *Memory, left *uint64) (m mapping, found bool) {
	first := make([]byte, os.Getpagesize())
	if hole.start%uint64(len(first)) != 0 || memory.Read(first, hole.start) != nil || len(first)-bytes.Count(first, []byte{0}) < minEvidence {
		return mapping{}, false
	}
	searched := map[*File]bool{}
	for known := range i.mappings().All() {
		f := known.file
		if known.kind != KindFile || searched[f] {
			continue
		}
		searched[f] = true
		r, size, err := f.ReaderAt()
		if err != nil {
			continue
		}
		file, err := elffile.New(r, size, f.Path)
		if err != nil {
			continue // any mapped file
		}
		for _, s := range file.Segments() {
			if s.Type != elf.PT_LOAD || s.Flags&elf.PF_X == 0 || s.Offset > uint64(size) || s.FileSize > uint64(size)-s.Offset || s.FileSize > *left {
				continue
			}
			*left -= s.FileSize
			page := uint64(len(first))
			begin, end := s.Offset&^(page-1), min((s.Offset+s.FileSize+page-1)&^(page-1), uint64(size))
			if off, length := findPages(r, begin, end, first, hole, memory); length > 0 {
				return mapping{start: hole.start, limit: hole.start + length, off: off, from: hole.from, file: f, kind: KindFile, copied: true}, true
			}
		}
	}
	return mapping{}, false
}

// findPages finds the pages at the beginning of hole, of which the first one is given, among those of a file
// from one offset to another. It returns their offset, and the length of the pages that are the same: all of hole except
// for the last page, which may have other bytes at its end, or 0.
func findPages(r io.ReaderAt, from, end uint64, first []byte, hole mapping, memory *Memory) (off, length uint64) {
	page := uint64(len(first))
	buf, mine, got := make([]byte, compared), make([]byte, compared), make([]byte, compared)
	same := func(at, n uint64) bool { // whether n bytes of hole are those of the file
		want := mine[:n]
		if _, err := r.ReadAt(want, int64(off+at)); err != nil || memory.Read(got[:n], hole.start+at) != nil {
			return false
		}
		return bytes.Equal(want, got[:n])
	}
	alike := 0
	whole := min(max(hole.limit-hole.start, 2*page)-page, maxCopied)
	for at := from; at+whole <= end; at += compared {
		n := min(compared, end-at) &^ (page - 1)
		if _, err := r.ReadAt(buf[:n], int64(at)); err != nil {
			return 0, 0
		}
		for k := uint64(0); k < n; k += page {
			if !bytes.Equal(buf[k:k+page], first) || at+k+whole > end {
				continue
			}
			off = at + k
			for length = 0; length < whole && same(length, min(compared, whole-length)); length += min(compared, whole-length) {
			}
			if length < whole {
				if alike++; alike == maxAlike {
					return 0, 0
				}
				continue
			}
			if rest := hole.limit - hole.start - whole; rest == page && off+whole+page <= end && same(whole, page) {
				length += page
			}
			return off, length
		}
	}
	return 0, 0
}

// codeAround returns the code of the files next to maps[n] that belongs in hole, which is in maps[n].
func (t *Table) codeAround(pid int, i *image, maps []procfs.Map, n int, hole mapping) (found []code) {
	var last *File
	try := func(neighbor procfs.Map) (isFile bool) {
		if KindOf(neighbor.Name, neighbor.Ino) != KindFile {
			return false
		}
		m, _ := t.mapping(neighbor, 0, pid, i.parent)
		t.files.openQueued()
		if m.kind == KindFile && m.file != last {
			last = m.file
			found = append(found, m.codeIn(hole)...)
		}
		return true
	}
	for below := n - 1; below >= max(n-maxNeighbors, 0) && !try(maps[below]); below-- {
	}
	for above := n + 1; above < min(n+1+maxNeighbors, len(maps)) && !try(maps[above]); above++ {
	}
	return found
}

// codeIn returns the code of m's file that belongs in hole, according to the place of m and the
// file's segments.
func (m mapping) codeIn(hole mapping) (found []code) {
	r, size, err := m.file.ReaderAt()
	if err != nil {
		return nil
	}
	file, err := elffile.New(r, size, m.file.Path)
	if err != nil {
		return nil // any mapped file
	}
	return m.place(file.Segments(), uint64(size), hole)
}

// place is codeIn for a file of the given size with these segments.
func (m mapping) place(segments []elffile.Segment, size uint64, hole mapping) (found []code) {
	page := uint64(os.Getpagesize())
	down := func(n uint64) uint64 { return n &^ (page - 1) }
	loaded := slices.DeleteFunc(slices.Clone(segments), func(s elffile.Segment) bool {
		return s.Type != elf.PT_LOAD || s.FileSize == 0 || s.Offset > size || s.FileSize > size-s.Offset
	})
	loaded = loaded[:min(len(loaded), maxLoaded)]
	for _, mine := range loaded {
		// The kernel maps whole pages, so m may belong to any of two segments.
		if m.off < down(mine.Offset) || m.off >= mine.Offset+mine.FileSize {
			continue
		}
		bias := m.start - m.off - (mine.Addr - mine.Offset)
		if down(bias) != bias {
			continue
		}
		for _, s := range loaded {
			if s.Flags&elf.PF_X == 0 {
				continue
			}
			first, end := bias+s.Addr, bias+s.Addr+s.FileSize
			part := mapping{
				start: max(hole.start, down(first)), limit: min(hole.limit, down(end+page-1)),
				from: hole.from, file: m.file, kind: KindFile, copied: true,
			}
			part.off = part.start - first + s.Offset
			c := code{part, max(part.start, first), min(part.limit, end)}
			if c.from < c.until && !slices.Contains(found, c) {
				found = append(found, c)
			}
		}
	}
	return found
}

// in reports whether the code is in memory.
func (c code) in(memory *Memory) bool {
	r, _, err := c.file.ReaderAt()
	if err != nil {
		return false
	}
	length, step := c.until-c.from, uint64(compared)
	if length > compared*maxCompared {
		step = length / maxCompared
	}
	buf := make([]byte, 2*compared)
	evidence := uint64(0)
	for at := uint64(0); at < length; at += step {
		n := min(compared, length-at)
		want, got := buf[:n], buf[compared:compared+n]
		if _, err := r.ReadAt(want, int64(c.from+at-c.start+c.off)); err != nil {
			return false
		}
		if err := memory.Read(got, c.from+at); err != nil || !samePages(want, got) {
			return false
		}
		evidence += n - uint64(bytes.Count(want, []byte{0}))
	}
	return evidence >= min(minEvidence, length/2)
}

// samePages reports whether all pages of memory have the bytes that a piece of a file has, except for a
// few. Zeros do not count: they fill the rest of a short file's pages.
func samePages(want, got []byte) bool {
	for len(want) > 0 {
		n := min(len(want), comparedPage)
		if !bytes.Equal(want[:n], got[:n]) {
			differ := 0
			for k := range n {
				if want[k] != got[k] {
					differ++
				}
			}
			if differ > (n-bytes.Count(want[:n], []byte{0}))/maxPatched {
				return false
			}
		}
		want, got = want[n:], got[n:]
	}
	return true
}
