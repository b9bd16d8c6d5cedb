package decode

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/firefox"
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

	// aggregated is set if the times of the samples are made up, see package firefox. A list of values
	// says so, too.
	aggregated bool
	monotonic  float64 // CLOCK_MONOTONIC at the start, in nanoseconds

	libs    []firefoxLib
	shared  firefoxTables
	sources []int32 // indexes of their names
	threads []firefoxThread
	values  []firefox.Value // of fulgur's profiles without times
}

// firefoxTables are the tables of stacks. Since version 65 or so, all threads share them;
// before, each had its own, at first with its own strings.
type firefoxTables struct {
	strings []string
	stacks  firefoxStackTable
	frames  struct {
		address                              []int64
		lib, depth, function, category, line []int32
		column                               []int32
	}
	// file is the name of the source file in versions without a table of sources.
	functions struct{ name, source, file, line, resource []int32 }
	resources []int32 // the indexes of their libs, in versions where frames have none
}

// firefoxStackTable has the frame of each stack and its caller's row. prefix is relative to
// the row if offsets is set, else absolute.
type firefoxStackTable struct {
	frame, prefix []int32
	offsets       bool
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
	time                   []float64 // in ms since the start of the profile
	tables                 firefoxTables
	own                    bool // tables are present
	ofFulgur               bool // fulgur wrote the profile
	value                  int  // index of its value in firefoxProfile.values, plus one; 0 if it has none
}

// firefoxParser reads the JSON of a profile.
type firefoxParser struct {
	jsonReader
	profile firefoxProfile
	left    int64           // memory that may still be used, in bytes
	times   bool            // keep the times of samples
	keys    map[string]bool // of the outermost object, as long as the version is unknown
}

// keep reserves n bytes of memory.
func (p *firefoxParser) keep(n int) error {
	if p.left -= int64(n); p.left < 0 {
		return fmt.Errorf("its tables take more than %d MiB", profile.MaxHeld>>20)
	}
	return nil
}

// array reads an array whose elements take size bytes each, in addition to their texts.
func (p *firefoxParser) array(size int, element func() error) error {
	return p.jsonReader.array(func() error {
		if err := p.keep(size); err != nil {
			return err
		}
		return element()
	})
}

// Memory of elements that are structures, in bytes. Growing slices leave as much behind.
const (
	firefoxLibSize      = 128
	firefoxCategorySize = 64
	firefoxThreadSize   = 1000
)

// members reads an object with a reader for each known member. It skips others.
func (p *firefoxParser) members(readers map[string]func() error) error {
	return p.object(func(key string) error {
		if read := readers[key]; read != nil {
			return read()
		}
		return p.skip()
	})
}

// parse reads the profile, which must be the only one in the file.
func (p *firefoxParser) parse() error {
	if err := p.whole(); err != nil {
		return err
	}
	if ends, err := p.ends(); err != nil || ends {
		return err
	}
	return p.errorf("more text after the profile: if the file has several profiles, split it")
}

// whole reads the object of the profile.
func (p *firefoxParser) whole() error {
	f := &p.profile
	readers := map[string]func() error{
		"meta": p.meta,
		"libs": func() error {
			return p.array(firefoxLibSize, func() error {
				var l firefoxLib
				err := p.members(map[string]func() error{"path": p.text(&l.path), "codeId": p.text(&l.codeID)})
				f.libs = append(f.libs, l)
				return err
			})
		},
		"shared": func() error {
			readers := p.tables(&f.shared)
			readers["sources"] = func() error { return p.members(map[string]func() error{"filename": p.column(&f.sources)}) }
			return p.members(readers)
		},
		"threads": func() error { return p.array(firefoxThreadSize, p.thread) },
	}
	const maxKeys = 100 // more than any known kind of JSON has
	return p.object(func(key string) error {
		if f.version == 0 && len(p.keys) < maxKeys {
			p.keys[profile.ShortName(key)] = true
		}
		if read := readers[key]; read != nil {
			return read()
		}
		return p.skip()
	})
}

// tables returns the readers of the tables of stacks.
func (p *firefoxParser) tables(t *firefoxTables) map[string]func() error {
	prefix := func(offsets bool) func() error {
		read := p.column(&t.stacks.prefix)
		return func() error {
			t.stacks.offsets = offsets
			return read()
		}
	}
	table := func(columns map[string]func() error) func() error {
		return func() error { return p.members(columns) }
	}
	return map[string]func() error{
		"stringArray": func() error { return p.texts(&t.strings) },
		"stackTable": table(map[string]func() error{
			"frame": p.column(&t.stacks.frame), "prefixOffset": prefix(true), "prefix": prefix(false),
		}),
		"frameTable": table(map[string]func() error{
			"address": p.addresses(&t.frames.address), "lib": p.column(&t.frames.lib), "inlineDepth": p.column(&t.frames.depth),
			"func": p.column(&t.frames.function), "category": p.column(&t.frames.category), "line": p.column(&t.frames.line),
			"column": p.column(&t.frames.column),
		}),
		"funcTable": table(map[string]func() error{
			"name": p.column(&t.functions.name), "source": p.column(&t.functions.source), "fileName": p.column(&t.functions.file),
			"lineNumber": p.column(&t.functions.line), "resource": p.column(&t.functions.resource),
		}),
		"resourceTable": table(map[string]func() error{"lib": p.column(&t.resources)}),
	}
}

