// Package sources lists the sources.
package sources

import (
	"fulgur/internal/capture/alloc"
	"fulgur/internal/capture/blockio"
	"fulgur/internal/capture/faults"
	"fulgur/internal/capture/hits"
	"fulgur/internal/capture/latency"
	"fulgur/internal/capture/offcpu"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/softirq"
	"fulgur/internal/capture/source"
	"fulgur/internal/doctor"
)

// All returns a subject of every source with default options, by the doctor's name
// of its programs. They can be loaded without [source.Subject.Complete].
func All() map[doctor.Probe]source.Subject {
	return map[doctor.Probe]source.Subject{
		doctor.ProbeOnCPU:   oncpu.New(oncpu.Config{}),
		doctor.ProbeOffCPU:  offcpu.New(offcpu.Config{States: offcpu.AllStates, WakerStacks: true}),
		doctor.ProbeBlockIO: blockio.New(blockio.Config{}),
		doctor.ProbeFaults:  faults.New(faults.Config{}),
		doctor.ProbeSoftIRQ: softirq.New(),
		doctor.ProbeCount:   hits.New(hits.Config{}),
		doctor.ProbeLatency: latency.New(latency.Config{}),
		doctor.ProbeAlloc:   alloc.New(alloc.Config{}),
	}
}
