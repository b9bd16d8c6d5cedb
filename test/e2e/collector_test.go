package e2e

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	service "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"fulgur/internal/export/otlptest"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/testenv"
)

// collectorVar names the program in test/collector, an OpenTelemetry Collector. make
// test-collector builds it.
const collectorVar = "FULGUR_COLLECTOR"

// collector is an OpenTelemetry Collector that writes all profiles to a file.
type collector struct {
	program, file string
	http, grpc    string // addresses
	running       *exec.Cmd
	ended         chan error
}

// newCollector starts a Collector at free addresses.
func newCollector(t *testing.T) *collector {
	t.Helper()
	c := &collector{program: testenv.Given(t, collectorVar)}
	t.Cleanup(func() {
		if c.running != nil {
			_ = c.running.Process.Kill()
			<-c.ended
		}
	})
	for range 10 { // others may take the addresses first
		c.http, c.grpc = freeAddress(t), freeAddress(t)
		if c.start(t) {
			return c
		}
	}
	t.Fatal("the Collector does not start")
	return nil
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// start starts the Collector with a new file, and waits until it accepts connections. It returns
// false if the Collector has ended instead.
func (c *collector) start(t *testing.T) bool {
	t.Helper()
	c.file = filepath.Join(t.TempDir(), "profiles")
	config := fmt.Sprintf(`yaml:{
		receivers: {otlp: {protocols: {http: {endpoint: "%s"}, grpc: {endpoint: "%s"}}}},
		exporters: {file: {path: "%s", format: proto}},
		service: {pipelines: {profiles: {receivers: [otlp], exporters: [file]}}}}`, c.http, c.grpc, c.file)
	c.running = exec.Command(c.program, "--feature-gates=service.profilesSupport", "--config", config)
	c.running.Stderr = t.Output()
	if err := c.running.Start(); err != nil {
		t.Fatal(err)
	}
	c.ended = make(chan error, 1)
	go func() { c.ended <- c.running.Wait() }()
	for _, address := range []string{c.http, c.grpc} {
		var err error
		testenv.Await(t, func() bool {
			select {
			case err := <-c.ended:
				t.Log(err)
				c.running = nil
				return true
			default:
			}
			var connection net.Conn
			if connection, err = net.Dial("tcp", address); err == nil {
				_ = connection.Close()
			}
			return err == nil
		}, func() string { return err.Error() })
		if c.running == nil {
			return false
		}
	}
	return true
}

// stop ends the Collector, and returns what it wrote.
func (c *collector) stop(t *testing.T) (all []*otlptest.Request) {
	t.Helper()
	if err := c.running.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := testenv.Receive(t, c.ended, "the Collector does not exit"); err != nil {
		t.Fatalf("the Collector: %v", err)
	}
	c.running = nil
	rest, err := os.ReadFile(c.file)
	if err != nil {
		t.Fatal(err)
	}
	for len(rest) > 0 { // each message follows its length
		if len(rest) < 4 || uint64(len(rest)-4) < uint64(binary.BigEndian.Uint32(rest)) {
			t.Fatalf("%d bytes after the last message", len(rest))
		}
		size := binary.BigEndian.Uint32(rest)
		message := new(service.ExportProfilesServiceRequest) // equal to ProfilesData
		if err := proto.Unmarshal(rest[4:4+size], message); err != nil {
			t.Fatal(err)
		}
		all = append(all, &otlptest.Request{ExportProfilesServiceRequest: message})
		rest = rest[4+size:]
	}
	return all
}

// sampleOf describes a sample, and is comparable. Text is one item a line.
type sampleOf struct{ valueType, labels, stack string }

// samplesOfOTLP returns the sums of all samples by what describes them. It ignores profiles that
// occur again.
func samplesOfOTLP(requests []*otlptest.Request) map[sampleOf]int64 {
	sums, seen := map[sampleOf]int64{}, map[string]bool{}
	for _, q := range requests {
		d := q.Dictionary
		for _, r := range q.ResourceProfiles {
			pid := int64(0)
			for _, a := range r.Resource.Attributes {
				// The Collector moves keys to the dictionary.
				if cmp.Or(a.Key, d.StringTable[a.KeyStrindex]) == otelprofiles.PID {
					pid = a.Value.GetIntValue()
				}
			}
			for _, p := range r.ScopeProfiles[0].Profiles {
				if seen[string(p.ProfileId)] {
					continue
				}
				seen[string(p.ProfileId)] = true
				valueType := d.StringTable[p.SampleType.TypeStrindex] + " " + d.StringTable[p.SampleType.UnitStrindex]
				for _, s := range p.Samples {
					labels := []string{fmt.Sprint("pid=", pid)}
					for _, i := range s.AttributeIndices {
						a := d.AttributeTable[i]
						if v := attributeValue(a.Value); v != "" {
							labels = append(labels, d.StringTable[a.KeyStrindex]+"="+v)
						}
					}
					var stack strings.Builder
					for _, i := range d.StackTable[s.StackIndex].LocationIndices {
						l := d.LocationTable[i]
						fmt.Fprintf(&stack, "%#x of %q\n", l.Address, d.StringTable[d.MappingTable[l.MappingIndex].FilenameStrindex])
						for _, line := range l.Lines {
							f := d.FunctionTable[line.FunctionIndex]
							fmt.Fprintf(&stack, " %q %q:%d\n", d.StringTable[f.NameStrindex], d.StringTable[f.FilenameStrindex], line.Line)
						}
					}
					if s.Values[0] != 0 {
						slices.Sort(labels)
						sums[sampleOf{valueType, strings.Join(labels, "\n"), stack.String()}] += s.Values[0]
					}
				}
			}
		}
	}
	return sums
}

// attributeValue returns a value of the types that samples have.
func attributeValue(v *common.AnyValue) string {
	if n, ok := v.Value.(*common.AnyValue_IntValue); ok {
		return fmt.Sprint(n.IntValue)
	}
	return v.GetStringValue()
}

// attributeOf lists the OTLP attribute for each label in pprof's format, empty if resources have it
// instead of samples.
var attributeOf = map[string]string{
	"pid": "pid", "comm": otelprofiles.ThreadName, "tid": otelprofiles.ThreadID, "cpu": otelprofiles.CPU, "stack_end": otelprofiles.StackEnd,
	"container": "", "container_id": "", "image": "", "pod": "", "namespace": "", "unit": "",
}

// samplesOfPprof returns the same from a file in pprof's format.
func samplesOfPprof(t *testing.T, file string) map[sampleOf]int64 {
	t.Helper()
	p := readPprof(t, file)
	sums := map[sampleOf]int64{}
	for _, s := range p.Sample {
		var labels []string
		add := func(label string, values ...string) {
			if key, ok := attributeOf[label]; !ok || len(values) != 1 {
				t.Errorf("got the label %s with values %q", label, values)
			} else if key != "" {
				labels = append(labels, key+"="+values[0])
			}
		}
		for label, values := range s.Label {
			add(label, values...)
		}
		for label, values := range s.NumLabel {
			add(label, strings.Fields(strings.Trim(fmt.Sprint(values), "[]"))...)
		}
		var stack strings.Builder
		for _, l := range s.Location {
			path := ""
			if l.Mapping != nil {
				path = l.Mapping.File
			}
			fmt.Fprintf(&stack, "%#x of %q\n", l.Address, path)
			for _, line := range l.Line {
				fmt.Fprintf(&stack, " %q %q:%d\n", line.Function.Name, line.Function.Filename, line.Line)
			}
		}
		slices.Sort(labels)
		for i, v := range s.Value {
			if v != 0 {
				sums[sampleOf{p.SampleType[i].Type + " " + p.SampleType[i].Unit, strings.Join(labels, "\n"), stack.String()}] += v
			}
		}
	}
	return sums
}

// difference returns the samples of a whose sums differ in b.
func difference(a, b map[sampleOf]int64) (list []sampleOf) {
	for s, sum := range a {
		if b[s] != sum {
			list = append(list, s)
		}
	}
	return list
}

// TestCollector sends a profile to a Collector. What the Collector writes has the samples that the
// profile has in pprof's format.
func TestCollector(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	for _, protocol := range []string{"http/protobuf", "grpc"} {
		t.Run(protocol, func(t *testing.T) {
			c := newCollector(t)
			load(t, "shares")
			file := filepath.Join(t.TempDir(), "cpu.pb.gz")
			if r := fulgur(t, "profile", "-F", "999", "-o", file, "1"); r.code != 0 {
				t.Fatal(r.stderr)
			}
			address := map[string]string{"grpc": c.grpc}[protocol]
			if address == "" {
				address = c.http
			}
			t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
			if r := fulgur(t, "convert", "-o", "http://"+address, file); r.code != 0 {
				t.Fatal(r.stderr)
			}
			want, got := samplesOfPprof(t, file), samplesOfOTLP(c.stop(t))
			if len(want) == 0 {
				t.Error("got no samples")
			}
			missing, added := difference(want, got), difference(got, want)
			if len(missing)+len(added) > 0 {
				t.Errorf("the Collector lacks %d of %d samples, such as %q, and has %d others, such as %q",
					len(missing), len(want), missing[:min(3, len(missing))], len(added), added[:min(3, len(added))])
			}
		})
	}
}

// TestCollectorAway ends a Collector while an agent sends to it, and starts it again. The Collector
// writes each sample that the agent counts as acknowledged.
func TestCollectorAway(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	c := newCollector(t)
	load(t, "shares")
	agent, log := startAgent(t, "--endpoint", "http://"+c.grpc, "--protocol", "grpc", "--spool", filepath.Join(t.TempDir(), "spool"), "--listen", "off")
	var written []*otlptest.Request
	const outages = 2
	for n := range outages {
		testenv.Await(t, func() bool {
			info, err := os.Stat(c.file)
			return err == nil && info.Size() > 0
		}, func() string { return "no profile arrives: " + readLog(t, log) })
		written = append(written, c.stop(t)...)
		awaitCount(t, log, "; trying again", n+1)
		// Another program may use the address for a while.
		testenv.Await(t, func() bool { return c.start(t) }, func() string { return "the Collector does not start again" })
		awaitCount(t, log, "accepts profiles again", n+1)
	}
	account := stopAgent(t, agent, log)
	written = append(written, c.stop(t)...)
	// A message may have arrived although the agent did not learn it.
	samples, in := received(written, ".long")
	if samples < account["acknowledged"] || samples > account["acknowledged"]+account["in the spool"] || in == 0 {
		t.Errorf("the Collector wrote %d samples, %d of them in the workload; the agent's account is %v", samples, in, account)
	}
}
