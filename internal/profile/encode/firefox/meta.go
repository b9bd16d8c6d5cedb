package firefox

import (
	"path"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/runinfo"
)

// description describes the profile as a whole. Times are in nanoseconds.
type description struct {
	p         *profile.Profile
	interval  int64
	end       int64 // since the start
	monotonic int64 // start time, 0 if unknown
	notes     []string
	types     []profile.MarkerType
	values    []Value
}

// Value is a value of a profile without times, to which the member "fulgurValue" of its threads
// refers by index. The list is the member "fulgurValues" of the metadata.
type Value struct {
	Type string `json:"type"`
	Unit string `json:"unit"`
	// If Each is not 0, the value has no threads: it is a part of the value with index Of, with one
	// for each of these amounts.
	Of   int   `json:"of,omitempty"`
	Each int64 `json:"each,omitempty"`
}

func (d *description) write(j *jsonWriter, t *tables, tracks []*track) {
	m := d.p.Meta
	shown, selected := visible(tracks)
	j.object(func() {
		j.key("interval")
		j.ms(d.interval)
		j.key("startTime")
		if m.Start.IsZero() {
			j.int(0)
		} else {
			j.ms(m.Start.UnixNano())
		}
		j.member("processType", 0)
		j.member("product", d.product())
		j.member("stackwalk", 1)
		j.member("version", geckoVersion)
		j.member("preprocessedProfileVersion", processedVersion)
		j.member("markerSchema", schemas(d.types))
		j.member("categories", t.categories)
		j.member("symbolicated", t.symbolicated())
		j.member("sampleUnits", map[string]string{"time": "ms", "eventDelay": "ms", "threadCPUDelta": "ns"})
		if d.monotonic != 0 && !m.Start.IsZero() { // perf's clock may be a different one
			j.member("startTimeAsClockMonotonicNanosecondsSinceBoot", d.monotonic)
		}
		j.key("profilingStartTime")
		j.ms(0)
		j.key("profilingEndTime")
		j.ms(d.end)
		j.member("platform", "Linux")
		if m.Kernel != "" {
			j.member("oscpu", "Linux "+m.Kernel+" "+m.Arch)
		}
		if m.Command != "" {
			j.member("arguments", m.Command)
		}
		if m.CPUs > 0 {
			j.member("logicalCPUs", m.CPUs)
		}
		if m.CPUName != "" {
			j.member("CPUName", m.CPUName)
		}
		if m.Memory > 0 {
			j.member("mainMemory", m.Memory)
		}
		j.member("importedFrom", "fulgur")
		j.member("usesOnlyOneStackType", true)
		j.member("sourceCodeIsNotOnSearchfox", true)
		j.member("keepProfileThreadOrder", false)
		j.member("initialVisibleThreads", orEmpty(shown))
		j.member("initialSelectedThreads", orEmpty(selected))
		j.member("extra", d.extra())
		j.member("fulgurRun", runinfo.Text(d.p)) // for programs
		if d.values != nil {
			j.member("fulgurValues", d.values)
		}
	})
}

// orEmpty returns a slice that is encoded as [] rather than null if it is empty.
func orEmpty(list []int) []int {
	if list == nil {
		return []int{}
	}
	return list
}

// product returns the front end's name for the profiled program.
func (d *description) product() string {
	for _, s := range []string{d.p.Meta.Command, d.p.Meta.Scope} {
		if s != "" {
			return s
		}
	}
	return "profile"
}

// section is a section of additional information in the front end.
type section struct {
	Label   string  `json:"label"`
	Entries []entry `json:"entries"`
}

type entry struct {
	Label  string `json:"label"`
	Format string `json:"format"`
	Value  string `json:"value"`
}

// extra describes the measurement and its losses.
func (d *description) extra() []section {
	measured := section{Label: "Measurement", Entries: []entry{}}
	for _, e := range []entry{
		{"Measured", "string", describe.Run(d.p.Meta)},
		{"Machine", "string", describe.Machine(d.p.Meta)},
	} {
		if e.Value != "" {
			measured.Entries = append(measured.Entries, e)
		}
	}
	for _, note := range d.notes {
		measured.Entries = append(measured.Entries, entry{"Note", "string", note})
	}
	lost := section{Label: "Losses", Entries: []entry{}}
	for _, l := range describe.Of(d.p) {
		lost.Entries = append(lost.Entries, entry{l.What, "string", l.Why()})
	}
	return []section{measured, lost}
}

// symbolicated reports whether names were looked up. If no code in a file has a name,
// they were not, and the front end may ask a symbol server.
func (t *tables) symbolicated() bool {
	asked := false
	for _, f := range t.p.Frames {
		m := t.p.Mappings[f.Mapping]
		if f.Kind != profile.KindUser || m.BuildID == "" || !path.IsAbs(m.Path) {
			continue // the vDSO, for example, always has names
		}
		if f.Function != 0 {
			return true
		}
		asked = true
	}
	return !asked
}
