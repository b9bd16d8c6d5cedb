package perfdata

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// attr is a perf_event_attr: the layout of its records, and what they mean.
type attr struct {
	perfevent.Layout
	inherit  bool // children count, too
	deferred bool // user call chains come later, see deferrals
	buildID  bool // the event requests build IDs of mappings

	// The sampled event, and its period or frequency; the other is 0.
	typ                       uint32
	config, period, frequency uint64
	// name is perf's name of the event, or "", and index its number in the file.
	name  string
	index int
}

// The bits that perf 7.2 knows. Any other one makes records longer in a way that nobody can guess.
const (
	knownSampleTypes = 1<<25 - 1
	knownReadFormats = 1<<5 - 1
	knownBranchTypes = 1<<20 - 1
)

// unknown returns a description of the lowest unknown bit that determines the layout of records, or "".
func (a attr) unknown() string {
	for _, set := range [...]struct {
		what        string
		bits, known uint64
	}{
		{"samples have the field", a.SampleType, knownSampleTypes},
		{"counts have the field", a.ReadFormat, knownReadFormats},
		{"branch records have the field", a.BranchType, knownBranchTypes},
	} {
		if rest := set.bits &^ set.known; rest != 0 {
			return fmt.Sprintf("%s of bit %d, which only a newer perf than 7.2 knows: send it through perf script", set.what, bits.TrailingZeros64(rest))
		}
	}
	return ""
}

// Bits of perf_event_attr without a name in x/sys/unix.
const (
	attrSampleIDAll  = 1 << 18 // in the flags
	minAttr          = 64      // PERF_ATTR_SIZE_VER0
	attrInherit      = 1 << 1  // in the flags
	attrFreq         = 1 << 10 // in the flags
	attrBuildID      = 1 << 34 // in the flags
	attrDeferred     = 1 << 38 // in the flags
	offsetConfig     = 8
	offsetPeriod     = 16
	offsetSampleType = 24
	offsetReadFormat = 32
	offsetFlags      = 40
	offsetBranchType = 72
	offsetUserRegs   = 80
)

// parseAttr parses b, a perf_event_attr of any version.
func parseAttr(b []byte) (attr, bool) {
	if len(b) < minAttr {
		return attr{}, false
	}
	at := func(offset int) uint64 { return (&perfevent.Fields{B: b[min(offset, len(b)):]}).U64() }
	period, frequency := at(offsetPeriod), uint64(0)
	if at(offsetFlags)&attrFreq != 0 {
		period, frequency = 0, period // a union
	}
	return attr{
		typ: (&perfevent.Fields{B: b}).U32(), config: at(offsetConfig), period: period, frequency: frequency,

		Layout: perfevent.Layout{
			SampleType:  at(offsetSampleType),
			ReadFormat:  at(offsetReadFormat),
			BranchType:  at(offsetBranchType),
			UserRegs:    at(offsetUserRegs),
			SampleIDAll: at(offsetFlags)&attrSampleIDAll != 0,
		},
		inherit:  at(offsetFlags)&attrInherit != 0,
		deferred: at(offsetFlags)&attrDeferred != 0,
		buildID:  at(offsetFlags)&attrBuildID != 0,
	}, true
}

// attrs holds the events of a file.
type attrs struct {
	all  []attr
	byID map[uint64]int // event ID to index in all
	ids  int            // total number added, including duplicates

	buildID bool // some event requests build IDs

	values []profile.ValueType // of all, see value
}

// Limits on headers. A file with 1000 events on 1000 CPUs is within.
const (
	maxAttrs = 1 << 14
	maxIDs   = 1 << 21
)

// add adds an event and its IDs. problem says why it cannot be read, or is "".
func (as *attrs) add(a attr, ids []byte) (problem string) {
	if len(as.all) >= maxAttrs || as.ids+len(ids)/8 > maxIDs {
		return "too many events"
	}
	if problem = a.unknown(); problem != "" {
		return problem
	}
	as.ids += len(ids) / 8
	as.buildID = as.buildID || a.buildID
	if as.byID == nil {
		as.byID = make(map[uint64]int)
	}
	for f := (perfevent.Fields{B: ids}); len(f.B) >= 8; {
		as.byID[f.U64()] = len(as.all)
	}
	a.index = len(as.all)
	as.all = append(as.all, a)
	return ""
}

