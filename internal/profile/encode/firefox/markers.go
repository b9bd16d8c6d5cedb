package firefox

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"fulgur/internal/profile"
)

// schema describes the markers to the front end, except the markers of events.
//
//go:embed schema.json
var schema []byte

// schemas returns the descriptions of all markers.
func schemas(types []profile.MarkerType) []json.RawMessage {
	var all []json.RawMessage
	if err := json.Unmarshal(schema, &all); err != nil {
		panic(err) // it is part of the program
	}
	longest := map[string]profile.MarkerType{}
	var names []string
	for _, t := range types {
		known, ok := longest[t.Name]
		if !ok {
			names = append(names, t.Name)
		}
		if !ok || len(t.Fields) > len(known.Fields) {
			longest[t.Name] = t
		}
	}
	for _, name := range names {
		b, _ := json.Marshal(newSchema(longest[name])) // cannot fail
		all = append(all, b)
	}
	return all
}

// markerSchema describes a type of markers to the front end.
type markerSchema struct {
	Name         string        `json:"name"`
	TooltipLabel string        `json:"tooltipLabel"`
	ChartLabel   string        `json:"chartLabel"`
	TableLabel   string        `json:"tableLabel"`
	Display      []string      `json:"display"`
	Fields       []schemaField `json:"fields"`
}

type schemaField struct {
	Key    string `json:"key"`
	Label  string `json:"label"`
	Format string `json:"format"`
}

// newSchema describes the markers of an event.
func newSchema(t profile.MarkerType) markerSchema {
	s := markerSchema{Name: t.Name, Display: []string{"marker-chart", "marker-table", "timeline-overview"}, Fields: []schemaField{}}
	labels := make([]string, len(t.Fields))
	for i, name := range t.Fields {
		s.Fields = append(s.Fields, schemaField{fieldKey(i), name, "string"})
		labels[i] = notInLabels.Replace(name) + "={marker.data." + fieldKey(i) + "}"
	}
	s.TooltipLabel = notInLabels.Replace(t.Name)
	s.TableLabel = strings.Join(labels, " ")
	s.ChartLabel = s.TableLabel
	return s
}

// notInLabels replaces the characters that enclose fields in labels.
var notInLabels = strings.NewReplacer("{", "(", "}", ")")

// fieldKey returns the key of a field of an event. The names of fields could equal keys of
// other members.
func fieldKey(i int) string { return "field" + strconv.Itoa(i) }

// Phases of markers: MarkerPhase in the front end.
const (
	phaseInstant  = 0
	phaseInterval = 1
)

// marker is a row of a thread's markers. Exactly one of its events is not nil.
type marker struct {
	start, end int64 // in nanoseconds since the start of the profile
	tid        any   // of the thread
	kind       markerKind

	off     profile.OffCPU
	reason  string
	io      profile.BlockIO
	fault   profile.Fault
	hit     profile.Marker
	of      *profile.MarkerType // of hit
	renamed string
}

type markerKind uint8

const (
	markerOffCPU markerKind = iota
	markerBlockIO
	markerFault
	markerName
	markerHit
)

// name returns the marker's name, which is also the type of its data.
func (m *marker) name() string {
	if m.kind == markerHit {
		return m.of.Name
	}
	return [...]string{markerOffCPU: "OffCpu", markerBlockIO: "BlockIO", markerFault: "PageFault", markerName: "Renamed"}[m.kind]
}

func (m *marker) category() int {
	return [...]int{
		markerOffCPU: categoryIdle, markerBlockIO: categoryDisk, markerFault: categoryMemory, markerName: categoryOther,
		markerHit: categoryOther,
	}[m.kind]
}

// phase distinguishes instants from intervals.
func (m *marker) phase() int64 {
	if m.kind == markerName || m.kind == markerHit && !m.of.Spans || m.kind == markerFault && m.fault.Latency == 0 {
		return phaseInstant
	}
	return phaseInterval
}