func (p *firefoxParser) meta() error {
	f := &p.profile
	return p.members(map[string]func() error{
		"startTime": p.real(&f.startTime), "profilingStartTime": p.real(&f.profilingStart), "profilingEndTime": p.real(&f.profilingEnd),
		"interval": p.real(&f.interval), "preprocessedProfileVersion": p.int(&f.version),
		"product": p.text(&f.product), "oscpu": p.text(&f.oscpu), "logicalCPUs": p.int(&f.cpus),
		"fulgurRun": p.text(&f.run), "startTimeAsClockMonotonicNanosecondsSinceBoot": p.real(&f.monotonic),
		"extra": p.extra,
		"fulgurValues": func() error {
			f.aggregated = true
			return p.array(firefoxCategorySize, func() error {
				var v firefox.Value
				of, each := 0.0, 0.0
				err := p.members(map[string]func() error{"type": p.text(&v.Type), "unit": p.text(&v.Unit), "of": p.real(&of), "each": p.real(&each)})
				v.Of, v.Each = number32(of), int64(max(min(each, 1<<62), 0))
				f.values = append(f.values, v)
				return err
			})
		},
		"categories": func() error {
			return p.array(firefoxCategorySize, func() error {
				name := ""
				err := p.members(map[string]func() error{"name": p.text(&name)})
				f.categories = append(f.categories, name)
				return err
			})
		},
	})
}

// aggregatedNote begins the note of package firefox on profiles without times.
const aggregatedNote = "aggregated:"

// extra looks for [aggregatedNote] in the additional information.
func (p *firefoxParser) extra() error {
	return p.array(0, func() error { // none is kept
		return p.members(map[string]func() error{"entries": func() error {
			return p.array(0, func() error {
				value := ""
				err := p.members(map[string]func() error{"value": p.text(&value)})
				p.profile.aggregated = p.profile.aggregated || strings.HasPrefix(value, aggregatedNote)
				return err
			})
		}})
	})
}

func (p *firefoxParser) thread() error {
	var t firefoxThread
	readers := p.tables(&t.tables)
	for _, read := range slices.Collect(maps.Keys(readers)) {
		own := readers[read]
		readers[read] = func() error {
			t.own = t.own || read == "stackTable"
			return own()
		}
	}
	maps.Copy(readers, map[string]func() error{
		"fulgurValue": func() error {
			n := 0.0
			err := p.real(&n)()
			t.value = number32(n) + 1
			return err
		},
		"name": p.text(&t.name), "processName": p.text(&t.processName),
		"pid": func() error {
			text, number, err := p.id()
			if t.pid = text; text == "" {
				t.pid = strconv.Itoa(number32(number))
			}
			return err
		},
		"tid": func() (err error) {
			t.tid, t.tidNumber, err = p.id()
			return err
		},
		"samples": func() error {
			columns := map[string]func() error{
				"stack": p.column(&t.stack), "weightType": p.text(&t.weightType),
				"weight": func() error { return p.weights(&t) },
			}
			if p.times {
				columns["time"] = p.timeColumn(&t, false)
				columns["timeDeltas"] = p.timeColumn(&t, true)
			}
			return p.members(columns)
		},
	})
	if err := p.members(readers); err != nil {
		return err
	}
	p.profile.threads = append(p.profile.threads, t)
	return nil
}

// id reads the ID of a process or thread, a text or a number.
func (p *firefoxParser) id() (text string, number float64, err error) {
	if text, number, err = p.textOrNumber(); err != nil {
		return "", 0, err
	}
	return text, number, p.keep(len(text))
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
	return p.array(0, func() error { // text counts them
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
		return p.array(4, func() error {
			v, err := p.int32()
			*list = append(*list, v)
			return err
		})
	}
}

// addresses reads the column of addresses. Negative ones mean none.
func (p *firefoxParser) addresses(list *[]int64) func() error {
	return func() error {
		*list = nil
		return p.array(8, func() error {
			v, isNull, err := p.number()
			if isNull || v < 0 || v >= 1<<63 {
				v = -1
			}
			*list = append(*list, int64(v))
			return err
		})
	}
}

// timeColumn reads the times of samples, or their distances. Times do not descend.
func (p *firefoxParser) timeColumn(t *firefoxThread, deltas bool) func() error {
	return func() error {
		t.time = nil
		last := 0.0
		return p.array(8, func() error {
			v, isNull, err := p.number()
			switch {
			case isNull:
				v = last
			case deltas:
				v += last
			}
			last = min(max(v, last), maxFirefoxTime)
			t.time = append(t.time, last)
			return err
		})
	}
}

// maxFirefoxTime is the largest time of a sample, in ms: 35 years.
const maxFirefoxTime = 1 << 40

func (p *firefoxParser) weights(t *firefoxThread) error {
	t.weight, t.weighs = nil, false
	ok, err := p.begin('[')
	if !ok {
		return err
	}
	p.back()
	t.weighs = true
	return p.array(8, func() error {
		v, _, err := p.number()
		t.weight = append(t.weight, v)
		return err
	})
}
