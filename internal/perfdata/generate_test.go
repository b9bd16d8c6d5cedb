package perfdata

import (
	"encoding/binary"
	"math/bits"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/bolt"
	"fulgur/internal/profile"
)

// recipe is a sequence of bytes that determines generated records. All bytes after its
// end are 0.
type recipe []byte

func (p *recipe) byte() byte {
	if len(*p) == 0 {
		return 0
	}
	b := (*p)[0]
	*p = (*p)[1:]
	return b
}

// number returns a number, small or near a power of two.
func (p *recipe) number() uint64 {
	b := p.byte()
	if b < 128 {
		return uint64(b)
	}
	return 1<<(b%64) + uint64(int64(int8(p.byte())))
}

// pid returns one of a few PIDs, or a hostile one.
func (p *recipe) pid() int32 {
	if b := p.byte(); b < 240 {
		return int32(b % 6)
	}
	return int32(p.number())
}

// address returns an address in user space, usually near a mapping.
func (p *recipe) address() uint64 {
	b := p.byte()
	if b < 200 {
		return 0x400000 + uint64(b)*0x100
	}
	return p.number()
}

// path returns the path of a file, or another mapping's name.
func (p *recipe) path() string {
	paths := [...]string{"/bin/sh", "/usr/bin/prog", "/lib/libc.so.6", "[vdso]", "//anon", "", "/a\x1b[31m", "/\xff\x00rest", profile.KernelPath + "_text"}
	b := p.byte()
	if b == 255 {
		return "/" + strings.Repeat("x", int(p.byte())*200)
	}
	return paths[int(b)%len(paths)]
}

// id returns a build ID in hexadecimal.
func (p *recipe) id() string {
	return strings.Repeat("0a1b2c3d", 5)[:2*(p.byte()%21)]
}

// chainAddresses returns a call chain with context markers.
func (p *recipe) chainAddresses() []uint64 {
	list := make([]uint64, 0, 64)
	for range 1 + int(p.byte())%40 {
		switch b := p.byte(); {
		case b < 30:
			list = append(list, contextUser)
		case b < 60:
			list = append(list, contextKernel)
		case b < 65:
			list = append(list, ^uint64(p.byte()))
		case b < 100:
			list = append(list, kernelStart+p.number()%(1<<24))
		default:
			list = append(list, p.address())
		}
	}
	return list
}

// words returns addresses and numbers.
func (p *recipe) words() []uint64 {
	list := make([]uint64, p.byte()%70)
	for i := range list {
		list[i] = p.address()
	}
	return list
}

// maxGenerated limits the number of records.
const maxGenerated = 200

// build generates a recording. It returns the number of samples, and whether perf could
// have written all records.
func (p *recipe) build() (b *builder, samples uint64, wellFormed bool) {
	kind := p.byte() % 8
	branches, copies := kind%4 == 0, kind == 3
	if b = newChainBuilder(); branches {
		b = newBuilder(p.byte()%2 == 0)
	}
	if copies {
		b.userOf(p.number())
	}
	wellFormed = true
	for range maxGenerated {
		if len(*p) == 0 {
			break
		}
		switch p.byte() % 16 {
		case 0, 1:
			b.mmap2(p.pid(), p.address()&^0xfff, p.number()<<8, p.number()<<12, p.path())
		case 2:
			b.mmap(p.pid(), p.address(), p.number(), p.number(), p.path())
		case 3:
			b.mmapBuildID(p.pid(), p.address(), p.number()<<10, p.number(), p.path(), p.id())
		case 4:
			b.fork(p.pid(), p.pid())
		case 5:
			b.exec(p.pid(), p.path())
		case 6:
			pid := p.pid()
			b.add(unix.PERF_RECORD_COMM, 2, pid, append(words(pid, p.pid()), padded(p.path())...))
		case 7:
			b.finishRound()
		case 8:
			b.buildID(p.path(), p.id())
		case 9:
			b.add(unix.PERF_RECORD_LOST, 0, 0, words(uint64(0), p.number()))
		case 10:
			b.time = p.number() // backwards, or far ahead
		case 11: // a random record
			body := make([]byte, int(p.byte())*int(p.byte()%8))
			for i := range min(len(body), 32) {
				body[i] = p.byte()
			}
			typ := uint32(p.byte())
			switch typ {
			case unix.PERF_RECORD_SAMPLE, recordCompressed, recordCompressed2:
				typ = unix.PERF_RECORD_READ
			case recordHeaderAttr, recordHeaderBuildID, recordAuxtrace, recordHeaderTracingData:
				wellFormed = false // files and pipes differ in its meaning
			}
			b.records = append(b.records, recordOf(typ, uint16(p.byte()), body))
		default:
			samples++
			if branches {
				var stack []bolt.Entry
				for range p.byte() % 33 {
					stack = append(stack, bolt.Entry{From: p.address(), To: p.address(), Flags: uint64(p.byte())})
				}
				b.sample(p.pid(), stack)
				continue
			}
			b.chain(p.pid(), p.pid(), uint16(p.byte()%8), p.chainAddresses()...)
			if copies {
				b.user(uint64(p.byte()%4), p.words(), p.words(), p.number())
			}
		}
	}
	return b, samples, wellFormed
}

// patch changes words of a file to make sizes and offsets hostile.
func (p *recipe) patch(file []byte) {
	for range p.byte() % 4 {
		at := int(p.number()%uint64(len(file))) &^ 3
		if p.byte()%2 == 0 {
			at = int(p.byte()) % fileHeaderSize &^ 7 // in the header
		}
		v := binary.NativeEndian.AppendUint64(nil, bits.RotateLeft64(p.number(), int(p.byte()%4)*8))
		copy(file[at:], v[:1+p.byte()%8])
	}
}