// writeMarkers writes the table of markers. It reads them once for each column.
func writeMarkers(j *jsonWriter, t *tables, markers iter.Seq2[marker, error]) error {
	j.begin('{')
	n := 0
	err := streamColumn(j, "data", markers, func(m marker) {
		n++
		m.writeData(j, t)
	})
	if err != nil {
		return err
	}
	for _, c := range []struct {
		name  string
		value func(marker)
	}{
		{"name", func(m marker) { j.int(int64(t.string(m.name()))) }},
		{"category", func(m marker) { j.int(int64(m.category())) }},
		{"phase", func(m marker) { j.int(m.phase()) }},
		{"startTime", func(m marker) { j.ms(m.start) }},
		{"endTime", func(m marker) {
			if m.phase() == phaseInstant {
				j.null()
				return
			}
			j.ms(m.end)
		}},
	} {
		if err := streamColumn(j, c.name, markers, c.value); err != nil {
			return err
		}
	}
	j.member("length", n)
	j.end('}')
	return nil
}

// writeData writes the data of a marker.
func (m *marker) writeData(j *jsonWriter, t *tables) {
	text := func(key, value string) {
		j.key(key)
		j.int(int64(t.string(value)))
	}
	number := func(key string, n int64) {
		j.key(key)
		j.int(n)
	}
	j.begin('{')
	j.member("type", m.name())
	switch m.kind {
	case markerOffCPU:
		text("reason", m.reason)
		text("state", m.off.State.String())
		text("waker", m.waker())
		j.key("runnable")
		j.ms(m.off.Runnable)
		if m.off.WakerStack != 0 {
			m.writeCause(j, t.stack(m.off.WakerStack), m.off.Waker.TID, m.end-m.off.Runnable)
		} else {
			m.writeCause(j, t.stack(m.off.Stack), m.tid, m.start)
		}
	case markerBlockIO:
		text("op", m.io.Op.String()+m.io.Flags.String())
		text("dev", m.io.Device)
		number("sector", int64(m.io.Sector))
		number("bytes", int64(m.io.Bytes))
		j.key("latency")
		j.ms(m.io.Completed - m.io.Queued)
		number("queueUs", (m.io.Issued-m.io.Queued)/1000)
		number("deviceUs", (m.io.Completed-m.io.Issued)/1000)
		if m.io.File != "" {
			text("file", m.io.File)
		}
		m.writeCause(j, t.stack(m.io.Stack), m.tid, m.start)
	case markerFault:
		kind := "minor"
		if m.fault.Major {
			kind = "major"
		}
		text("kind", kind)
		j.key("address")
		j.address(m.fault.Address)
		if m.fault.File != "" {
			text("file", m.fault.File)
			j.key("offset")
			j.address(m.fault.Offset)
		}
		if m.fault.Latency > 0 {
			j.key("latency")
			j.ms(m.fault.Latency)
		}
		m.writeCause(j, t.stack(m.fault.Stack), m.tid, m.start)
	case markerName:
		text("name", m.renamed)
	case markerHit:
		for i, value := range m.hit.Values {
			if value != "" && i < len(m.of.Fields) {
				j.member(fieldKey(i), value)
			}
		}
		m.writeCause(j, t.stack(m.hit.Stack), m.tid, m.start)
	}
	j.end('}')
}

// waker describes the thread that ended a period off the CPU.
func (m *marker) waker() string {
	switch w := m.off.Waker; {
	case w.PID != 0:
		return fmt.Sprintf("%s %d/%d", w.Comm, w.PID, w.TID)
	case m.off.State == profile.StateRunnable:
		return "nobody"
	}
	return "unknown"
}

// writeCause writes the stack of a marker, if there is one.
func (m *marker) writeCause(j *jsonWriter, stack int32, tid any, time int64) {
	if stack == none {
		return
	}
	j.key("cause")
	j.begin('{')
	j.member("tid", tid)
	j.key("time")
	j.ms(time)
	j.member("stack", stack)
	j.end('}')
}

// address writes a 64-bit number as a string, since the front end shows only 32 bits of
// numbers in its format "hexadecimal".
func (j *jsonWriter) address(a uint64) { j.string(fmt.Sprintf("%#x", a)) }