// sample returns the event of a sample with this body.
func (as *attrs) sample(body []byte) (*attr, bool) {
	if len(as.all) == 0 {
		return nil, false
	}
	first := &as.all[0]
	if len(as.all) == 1 {
		return first, true
	}
	f := perfevent.Fields{B: body}
	t := first.SampleType
	if t&unix.PERF_SAMPLE_IDENTIFIER == 0 {
		// perf then uses the same layout for all events up to the ID.
		if t&unix.PERF_SAMPLE_ID == 0 {
			return first, true
		}
		for _, bit := range [...]uint64{unix.PERF_SAMPLE_IP, unix.PERF_SAMPLE_TID, unix.PERF_SAMPLE_TIME, unix.PERF_SAMPLE_ADDR} {
			if t&bit != 0 {
				f.U64()
			}
		}
	}
	id := f.U64()
	if a, ok := as.of(id); ok {
		return a, true
	}
	return first, !f.Short
}

// of returns the event with an ID.
func (as *attrs) of(id uint64) (*attr, bool) {
	i, ok := as.byID[id]
	if !ok {
		return nil, false
	}
	return &as.all[i], true
}

// setName sets perf's name of an event.
func (a *attr) setName(name string) {
	if len(name) <= profile.MaxName {
		a.name = name
	}
}

// generic returns the kernel's name of an event. ok is false if it has none.
func (a attr) generic() (name string, ok bool) {
	config := a.config
	switch a.typ {
	case unix.PERF_TYPE_HARDWARE, unix.PERF_TYPE_HW_CACHE:
		config &= math.MaxUint32 // the rest is the PMU's type, for a kind of cores
	case unix.PERF_TYPE_SOFTWARE:
	default:
		return "", false
	}
	name = perfevent.Name(a.typ, config)
	return name, !strings.HasPrefix(name, strconv.FormatUint(uint64(a.typ), 10)+":")
}

// value returns the value that samples of an event add up to, and whether it is time. It has the
// kernel's name of the event if no other event has the same, as cycles:u and cycles:k do. Otherwise, and
// for tracepoints and events of PMUs, it has perf's.
func (as *attrs) value(a *attr) (v profile.ValueType, isTime bool) {
	if as.values == nil {
		of := map[string]int{}
		for _, a := range as.all {
			name, _ := a.generic()
			of[name]++
		}
		for _, a := range as.all {
			name, ok := a.generic()
			if (!ok || of[name] > 1) && a.name != "" {
				name = a.name
			}
			v := profile.ValueType{Type: cmp.Or(name, perfevent.Name(a.typ, a.config)), Unit: "count"}
			if a.isTime() {
				v.Unit = "nanoseconds"
			}
			as.values = append(as.values, v)
		}
	}
	return as.values[a.index], a.isTime()
}

// isTime reports whether periods of the event are nanoseconds on the CPU.
func (a attr) isTime() bool { return perfevent.Spec{Type: a.typ, Config: a.config}.IsTime() }

// parseSample parses the body of a sample. Without a period of its own, it has the event's.
func (a *attr) parseSample(body []byte) (perfevent.Sample, error) {
	s, err := a.ParseSample(body)
	if !a.Has(unix.PERF_SAMPLE_PERIOD) {
		s.Period = a.period
	}
	return s, err
}

// other returns the event of a record other than a sample. Its ID is at the end, or
// before the CPU and identifier at the end. A record that perf synthesized has no event: it
// has the layout of the first event, and requests build IDs if any event does.
func (as *attrs) other(body []byte) (attr, bool) {
	if len(as.all) == 0 {
		return attr{}, false
	}
	first := as.all[0]
	first.buildID = as.buildID
	if len(as.all) == 1 || !first.SampleIDAll || len(body) < 8 || first.SampleType&unix.PERF_SAMPLE_IDENTIFIER == 0 {
		return first, true
	}
	f := perfevent.Fields{B: body[len(body)-8:]}
	if a, ok := as.of(f.U64()); ok {
		return *a, true
	}
	return first, true
}
