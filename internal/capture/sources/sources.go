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
	"fulgur/internal/capture/slow"
	"fulgur/internal/capture/softirq"
	"fulgur/internal/capture/source"
)

// All returns a subject of every command's source with default options, without the second source of offcpu
// ([fulgur/internal/capture/goroutines]). They can be loaded without
// [source.Subject.Complete].
func All() []source.Subject {
	return []source.Subject{
		oncpu.New(oncpu.Config{}),
		offcpu.New(offcpu.Config{States: offcpu.AllStates, WakerStacks: true}),
		blockio.New(blockio.Config{}),
		faults.New(faults.Config{}),
		softirq.New(),
		hits.New(hits.Config{}),
		latency.New(latency.Config{}),
		slow.New(slow.Config{}),
		alloc.New(alloc.Config{}),
	}
}
