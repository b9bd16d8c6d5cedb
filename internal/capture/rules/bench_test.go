package rules_test

import (
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"fulgur/internal/bpf"
	"fulgur/internal/capture/oncpu"
	"fulgur/internal/capture/rules"
)

// BenchmarkSample measures the time of the BPF program for a sample: of a stack by frame pointers,
// without rules and with rules that match all processes, and of processes that rules exclude.
func BenchmarkSample(b *testing.B) {
	closer, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer closer.Close()
	parse := func(text string) []rules.Rule {
		r, err := rules.Parse(text)
		if err != nil {
			b.Fatal(err)
		}
		return []rules.Rule{r}
	}
	for _, c := range []struct {
		name string
		rules.Rules
	}{
		{"no rules", rules.Rules{}},
		{"taken by program and cgroup", rules.Rules{Exclude: parse("program=none,cgroup=/none")}},
		{"excluded by age", rules.Rules{MinAge: 1000 * time.Hour}},
		{"excluded by user", rules.Rules{Include: parse("user=4000000000")}},
		{"excluded by cgroup", rules.Rules{Include: parse("cgroup=/none")}},
		{"excluded by program", rules.Rules{Include: parse("program=none")}},
		{"excluded by all", rules.Rules{Include: parse("program=none,cgroup=/none,user=0")}},
	} {
		b.Run(c.name, func(b *testing.B) {
			m := measure(b, c.Rules, false)
			program := m.Source.(*oncpu.Source).Programs[bpf.OnCPUProgOncpu]
			pid := run(b, os.Args[0], "spin").Process.Pid
			m.while(b, pid, 300*time.Millisecond) // until the kernel side knows all programs and cgroups
			before, err := program.Stats()
			if err != nil {
				b.Fatal(err)
			}
			for range b.N {
				m.while(b, pid, time.Second/frequency)
			}
			after, err := program.Stats()
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(after.Runtime-before.Runtime)/float64(after.RunCount-before.RunCount), "ns/sample")
			b.ReportMetric(0, "ns/op")
		})
	}
}
