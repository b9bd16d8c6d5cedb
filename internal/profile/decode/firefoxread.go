package decode

import (
	"fmt"
	"math"

	"fulgur/internal/profile"
)

// null is a missing number in a column. No column has rows or lines with this number.
const null = math.MinInt32

// firefoxProfile is the part of a Firefox Profiler profile that is read. Row and line
// numbers that do not fit into 32 bits become invalid ones.
type firefoxProfile struct {
	startTime, profilingStart, profilingEnd float64
	interval                                float64
	version                                 int
	categories                              []string
	product, oscpu                          string
	run                                     string // fulgur's description
	cpus                                    int

	libs []firefoxLib

	strings []string
	stacks  struct{ frame, prefix []int32 }
	frames  struct {
		address                              []int64
		lib, depth, function, category, line []int32
	}
	functions struct{ name, source, line []int32 }
	sources   []int32 // indexes of their names

	threads []firefoxThread
}

type firefoxLib struct{ path, codeID string }

type firefoxThread struct {
	name, processName, pid string
	tid                    string  // if it is a string
	tidNumber              float64 // otherwise
	stack                  []int32
	weight                 []float64
	weighs                 bool // weight is present
	weightType             string
}

// firefoxParser reads the JSON of a profile.
type firefoxParser struct {
	jsonReader
	profile firefoxProfile
	left    int64 // memory that may still be used, in bytes
}

// keep reserves n bytes of memory.
func (p *firefoxParser) keep(n int) error {
	if p.left -= int64(n); p.left < 0 {
		return fmt.Errorf("its tables take more than %d MiB", profile.MaxHeld>>20)
	}
	return nil
}

// members reads an object with a reader for each known member. It skips others.
func (p *firefoxParser) members(readers map[string]func() error) error {
	return p.object(func(key string) error {
		if read := readers[key]; read != nil {
			return read()
		}
		return p.skip()
	})
}

// parse reads the profile.
func (p *firefoxParser) parse() error {
	f := &p.profile
	return p.members(map[string]func() error{
		"meta": p.meta,
		"libs": func() error {
			return p.array(func() error {
				var l firefoxLib
				err := p.members(map[string]func() error{"path": p.text(&l.path), "codeId": p.text(&l.codeID)})
				f.libs = append(f.libs, l)
				return err
			})
		},
		"shared": func() error {
			return p.members(map[string]func() error{
				"stringArray": func() error { return p.texts(&f.strings) },
				"stackTable": func() error {
					return p.members(map[string]func() error{"frame": p.column(&f.stacks.frame), "prefixOffset": p.column(&f.stacks.prefix)})
				},
				"frameTable": func() error {
					return p.members(map[string]func() error{
						"address": p.addresses, "lib": p.column(&f.frames.lib), "inlineDepth": p.column(&f.frames.depth),
						"func": p.column(&f.frames.function), "category": p.column(&f.frames.category), "line": p.column(&f.frames.line),
					})
				},
				"funcTable": func() error {
					return p.members(map[string]func() error{
						"name": p.column(&f.functions.name), "source": p.column(&f.functions.source), "lineNumber": p.column(&f.functions.line),
					})
				},
				"sources": func() error { return p.members(map[string]func() error{"filename": p.column(&f.sources)}) },
			})
		},
		"threads": func() error { return p.array(p.thread) },
	})
}

func (p *firefoxParser) meta() error {
	f := &p.profile
	return p.members(map[string]func() error{
		"startTime": p.real(&f.startTime), "profilingStartTime": p.real(&f.profilingStart), "profilingEndTime": p.real(&f.profilingEnd),
		"interval": p.real(&f.interval), "preprocessedProfileVersion": p.int(&f.version),
		"product": p.text(&f.product), "oscpu": p.text(&f.oscpu), "logicalCPUs": p.int(&f.cpus),
		"fulgurRun": p.text(&f.run),
		"categories": func() error {
			return p.array(func() error {
				name := ""
				err := p.members(map[string]func() error{"name": p.text(&name)})
				f.categories = append(f.categories, name)
				return err
			})
		},
	})
}

func (p *firefoxParser) thread() error {
	var t firefoxThread
	err := p.members(map[string]func() error{
		"name": p.text(&t.name), "processName": p.text(&t.processName), "pid": p.text(&t.pid),
		"tid": func() (err error) {
			t.tid, t.tidNumber, err = p.textOrNumber()
			return err
		},
		"samples": func() error {
			return p.members(map[string]func() error{
				"stack": p.column(&t.stack), "weightType": p.text(&t.weightType),
				"weight": func() error { return p.weights(&t) },
			})
		},
	})
	if err != nil {
		return err
	}
	const size = 200
	p.profile.threads = append(p.profile.threads, t)
	return p.keep(size)
}

// text reads a string into s.
func (p *firefoxParser) text(s *string) func() error {
	return func() (err error) {
		if *s, err = p.string(); err != nil {
			return err
		}
		const size = 100 // including its share of the structure that holds it
		return p.keep(size + len(*s))
	}
}

// texts reads an array of strings.
func (p *firefoxParser) texts(list *[]string) error {
	*list = nil
	return p.array(func() error {
		s := ""
		err := p.text(&s)()
		*list = append(*list, s)
		return err
	})
}

func (p *firefoxParser) real(v *float64) func() error {
	return func() (err error) {
		*v, _, err = p.number()
		return err
	}
}

func (p *firefoxParser) int(v *int) func() error {
	return func() error {
		n, err := p.int32()
		*v = int(n)
		return err
	}
}

// int32 reads an integer, or null.
func (p *firefoxParser) int32() (int32, error) {
	v, isNull, err := p.number()
	switch {
	case err != nil || isNull:
		return null, err
	case v != math.Trunc(v):
		return 0, p.errorf("%v where a whole number was expected", v)
	}
	return int32(min(max(v, null+1), math.MaxInt32)), nil
}

// column reads an array of integers.
func (p *firefoxParser) column(list *[]int32) func() error {
	return func() error {
		*list = nil
		return p.array(func() error {
			v, err := p.int32()
			if err != nil {
				return err
			}
			*list = append(*list, v)
			return p.keep(4)
		})
	}
}

// addresses reads the column of addresses. Negative ones mean none.
func (p *firefoxParser) addresses() error {
	list := &p.profile.frames.address
	*list = nil
	return p.array(func() error {
		v, isNull, err := p.number()
		if err != nil {
			return err
		}
		if isNull || v < 0 || v >= 1<<63 {
			v = -1
		}
		*list = append(*list, int64(v))
		return p.keep(8)
	})
}

func (p *firefoxParser) weights(t *firefoxThread) error {
	t.weight, t.weighs = nil, false
	ok, err := p.begin('[')
	if !ok {
		return err
	}
	p.back()
	t.weighs = true
	return p.array(func() error {
		v, _, err := p.number()
		if err != nil {
			return err
		}
		t.weight = append(t.weight, v)
		return p.keep(8)
	})
}
