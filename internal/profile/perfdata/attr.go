package perfdata

import "golang.org/x/sys/unix"

// attr is the part of a perf_event_attr that determines the layout of records.
type attr struct {
	sampleType, readFormat, branchType uint64
	userRegs                           uint64 // the sampled user registers
	sampleIDAll                        bool
	buildID                            bool // the event requests build IDs of mappings

	// The sampled event, and its period or frequency; the other is 0.
	typ                       uint32
	config, period, frequency uint64
}

// Bits of perf_event_attr without a name in x/sys/unix.
const (
	attrSampleIDAll  = 1 << 18 // in the flags
	minAttr          = 64      // PERF_ATTR_SIZE_VER0
	attrFreq         = 1 << 10 // in the flags
	attrBuildID      = 1 << 34 // in the flags
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
	at := func(offset int) uint64 { return (&fields{b: b[min(offset, len(b)):]}).u64() }
	period, frequency := at(offsetPeriod), uint64(0)
	if at(offsetFlags)&attrFreq != 0 {
		period, frequency = 0, period // a union
	}
	return attr{
		typ: (&fields{b: b}).u32(), config: at(offsetConfig), period: period, frequency: frequency,

		sampleType:  at(offsetSampleType),
		readFormat:  at(offsetReadFormat),
		branchType:  at(offsetBranchType),
		userRegs:    at(offsetUserRegs),
		sampleIDAll: at(offsetFlags)&attrSampleIDAll != 0,
		buildID:     at(offsetFlags)&attrBuildID != 0,
	}, true
}

// attrs holds the events of a file.
type attrs struct {
	all  []attr
	byID map[uint64]int // event ID to index in all
	ids  int            // total number added, including duplicates

	buildID bool // some event requests build IDs
}

// Limits on headers. A file with 1000 events on 1000 CPUs is within.
const (
	maxAttrs = 1 << 14
	maxIDs   = 1 << 21
)

// add adds an event and its IDs, and reports whether there is room.
func (as *attrs) add(a attr, ids []byte) bool {
	if len(as.all) >= maxAttrs || as.ids+len(ids)/8 > maxIDs {
		return false
	}
	as.ids += len(ids) / 8
	as.buildID = as.buildID || a.buildID
	if as.byID == nil {
		as.byID = make(map[uint64]int)
	}
	for f := (fields{b: ids}); len(f.b) >= 8; {
		as.byID[f.u64()] = len(as.all)
	}
	as.all = append(as.all, a)
	return true
}

// sample returns the event of a sample with this body.
func (as *attrs) sample(body []byte) (attr, bool) {
	if len(as.all) == 0 {
		return attr{}, false
	}
	first := as.all[0]
	if len(as.all) == 1 {
		return first, true
	}
	f := fields{b: body}
	t := first.sampleType
	if t&unix.PERF_SAMPLE_IDENTIFIER == 0 {
		// perf then uses the same layout for all events up to the ID.
		if t&unix.PERF_SAMPLE_ID == 0 {
			return first, true
		}
		for _, bit := range [...]uint64{unix.PERF_SAMPLE_IP, unix.PERF_SAMPLE_TID, unix.PERF_SAMPLE_TIME, unix.PERF_SAMPLE_ADDR} {
			if t&bit != 0 {
				f.u64()
			}
		}
	}
	id := f.u64()
	if i, ok := as.byID[id]; ok {
		return as.all[i], true
	}
	return first, !f.short
}

// trailer returns the size of the sample_id at the end of records other than samples, and
// the offset of the time within it, or -1.
func (a attr) trailer() (size, time int) {
	time = -1
	if !a.sampleIDAll {
		return 0, time
	}
	for _, bit := range [...]uint64{
		unix.PERF_SAMPLE_TID, unix.PERF_SAMPLE_TIME, unix.PERF_SAMPLE_ID,
		unix.PERF_SAMPLE_STREAM_ID, unix.PERF_SAMPLE_CPU, unix.PERF_SAMPLE_IDENTIFIER,
	} {
		if a.sampleType&bit == 0 {
			continue
		}
		if bit == unix.PERF_SAMPLE_TIME {
			time = size
		}
		size += 8
	}
	return size, time
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
	if len(as.all) == 1 || !first.sampleIDAll || len(body) < 8 || first.sampleType&unix.PERF_SAMPLE_IDENTIFIER == 0 {
		return first, true
	}
	f := fields{b: body[len(body)-8:]}
	if i, ok := as.byID[f.u64()]; ok {
		return as.all[i], true
	}
	return first, true
}
