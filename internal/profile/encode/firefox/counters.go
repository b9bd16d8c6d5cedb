package firefox

import "fulgur/internal/profile"

// counter is a counter of the profile.
type counter struct {
	*profile.Counter
	pid   string
	main  int   // index of the process's main thread
	start int64 // of the profile
}

// counterKinds describes the counters.
var counterKinds = map[profile.CounterKind]struct {
	name, category, description string
	display                     display
}{
	profile.CounterRead: {"Disk read", "Bandwidth", "Bytes read from block devices", display{
		GraphType: "line-rate", Unit: "bytes", Color: "blue", Location: "timeline-fileio", SortWeight: 10, Label: "Disk read", TooltipRows: rates("read", unitBytes),
	}},
	profile.CounterWritten: {"Disk written", "Bandwidth", "Bytes written to block devices", display{
		GraphType: "line-rate", Unit: "bytes", Color: "purple", Location: "timeline-fileio", SortWeight: 11, Label: "Disk written", TooltipRows: rates("written", unitBytes),
	}},
	profile.CounterFaults: {"Page faults", "Memory", "Page faults", display{
		GraphType: "line-rate", Unit: "", Color: "orange", Location: "timeline-memory", SortWeight: 21, Label: "Page faults", TooltipRows: rates("page faults", unitNumber),
	}},
	profile.CounterRSS: {"rss", "Memory", "Resident memory", display{
		GraphType: "line-accumulated", Unit: "bytes", Color: "orange", Location: "timeline-memory", SortWeight: 20, Label: "Resident memory", TooltipRows: []tooltipRow{
			row("accumulated", unitBytes, "resident memory at this time"),
			row("count-range", unitBytes, "range in the graph"),
		},
	}},
	profile.CounterCPU: {"CPU", "CPU", "Time on a CPU of all threads", display{
		GraphType: "line-rate", Unit: "percent", Color: "grey", SortWeight: 5, Label: "CPU", TooltipRows: []tooltipRow{
			row("cpu-ratio", "percent", "CPU"),
		},
	}},
}

// Units of tooltips.
const (
	unitBytes  = "bytes"
	unitNumber = "number"
)

// display configures how a counter is drawn.
type display struct {
	GraphType   string       `json:"graphType"`
	Unit        string       `json:"unit"`
	Color       string       `json:"color"`
	Location    location     `json:"markerSchemaLocation"`
	SortWeight  int          `json:"sortWeight"`
	Label       string       `json:"label"`
	TooltipRows []tooltipRow `json:"tooltipRows"`
}

// location is the place of a counter's markers, or null.
type location string

// MarshalJSON implements [json.Marshaler].
func (l location) MarshalJSON() ([]byte, error) {
	if l == "" {
		return []byte("null"), nil
	}
	return []byte(`"` + l + `"`), nil
}

// tooltipRow is a line of the tooltip.
type tooltipRow struct {
	Type   string `json:"type"`
	Source string `json:"source"`
	Format struct {
		Unit string `json:"unit"`
	} `json:"format"`
	Label string `json:"label"`
}

func row(source, unit, label string) tooltipRow {
	r := tooltipRow{Type: "value", Source: source, Label: label}
	r.Format.Unit = unit
	return r
}

// rates returns the tooltip lines for a rate.
func rates(what, unit string) []tooltipRow {
	rows := []tooltipRow{row("count", unit, what+" in this step")}
	if unit == unitBytes {
		rows = []tooltipRow{row("rate", "bytes-per-second", what+" per second")}
	}
	return append(rows,
		row("accumulated", unit, what+" up to this time"),
		row("count-range", unit, what+" in the visible range"),
		row("selection-total", unit, what+" in the selection"),
	)
}

func (c counter) write(j *jsonWriter) {
	kind := counterKinds[c.Kind]
	j.object(func() {
		j.member("name", kind.name)
		j.member("category", kind.category)
		j.member("description", kind.description)
		j.member("pid", c.pid)
		j.member("mainThreadIndex", c.main)
		j.key("samples")
		j.table(len(c.Times), func(n int) {
			last := c.start
			j.column("timeDeltas", n, func(i int) {
				j.ms(c.Times[i] - last)
				last = c.Times[i]
			})
			j.column("count", n, func(i int) { j.int(c.Changes[i]) })
		})
		j.member("display", kind.display)
	})
}
