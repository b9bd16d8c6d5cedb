package unwindmap

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Sizes of bpf/unwind.h.
const (
	pageShift = 14 // of words
	pageWords = 1 << pageShift
	pageBytes = 4 * pageWords
	// pageCost is the kernel memory that a page takes: it is one page of the
	// machine's more than its contents.
	pageCost = pageBytes + 4096
)

// pageMaps is where pages are: the kernel's maps.
type pageMaps interface {
	// attach has programs find pages with the given contents, nil for
	// zeros. It takes milliseconds.
	attach(pages []uint32, contents [][]byte) error
	// detach has programs find them no more, and returns when none does.
	detach(pages []uint32) error
	// read and write copy a page that is attached. Programs may read it
	// meanwhile, so write must not change words that are in use.
	read(page uint32, content []byte) error
	write(page uint32, content []byte) error
	// takeUsed calls yield with each page that programs used since the last
	// call.
	takeUsed(yield func(page uint32)) error
}

// errMemory is that of a table that the budget has no room for.
var errMemory = errors.New("no room in --unwind-memory")

// reserve is how many empty pages are attached beside those that are needed at
// once: the next table then does not wait for the kernel.
const reserve = 8

// pages keeps words in pages, of which no more than a budget are attached at a
// time. The others' contents are in a file. Its methods may be called from
// several goroutines; they can take milliseconds.
type pages struct {
	mu     sync.Mutex
	maps   pageMaps
	spool  *spool
	words  *runs
	all    map[uint32]*page // those that hold words, or are attached
	limit  int              // of attached pages
	slots  uint32           // pages there can be
	now    uint64           // counts evictions
	stats  PageStats
	buffer []byte
}

// PageStats counts what became of pages of 64 KiB.
type PageStats struct {
	// Attached is how many are in kernel memory now, Most how many were at a
	// time.
	Attached, Most int
	// Evicted and Reloaded count how often a page was taken out to make
	// room, and brought back because it was needed.
	Evicted, Reloaded uint64
}

// page is where a page's words are.
type page struct {
	used     int // words
	attached bool
	// spooled is whether the spool has its contents, as of now.
	spooled bool
	pinned  bool   // is being written
	age     uint64 // pages.now when it was last known to be used
}

// newPages returns pages of which as many are attached as fit in budget bytes.
func newPages(m pageMaps, slots uint32, budget int64) *pages {
	return &pages{
		maps: m, spool: &spool{}, slots: slots, words: newRuns(slots << pageShift),
		all: map[uint32]*page{}, limit: int(min(max(budget/pageCost, 1), int64(slots))), buffer: make([]byte, pageBytes),
	}
}

// place keeps words and returns where they begin.
func (p *pages) place(words []uint32) (start uint32, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(words) > p.limit<<pageShift {
		return 0, fmt.Errorf("%w for %d bytes", errMemory, 4*len(words))
	}
	start, ok := p.words.take(uint32(len(words)))
	if !ok {
		return 0, fmt.Errorf("%w for %d bytes", errMemory, 4*len(words))
	}
	if err := p.write(start, words); err != nil {
		return 0, errors.Join(err, p.giveBack(run{start, uint32(len(words))}))
	}
	return start, nil
}

// write writes words that no program reads yet.
func (p *pages) write(start uint32, words []uint32) error {
	var fresh []uint32
	var contents [][]byte
	p.eachPart(run{start, uint32(len(words))}, func(index uint32, part run) {
		at := p.page(index)
		at.used += int(part.n)
		at.age, at.pinned = p.now, true
		if !at.attached && !at.spooled {
			fresh = append(fresh, index)
		}
	})
	defer p.eachPart(run{start, uint32(len(words))}, func(index uint32, _ run) { p.all[index].pinned = false })
	spare := p.spare(len(fresh))
	defer func() {
		for _, index := range spare {
			if !p.all[index].attached {
				delete(p.all, index)
			}
		}
	}()
	err := p.makeRoom(len(fresh) + len(spare))
	p.eachPart(run{start, uint32(len(words))}, func(index uint32, part run) {
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

// page returns what is known of a page.
func (p *pages) page(index uint32) *page {
	at := p.all[index]
	if at == nil {
		at = &page{}
		p.all[index] = at
	}
	return at
}

// eachPart calls fn with the pages that a run lies in, and the part of it that
// lies there.
func (p *pages) eachPart(r run, fn func(index uint32, part run)) {
	for r.n > 0 {
		n := min(r.n, pageWords-r.start%pageWords)
		fn(r.start>>pageShift, run{r.start, n})
		r.start, r.n = r.start+n, r.n-n
	}
}

// spare returns the pages to attach in reserve, when n have to be attached: the
// lowest that hold nothing.
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
			break // there is a reserve
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
	p.stats.Most = max(p.stats.Most, p.stats.Attached)
	return nil
}

// makeRoom evicts pages until n more can be attached.
func (p *pages) makeRoom(n int) error {
	p.now++
	excess := p.stats.Attached + n - p.limit
	if excess <= 0 {
		return nil
	}
	if err := p.maps.takeUsed(func(index uint32) {
		if at := p.all[index]; at != nil {
			at.age = p.now
		}
	}); err != nil {
		return err
	}
	// Some more than needed: evicting takes as long for one as for many.
	victims := p.oldest(excess + p.limit/16)
	if len(victims) < excess {
		return errMemory
	}
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

// oldest returns the attached pages that were not used for longest, at most n and
// none of those that are being written.
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

// free takes back words that no program can find any more.
func (p *pages) free(r run) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.giveBack(r)
}

func (p *pages) giveBack(r run) error {
	p.words.giveBack(r)
	var empty []uint32
	p.eachPart(r, func(index uint32, part run) {
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

// reload brings pages back that programs asked for.
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

// Stats returns what became of pages so far.
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
