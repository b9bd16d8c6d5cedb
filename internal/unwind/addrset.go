package unwind

import "math/bits"

// addrSet is a set of addresses that are near each other, such as those of instructions.
type addrSet struct {
	pages map[uint64]*addrPage
	// last is the page used last, and key its number.
	last *addrPage
	key  uint64
	n    int
}

// addrPage has a bit for each address of a page.
type addrPage [addrPageSize / 64]uint64

const (
	addrPageShift = 12
	addrPageSize  = 1 << addrPageShift
	// maxKeptPages bounds the memory that an empty set keeps.
	maxKeptPages = 64
)

// page returns the page of an address, or nil.
func (s *addrSet) page(addr uint64) *addrPage {
	key := addr >> addrPageShift
	if s.last == nil || s.key != key {
		p := s.pages[key]
		if p == nil {
			return nil
		}
		s.last, s.key = p, key
	}
	return s.last
}

// newPage returns the page of an address. It makes one if there is none.
func (s *addrSet) newPage(addr uint64) *addrPage {
	p := s.page(addr)
	if p == nil {
		if s.pages == nil {
			s.pages = map[uint64]*addrPage{}
		}
		p = new(addrPage)
		s.last, s.key = p, addr>>addrPageShift
		s.pages[s.key] = p
	}
	return p
}

func (s *addrSet) has(addr uint64) bool {
	p := s.page(addr)
	low := addr % addrPageSize
	return p != nil && p[low/64]>>(low%64)&1 != 0
}

// add adds an address. It reports whether the address is new.
func (s *addrSet) add(addr uint64) bool {
	p := s.newPage(addr)
	low := addr % addrPageSize
	bit := uint64(1) << (low % 64)
	if p[low/64]&bit != 0 {
		return false
	}
	p[low/64] |= bit
	s.n++
	return true
}

// addRange adds the addresses from start to end.
func (s *addrSet) addRange(start, end uint64) {
	for start < end {
		p := s.newPage(start)
		for limit := min(end, start&^(addrPageSize-1)+addrPageSize); start < limit; {
			low := start % addrPageSize
			n := min(limit-start, 64-low%64)
			word := ^uint64(0) >> (64 - n) << (low % 64)
			s.n += bits.OnesCount64(word &^ p[low/64])
			p[low/64] |= word
			start += n
		}
	}
}

// before returns the greatest address of the set that is at most addr, if it is in the same page or the
// one before.
func (s *addrSet) before(addr uint64) (found uint64, ok bool) {
	for range 2 {
		low := addr % addrPageSize
		if p := s.page(addr); p != nil {
			for i := int(low / 64); i >= 0; i-- {
				word := p[i]
				if i == int(low/64) {
					word &= ^uint64(0) >> (63 - low%64)
				}
				if word != 0 {
					return addr - low + uint64(64*i+63-bits.LeadingZeros64(word)), true
				}
			}
		}
		if addr < addrPageSize {
			break
		}
		addr = addr - low - 1
	}
	return 0, false
}

// clear removes all addresses.
func (s *addrSet) clear() {
	if len(s.pages) > maxKeptPages {
		*s = addrSet{}
		return
	}
	for _, p := range s.pages {
		*p = addrPage{}
	}
	s.n = 0
}
