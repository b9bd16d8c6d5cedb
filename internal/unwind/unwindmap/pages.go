package unwindmap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"

	"fulgur/internal/bpf"
)

const (
	pageShift = bpf.UnwindUnwindShiftUNWIND_PAGE_SHIFT // in words
	pageWords = 1 << pageShift
	pageBytes = 4 * pageWords
	// pageCost is the kernel memory taken by a page: its contents plus one page of
	// memory.
	pageCost = pageBytes + 4096
)

// pageMaps holds the attached pages: the kernel's maps.
type pageMaps interface {
	// attach makes pages with the given contents, where nil means zeros, visible to programs.
	// It takes milliseconds.
	attach(pages []uint32, contents [][]byte) error
	// detach hides pages from programs, and returns when no program uses them anymore.
	detach(pages []uint32) error
	// read and write copy an attached page. Programs may read it concurrently, so write
	// must not change words that are in use.
	read(page uint32, content []byte) error
	write(page uint32, content []byte) error
	// takeUsed calls yield with each page that programs used since the last call.
	takeUsed(yield func(page uint32)) error
}

// errMemory is returned for a table that does not fit into the budget.
var errMemory = errors.New("not enough memory for unwind tables")

// reserve is the number of empty pages that are attached in advance, so that the next
// table does not wait for the kernel.
const reserve = 8

// pages stores words in pages. A budget bounds the pages that are attached at a time; the
// contents of the others are in a file. Its methods are safe for concurrent use, and can
// take milliseconds.
type pages struct {
	mu       sync.Mutex
	maps     pageMaps
	spool    *spool
	words    *spans
	all      map[uint32]*page // pages that hold words or are attached
	limit    int              // maximum number of attached pages
	slots    uint32           // maximum number of pages
	now      uint64           // counts evictions
	lastCall uint64           // now after the last call of evictUnused
	stats    PageStats
	buffer   []byte
}

// PageStats counts pages, of 64 KiB each.
type PageStats struct {
	// Attached is the number of pages in kernel memory, and Peak its maximum so far.
	Attached, Peak int
	// Evicted is how often a page was evicted to make room, and Reloaded how often one
	// was brought back.
	Evicted, Reloaded uint64
}

// page is the state of a page.
type page struct {
	used     int // in words
	attached bool
	// spooled is whether the spool has its current contents.
	spooled bool
	pinned  bool   // it is being written
	age     uint64 // pages.now when it was last seen in use
}

// newPages returns an empty set of pages, with as many attached at a time as fit into
// budget bytes.
func newPages(m pageMaps, slots uint32, budget int64) *pages {
	return &pages{
		maps: m, spool: &spool{}, slots: slots, words: newSpans(slots << pageShift),
		all: map[uint32]*page{}, limit: int(min(max(budget/pageCost, 1), int64(slots))), buffer: make([]byte, pageBytes),
	}
}

// place stores words and returns their start.
func (p *pages) place(words []uint32) (start uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(words) > p.limit<<pageShift {
		return 0, fmt.Errorf("%w for %d bytes", errMemory, 4*len(words))
	}
	start, ok := p.words.alloc(uint32(len(words)))
	if !ok {
		return 0, fmt.Errorf("%w for %d bytes", errMemory, 4*len(words))
	}
	if err := p.write(start, words); err != nil {
		return 0, errors.Join(err, p.releaseWords(span{start, uint32(len(words))}))
	}
	return start, nil
}

// write writes words that no program reads yet.
func (p *pages) write(start uint32, words []uint32) error {
	var fresh []uint32
	var contents [][]byte
	p.eachPart(span{start, uint32(len(words))}, func(index uint32, part span) {
		at := p.page(index)
		at.used += int(part.n)
		at.age, at.pinned = p.now, true
		if !at.attached && !at.spooled {
			fresh = append(fresh, index)
		}
	})
	defer p.eachPart(span{start, uint32(len(words))}, func(index uint32, _ span) { p.all[index].pinned = false })
	spare := p.spare(len(fresh))
	defer func() {
		for _, index := range spare {
			if !p.all[index].attached {
				delete(p.all, index)
			}
		}
	}()
	err := p.makeRoom(len(fresh) + len(spare))
	p.eachPart(span{start, uint32(len(words))}, func(index uint32, part span) {
		if err != nil {
			return
		}
		at, content := p.all[index], p.buffer
		isFresh := slices.Contains(fresh, index)
		switch {
		case isFresh:
			content = make([]byte, pageBytes)
			contents = append(contents, content)
		case at.attached:
			err = p.maps.read(index, content)
		default:
			err = p.spool.read(index, content)
		}
		for i, w := range words[part.start-start:][:part.n] {
			binary.NativeEndian.PutUint32(content[4*(part.start%pageWords+uint32(i)):], w)
		}
		switch {
		case isFresh || err != nil:
		case at.attached:
			at.spooled = false
			err = p.maps.write(index, content)
		default:
			err = p.spool.write(index, content)
		}
	})
	if err != nil || len(fresh) == 0 {
		return err
	}
	return p.attach(append(fresh, spare...), append(contents, make([][]byte, len(spare))...))
}

// page returns the state of a page.
func (p *pages) page(index uint32) *page {
	at := p.all[index]
	if at == nil {
		at = &page{}
		p.all[index] = at
	}
	return at
}

