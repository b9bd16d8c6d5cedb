package unwindmap

import (
	"errors"
	"math/rand/v2"
	"testing"
)

// Tables that are placed and freed at random keep their contents, no matter how many pages
// are attached.
func TestPages(t *testing.T) {
	for name, pagesAttached := range map[string]int64{"plenty": 64, "few": 3} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel(config{})
			p := newPages(k, 64, pagesAttached*pageCost)
			defer p.close()
			random := rand.New(rand.NewPCG(1, 2))
			held := map[uint32][]uint32{}
			for range 300 {
				if random.IntN(3) == 0 {
					for start, words := range held { // in random order
						if err := p.free(span{start, uint32(len(words))}); err != nil {
							t.Fatal(err)
						}
						delete(held, start)
						break
					}
					continue
				}
				words := make([]uint32, 1+random.IntN(2*pageWords))
				for i := range words {
					words[i] = random.Uint32()
				}
				start, err := p.place(words)
				if errors.Is(err, errMemory) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				held[start] = words
				checkWords(t, k, p, held, random)
			}
			stats := p.Stats()
			t.Logf("%+v", stats)
			if int64(stats.Peak) > pagesAttached {
				t.Errorf("got %d pages attached, want at most %d", stats.Peak, pagesAttached)
			}
			if evicts := stats.Evicted > 0; evicts != (name == "few") {
				t.Errorf("got %d pages evicted, want some: %v", stats.Evicted, name == "few")
			}
			for start, words := range held {
				if err := p.free(span{start, uint32(len(words))}); err != nil {
					t.Fatal(err)
				}
			}
			for index, at := range p.all {
				if at.used != 0 {
					t.Errorf("page %d: got %d words in use, want 0", index, at.used)
				}
			}
		})
	}
}

// checkWords reads some words of each table, and requests pages that are not attached.
func checkWords(t *testing.T, k *fakeKernel, p *pages, held map[uint32][]uint32, random *rand.Rand) {
	t.Helper()
	for start, words := range held {
		for range 3 {
			i := random.IntN(len(words))
			got, err := k.word(start + uint32(i))
			if missing := pageError(0); errors.As(err, &missing) {
				if err := p.reload([]uint32{uint32(missing)}); err != nil {
					t.Fatal(err)
				}
				got, err = k.word(start + uint32(i))
			}
			if err != nil || got != words[i] {
				t.Fatalf("word %d: got %#x, %v; want %#x", start+uint32(i), got, err, words[i])
			}
		}
	}
}

func TestPagesTooLarge(t *testing.T) {
	p := newPages(newFakeKernel(config{}), 64, 2*pageCost)
	if _, err := p.place(make([]uint32, 3*pageWords)); !errors.Is(err, errMemory) {
		t.Errorf("placing a table that is larger than the memory: got %v, want %v", err, errMemory)
	}
}

// Pages in use stay attached; unused pages are evicted.
func TestPagesEvictUnused(t *testing.T) {
	k := newFakeKernel(config{})
	p := newPages(k, 64, 8*pageCost)
	defer p.close()
	used, err := p.place(make([]uint32, pageWords))
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if _, err := k.word(used); err != nil {
			t.Fatalf("the page in use was evicted: %v", err)
		}
		if _, err := p.place(make([]uint32, pageWords)); err != nil {
			t.Fatal(err)
		}
	}
}

// evictUnused leaves the pages that were used since its last call, and new ones.
func TestEvictUnused(t *testing.T) {
	k := newFakeKernel(config{})
	p := newPages(k, 64, 64*pageCost)
	defer p.close()
	place := func() uint32 {
		t.Helper()
		start, err := p.place(make([]uint32, pageWords))
		if err != nil {
			t.Fatal(err)
		}
		return start
	}
	evict := func() {
		t.Helper()
		if err := p.evictUnused(); err != nil {
			t.Fatal(err)
		}
	}
	attached := func(start uint32) bool { return p.all[start>>pageShift].attached }
	used, unused := place(), place()
	evict()
	if !attached(used) || !attached(unused) {
		t.Fatal("the first call evicted a page")
	}
	fresh := place()
	if _, err := k.word(used); err != nil {
		t.Fatal(err)
	}
	evict()
	if !attached(used) || attached(unused) || !attached(fresh) {
		t.Errorf("got attached: used %v, unused %v, new %v; want all but the unused one", attached(used), attached(unused), attached(fresh))
	}
	if err := p.reload([]uint32{unused >> pageShift}); err != nil || !attached(unused) {
		t.Errorf("reload an evicted page: attached %v, error %v", attached(unused), err)
	}
}
