package perfdata

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"fulgur/internal/linux/perfevent"
	"fulgur/internal/profile"
)

// chainSampleType is the sample type of perf record -g.
const chainSampleType = unix.PERF_SAMPLE_IP | unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_PERIOD | unix.PERF_SAMPLE_CALLCHAIN

// newChainBuilder returns a builder for samples of cpu-clock with call chains.
func newChainBuilder() *builder {
	b := newBuilder(false)
	binary.NativeEndian.PutUint32(b.attr, unix.PERF_TYPE_SOFTWARE)
	binary.NativeEndian.PutUint64(b.attr[offsetConfig:], unix.PERF_COUNT_SW_CPU_CLOCK)
	b.sampleOf(chainSampleType)
	return b
}

// sampleOf changes the sample type.
func (b *builder) sampleOf(sampleType uint64) {
	binary.NativeEndian.PutUint64(b.attr[offsetSampleType:], sampleType)
}

// chain adds a sample of 10 µs.
func (b *builder) chain(pid, tid int32, mode uint16, addresses ...uint64) {
	b.time += 1000
	body := words(addresses[len(addresses)-1], pid, tid, b.time, uint64(10_000), uint64(len(addresses)))
	b.records = append(b.records, recordOf(unix.PERF_RECORD_SAMPLE, mode, append(body, words(addresses)...)))
}

// stacks returns the samples of p as "comm pid: root;leaf count nanoseconds".
func stacks(p *profile.Profile) []string {
	var list []string
	for _, s := range p.Samples {
		var names []string
		for _, f := range p.AppendFrames(nil, s.Stack) {
			names = append(names, p.FrameName(f))
		}
		slices.Reverse(names)
		task := p.Tasks[s.Task]
		list = append(list, fmt.Sprintf("%s %d: %s %v", task.Comm, task.PID, strings.Join(names, ";"), s.Values))
	}
	slices.Sort(list)
	return list
}