// eachPart calls fn with each page of a span and the part of the span within that page.
func (p *pages) eachPart(r span, fn func(index uint32, part span)) {
	for r.n > 0 {
		n := min(r.n, pageWords-r.start%pageWords)
		fn(r.start>>pageShift, span{r.start, n})
		r.start, r.n = r.start+n, r.n-n
	}
}

// spare returns the pages to attach as a reserve along with n pages that are needed: the
// lowest empty ones.
func (p *pages) spare(n int) []uint32 {
	if n == 0 {
		return nil
	}
	var spare []uint32
	for index := uint32(0); index < p.slots && len(spare) < reserve && p.stats.Attached+n+len(spare) < p.limit; index++ {
		if at := p.all[index]; at == nil {
			p.page(index).age = p.now
			spare = append(spare, index)
		} else if at.used == 0 && at.attached {
			break // there is a reserve already
		}
	}
	return spare
}

func (p *pages) attach(indexes []uint32, contents [][]byte) error {
	if err := p.maps.attach(indexes, contents); err != nil {
		return err
	}
	for _, index := range indexes {
		p.all[index].attached = true
	}
	p.stats.Attached += len(indexes)
	p.stats.Peak = max(p.stats.Peak, p.stats.Attached)
	return nil
}

// makeRoom evicts pages until n more can be attached.
func (p *pages) makeRoom(n int) error {
	p.now++
	excess := p.stats.Attached + n - p.limit
	if excess <= 0 {
		return nil
	}
	if err := p.noteUsed(); err != nil {
		return err
	}
	// Evict more than needed: it takes as long for one page as for many.
	victims := p.oldest(excess + p.limit/16)
	if len(victims) < excess {
		return errMemory
	}
	return p.evict(victims)
}

// evictUnused evicts the pages that no program used since the last call. The first call evicts
// none.
func (p *pages) evictUnused() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	if err := p.noteUsed(); err != nil {
		return err
	}
	var victims []uint32
	for index, at := range p.all {
		if at.attached && !at.pinned && at.used > 0 && at.age < p.lastCall {
			victims = append(victims, index)
		}
	}
	p.now++
	p.lastCall = p.now
	return p.evict(victims)
}

// noteUsed updates the age of the pages that programs used since its last call.
func (p *pages) noteUsed() error {
	return p.maps.takeUsed(func(index uint32) {
		if at := p.all[index]; at != nil {
			at.age = p.now
		}
	})
}

// evict detaches pages after it has spooled their contents.
func (p *pages) evict(victims []uint32) error {
	for _, index := range victims {
		at := p.all[index]
		if at.used == 0 || at.spooled {
			continue
		}
		if err := p.maps.read(index, p.buffer); err != nil {
			return err
		}
		if err := p.spool.write(index, p.buffer); err != nil {
			return err
		}
		at.spooled = true
	}
	p.stats.Evicted += uint64(len(victims))
	return p.detach(victims)
}

// oldest returns up to n attached pages that have been unused the longest and are not
// being written.
func (p *pages) oldest(n int) []uint32 {
	var victims []uint32
	for index, at := range p.all {
		if at.attached && !at.pinned {
			victims = append(victims, index)
		}
	}
	slices.SortFunc(victims, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(p.all[a].age, p.all[b].age), cmp.Compare(a, b))
	})
	return victims[:min(n, len(victims))]
}

func (p *pages) detach(indexes []uint32) error {
	if len(indexes) == 0 {
		return nil
	}
	if err := p.maps.detach(indexes); err != nil {
		return err
	}
	for _, index := range indexes {
		at := p.all[index]
		at.attached = false
		if at.used == 0 {
			delete(p.all, index)
		}
	}
	p.stats.Attached -= len(indexes)
	return nil
}

// free releases words that programs no longer refer to.
func (p *pages) free(r span) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.releaseWords(r)
}

func (p *pages) releaseWords(r span) error {
	p.words.release(r)
	var empty []uint32
	p.eachPart(r, func(index uint32, part span) {
		at := p.page(index)
		at.used -= int(part.n)
		switch {
		case at.used > 0:
		case at.attached:
			empty = append(empty, index)
		default:
			delete(p.all, index)
		}
	})
	return p.detach(empty)
}

// reload brings back pages that programs requested.
func (p *pages) reload(indexes []uint32) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var wanted []uint32
	for _, index := range indexes {
		if at := p.all[index]; at != nil && !at.attached && at.spooled {
			at.age = p.now
			wanted = append(wanted, index)
		}
	}
	wanted = wanted[:min(len(wanted), p.limit)]
	if len(wanted) == 0 {
		return nil
	}
	if err := p.makeRoom(len(wanted)); err != nil {
		return err
	}
	contents := make([][]byte, len(wanted))
	for i, index := range wanted {
		contents[i] = make([]byte, pageBytes)
		if err := p.spool.read(index, contents[i]); err != nil {
			return err
		}
	}
	p.stats.Reloaded += uint64(len(wanted))
	return p.attach(wanted, contents)
}

// Stats returns the statistics so far.
func (p *pages) Stats() PageStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stats
}

func (p *pages) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spool.close()
}