func readChains(t testing.TB, data []byte) *CallChains {
	t.Helper()
	c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const kernelStart = 0xffffffff81000000

// chainFile has samples of the kernel and two processes. The second is forked from the
// first and then executes another program.
func chainFile() *builder {
	b := newChainBuilder()
	b.mmap(-1, kernelStart, 0x1000000, kernelStart, "[kernel.kallsyms]_text")
	b.buildID(profile.KernelPath, "0123456789abcdef0123456789abcdef01234567")
	b.exec(7, "sh")
	b.mmap2(7, 0x400000, 0x2000, 0x1000, "/bin/sh")
	b.chain(7, 7, modeUser, contextUser, 0x400010, 0x401001)
	b.chain(7, 7, modeKernel, contextKernel, kernelStart+0x10, contextUser, 0x400010, 0x401001)
	b.fork(7, 8)
	b.chain(8, 8, modeUser, contextUser, 0x400020)
	b.exec(8, "tar")
	b.mmapBuildID(8, 0x7f0000000000, 0x1000, 0, "/bin/tar", "00112233")
	// A call at the end of a mapping returns to the address after it.
	b.chain(8, 8, modeUser, contextUser, 0x7f0000000010, 0x7f0000001000)
	b.chain(8, 8, modeUser, contextUser, 0x7f0000000010, 0x7f0000001000)
	b.chain(8, 8, modeUser, contextUser, 0x400020) // no longer mapped
	b.chain(0, 0, modeKernel, contextKernel, kernelStart+0x20)
	return b
}

// Newer versions of perf record the kernel's build ID with its mapping.
func TestKernelWithBuildID(t *testing.T) {
	b := newChainBuilder()
	b.requestBuildIDs()
	raw, id := words(uint64(0x0123456789abcdef), uint64(1)), ""
	for _, c := range raw {
		id += fmt.Sprintf("%02x", c)
	}
	body := append(words(int32(-1), uint32(0), uint64(kernelStart), uint64(1<<24), uint64(kernelStart), uint32(len(raw))), raw...)
	body = append(body, make([]byte, 20-len(raw)+8)...) // no protection
	b.add(unix.PERF_RECORD_MMAP2, 1|unix.PERF_RECORD_MISC_MMAP_BUILD_ID, -1, append(body, padded("[kernel.kallsyms]_text")...))
	b.chain(0, 0, modeKernel, contextKernel, kernelStart+0x20)
	c := readChains(t, b.file(b.plain()))
	if c.KernelBuildID != id || c.KernelText != kernelStart || c.Profile.Mappings[len(c.Profile.Mappings)-1].BuildID != id {
		t.Errorf("got kernel %s at %#x, want %s at %#x", c.KernelBuildID, c.KernelText, id, uint64(kernelStart))
	}
}

// If another program requests build IDs, the kernel marks records that have an inode as if they had a
// build ID.
func TestInodeMarkedAsBuildID(t *testing.T) {
	for _, requested := range []bool{false, true} {
		b := newChainBuilder()
		want := ""
		if requested {
			b.requestBuildIDs()
			want = "010000004d000000"
		}
		if got := idOfMarked(t, b, words(uint32(8), uint32(1), uint64(77), uint64(0))); got != want {
			t.Errorf("build IDs requested: %v: got build ID %q, want %q", requested, got, want)
		}
	}
}

// idOfMarked returns the build ID of a mapping that is marked as having one in the given 24 bytes.
func idOfMarked(t *testing.T, b *builder, file []byte) string {
	t.Helper()
	const misc = 2 | unix.PERF_RECORD_MISC_MMAP_BUILD_ID
	b.exec(7, "sh")
	body := words(int32(7), int32(7), uint64(0x400000), uint64(0x2000), uint64(0x1000))
	body = append(append(body, file...), words(uint32(unix.PROT_READ|unix.PROT_EXEC), uint32(2))...)
	b.add(unix.PERF_RECORD_MMAP2, misc, 7, append(body, padded("/bin/sh")...))
	b.chain(7, 7, modeUser, contextUser, 0x400010)
	mappings := readChains(t, b.file(b.plain())).Profile.Mappings
	m := mappings[len(mappings)-1]
	if m.Path != "/bin/sh" {
		t.Fatalf("got a mapping of %s, want /bin/sh", m.Path)
	}
	return m.BuildID
}

// perf inject -B replaces the inodes of records by build IDs, but does not change their events.
func TestInjectedBuildID(t *testing.T) {
	const md5, sha1 = "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef01234567"
	for _, c := range []struct{ file, want string }{
		{"14000000" + sha1, sha1},
		{"10000000" + md5 + "00000000", md5},
		{"10000000" + md5 + "00000001", ""},
		{"10010000" + md5 + "00000000", ""},
		{"08000000" + "0123456789abcdef" + "000000000000000000000000", ""},
		{"ff000000" + sha1, ""},
	} {
		file, err := hex.DecodeString(c.file)
		if err != nil {
			t.Fatal(err)
		}
		if got := idOfMarked(t, newChainBuilder(), file); got != c.want {
			t.Errorf("%s: got build ID %q, want %q", c.file, got, c.want)
		}
	}
}

// perf names the kernel after its vmlinux if there is one.
func TestKernelNamedVmlinux(t *testing.T) {
	const id = "0123456789abcdef0123456789abcdef01234567"
	b := newChainBuilder()
	b.mmap(-1, kernelStart, 0x1000000, kernelStart, "[kernel.kallsyms]_text")
	b.chain(0, 0, modeKernel, contextKernel, kernelStart+0x20)
	for _, dso := range [][2]string{{"/boot/vmlinux-6.1", id}, {"[ext4]", "00"}, {"/lib/modules/6.1/ext4.ko.xz", "01"}, {"/boot/vmlinux-5.10", "03"}} {
		at := len(b.ids)
		b.buildID(dso[0], dso[1])
		b.ids[at+4] = modeKernel // the misc field
	}
	b.buildID("/usr/bin/vmlinux", "02") // a program
	if c := readChains(t, b.file(b.plain())); c.KernelBuildID != id {
		t.Errorf("got kernel %s, want %s", c.KernelBuildID, id)
	}
}

func TestReadCallChains(t *testing.T) {
	b := chainFile()
	want := []string{
		"sh 7: [sh+0x2001];[sh+0x1010] [1 10000]",
		"sh 7: [sh+0x2001];[sh+0x1010];[kernel.kallsyms+0xffffffff81000010] [1 10000]",
		"sh 8: [sh+0x1020] [1 10000]",
		"swapper 0: [kernel.kallsyms+0xffffffff81000020] [1 10000]",
		"tar 8: [tar+0x1000];[tar+0x10] [2 20000]",
		"tar 8: [unknown+0x400020] [1 10000]",
	}
	for name, data := range map[string][]byte{
		"file": b.file(b.plain()), "pipe": b.pipe(b.plain()), "compressed": b.file(b.compressed(t, recordCompressed)),
	} {
		c := readChains(t, data)
		if diff := cmp.Diff(want, stacks(c.Profile)); diff != "" {
			t.Errorf("%s: stacks (-want +got):\n%s", name, diff)
		}
		if c.KernelBuildID != "0123456789abcdef0123456789abcdef01234567" || c.KernelText != kernelStart {
			t.Errorf("%s: got kernel %s at %#x, want it at %#x", name, c.KernelBuildID, c.KernelText, uint64(kernelStart))
		}
		if got := c.Profile.ValueTypes[1]; got != (profile.ValueType{Type: "cpu-clock", Unit: "nanoseconds"}) {
			t.Errorf("%s: got second value %v, want %v", name, got, profile.ValueType{Type: "cpu-clock", Unit: "nanoseconds"})
		}
	}
}

// Samples in a virtual machine have a frame, though the code is on another machine.
func TestGuest(t *testing.T) {
	const guestKernel, contextGuest, contextGuestUser = 4, ^uint64(2048) + 1, ^uint64(2560) + 1
	b := newChainBuilder()
	b.exec(7, "qemu")
	b.mmap2(7, 0x400000, 0x2000, 0x1000, "/bin/qemu")
	b.chain(7, 7, guestKernel, contextGuest, 0x10, 0x20, contextGuestUser, 0x30)
	b.chain(7, 7, guestKernel, 0x10)
	b.chain(7, 7, modeUser, contextUser, 0x400010)
	want := []string{"qemu 7: [guest or hypervisor] [2 20000]", "qemu 7: [qemu+0x1010] [1 10000]"}
	if diff := cmp.Diff(want, stacks(readChains(t, b.file(b.plain())).Profile)); diff != "" {
		t.Errorf("stacks (-want +got):\n%s", diff)
	}
}

// Each sample has its thread and time.
func TestEachChainSample(t *testing.T) {
	b := newChainBuilder()
	b.exec(7, "server")
	b.add(unix.PERF_RECORD_COMM, 2, 8, append(words(int32(7), int32(8)), padded("worker")...))
	b.chain(7, 8, modeUser, contextUser, 0x10)
	b.chain(7, 7, modeUser, contextUser, 0x10)
	data := b.file(b.plain())
	var got []ChainSample
	c, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Each: func(s ChainSample) error {
		got = append(got, s)
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	stack := c.Profile.Samples[0].Stack
	clock := profile.ValueType{Type: "cpu-clock", Unit: "nanoseconds"}
	want := []ChainSample{
		{PID: 7, TID: 8, Comm: "worker", Time: 1e9 + 3000, Stack: stack, Weight: 10_000, Event: clock, Amount: 10_000, Main: true},
		{PID: 7, TID: 7, Comm: "server", Time: 1e9 + 4000, Stack: stack, Weight: 10_000, Event: clock, Amount: 10_000, Main: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("samples (-want +got):\n%s", diff)
	}
	failed := errors.New("failed")
	if _, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Each: func(ChainSample) error { return failed }}); !errors.Is(err, failed) {
		t.Errorf("got error %v, want the callback's", err)
	}
}

// The main event is the first one with samples. Cycles of both kinds of cores are one event.
func TestMainEvent(t *testing.T) {
	b := newBuilder(false)
	b.sampleOf(chainSampleType | unix.PERF_SAMPLE_IDENTIFIER)
	attr := func(config uint64) []byte {
		a := bytes.Clone(b.attr)
		binary.NativeEndian.PutUint64(a[offsetConfig:], config)
		return a
	}
	const core, atom = 4 << 32, 10 << 32 // types of PMUs
	for i, config := range []uint64{core | unix.PERF_COUNT_HW_CPU_CYCLES, atom | unix.PERF_COUNT_HW_CPU_CYCLES, unix.PERF_COUNT_HW_CACHE_MISSES} {
		b.records = append(b.records, recordOf(recordHeaderAttr, 0, append(attr(config), words(uint64(i+2))...)))
	}
	b.attr = attr(unix.PERF_COUNT_HW_INSTRUCTIONS) // has identifier 1
	for _, id := range []uint64{4, 2, 3} {
		body := words(id, uint64(0x10), int32(7), int32(7), uint64(1000), uint64(100), uint64(2), contextUser, uint64(0x10))
		b.records = append(b.records, recordOf(unix.PERF_RECORD_SAMPLE, modeUser, body))
	}
	data := b.pipe(b.plain())
	var got []string
	_, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{Each: func(s ChainSample) error {
		got = append(got, fmt.Sprintf("%s %v", s.Event.Type, s.Main))
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"cache-misses false", "cycles true", "cycles true"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Without call chains, a sample's stack is its address.
func TestReadAddresses(t *testing.T) {
	c := readChains(t, gunzip(t, "propeller_sample_1.perfdata1"))
	if m := c.Profile.Meta; m.Host == "" || m.Arch != "x86_64" || m.CPUs == 0 || m.Memory == 0 || !strings.Contains(m.Command, "perf record") {
		t.Errorf("got metadata %+v, want the recording machine's", m)
	}
	if got := c.Profile.ValueTypes; len(got) != 2 || c.Profile.Total(0) == 0 {
		t.Fatalf("got values %v, %d samples; want two values", got, c.Profile.Total(0))
	}
	for _, s := range c.Profile.Samples {
		if n := len(c.Profile.AppendFrames(nil, s.Stack)); n > 1 {
			t.Fatalf("got %d frames without call chains, want at most 1", n)
		}
	}
}

func TestReadCallChainsErrors(t *testing.T) {
	empty := newChainBuilder()
	empty.exec(1, "sh")
	cut := newChainBuilder()
	cut.userOf(allRegisters)
	cut.chain(1, 1, modeUser, 1)
	cut.user(perfevent.ABI64, make([]uint64, 5), nil, 0)
	long := newChainBuilder()
	long.chain(1, 1, modeUser, make([]uint64, 8000)...)
	binary.NativeEndian.PutUint64(long.records[0][headerSize+32:], 1<<40)
	short := newChainBuilder()
	short.chain(1, 1, modeUser, 1)
	binary.NativeEndian.PutUint64(short.records[0][headerSize+32:], 5)
	for want, b := range map[string]*builder{
		"no samples": empty, "sample cut short": cut, "than any kernel records": long, "cut short": short,
	} {
		data := b.file(b.plain())
		_, err := readCallChains(t.Context(), bytes.NewReader(data), int64(len(data)), "in", ChainOptions{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}

// A malformed record does not affect the others, and the end of a file that is cut short not what is
// before it.
func TestReadCallChainsDamaged(t *testing.T) {
	good := func() *builder {
		b := newChainBuilder()
		b.exec(1, "sh")
		for i := range 4 {
			b.chain(1, int32(1+i), modeUser, 1)
		}
		return b
	}
	middle, both := good(), good()
	binary.NativeEndian.PutUint64(middle.records[2][headerSize+32:], 5)
	for _, n := range []int{1, 3} {
		binary.NativeEndian.PutUint64(both.records[n][headerSize+32:], 5)
	}
	size := len(good().records[4])
	last := func(data []byte) []byte {
		if binary.NativeEndian.Uint64(data[8:]) == pipeHeaderSize {
			return data[:len(data)-size/2]
		}
		return data[:binary.NativeEndian.Uint64(data[40:])+binary.NativeEndian.Uint64(data[48:])-uint64(size/2)]
	}
	sized := good()
	sized.records[3][6], sized.records[3][7] = 0, 0 // the length of a record
	whole, described := good(), good()
	described.buildID("/bin/true", strings.Repeat("ab", 20))
	described.ids = described.ids[:len(described.ids)-8]
	for name, test := range map[string]struct {
		data    []byte
		samples int64
		want    string // part of the damage
	}{
		"nothing":          {whole.file(whole.plain()), 4, ""},
		"a sample":         {middle.file(middle.plain()), 3, "it was left out"},
		"two samples":      {both.file(both.plain()), 2, "this and 1 other malformed record were left out"},
		"the end":          {last(whole.file(whole.plain())), 3, "it is cut short at offset 0x28; the rest was left out"},
		"the end, a pipe":  {last(whole.pipe(whole.plain())), 3, "cut short by the end of the data"},
		"a record's size":  {sized.file(sized.plain()), 2, "says it is 0 bytes long"},
		"a build ID":       {described.file(described.plain()), 4, "; it was left out"},
		"the end and more": {last(both.file(both.plain())), 1, "the rest was left out, and 2 malformed records before it"},
	} {
		c, err := readCallChains(t.Context(), bytes.NewReader(test.data), int64(len(test.data)), "in", ChainOptions{})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := c.Profile.Total(0); got != test.samples {
			t.Errorf("%s: got %d samples, want %d", name, got, test.samples)
		}
		if got := fmt.Sprint(c.Damage); (len(c.Damage) == 0) != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: got damage %v, want %q", name, c.Damage, test.want)
		}
	}
}
