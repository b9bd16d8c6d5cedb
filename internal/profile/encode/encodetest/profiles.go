package encodetest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// period is the time between samples at 99 Hz, in nanoseconds.
const period = 10_101_010

// valueTypes are the values of an on-CPU profile.
var valueTypes = []profile.ValueType{
	{Type: "samples", Unit: "count"},
	{Type: "cpu", Unit: "nanoseconds"},
}

// meta is the metadata of all profiles in this package.
var meta = profile.Meta{
	Command:   "fulgur profile -F 99 10",
	Host:      "example",
	Kernel:    "6.12.0",
	Arch:      "x86_64",
	CPUs:      4,
	Start:     time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC),
	Duration:  10 * time.Second,
	Event:     "cpu-clock",
	Frequency: 99,
	Scope:     "whole system",
}

// builder adds to a profile by name.
type builder struct{ *profile.Builder }

func newBuilder() builder { return builder{profile.NewBuilder(valueTypes...)} }

// function returns the ID of a function.
func (b builder) function(name string) profile.FunctionID {
	return b.Function(profile.Function{Name: name, SystemName: name})
}

// user returns a frame of mapping m, 0x10 bytes into the function name.
func (b builder) user(m profile.MappingID, name string, addr uint64) profile.FrameID {
	return b.Frame(profile.Frame{Function: b.function(name), Mapping: m, Address: addr, Offset: 0x10})
}

// kernel returns a kernel frame of mapping m.
func (b builder) kernel(m profile.MappingID, name string, addr uint64) profile.FrameID {
	return b.Frame(profile.Frame{
		Function: b.function(name), Mapping: m, Address: addr, Offset: 0x10, Kind: profile.KindKernel,
	})
}

// stack returns the stack of the given frames, root first.
func (b builder) stack(frames ...profile.FrameID) profile.StackID {
	var s profile.StackID
	for _, f := range frames {
		s = b.Push(s, f)
	}
	return s
}

// profile returns the profile, in which the frames below others have return
// addresses.
func (b builder) profile(m profile.Meta) *profile.Profile {
	p, _ := calls(b.Profile(m, profile.Losses{}))
	return p
}

// add counts n samples of stack s in task t, without threads or CPUs.
func (b builder) add(t profile.Task, s profile.StackID, end stackend.End, n int64) {
	b.Add(profile.Sample{
		Stack: s, Task: b.Task(t), CPU: -1, End: end, Values: []int64{n, n * period},
	})
}

// Typical returns a small whole-system profile with one of everything: inlined frames
// with lines, recursion, C++ names, kernel stacks with and without a user part, a kernel
// module, JIT code with and without names, unresolved frames, stacks truncated for each
// reason, the same stack in two processes, and losses. It has 100 samples.
func Typical() *profile.Profile {
	p, _ := TypicalStacks()
	return p
}

// TypicalStacks returns [Typical] with its stacks in order of creation, including stacks
// that end in a caller, as when a thread is interrupted there. The first one is empty.
func TypicalStacks() (*profile.Profile, []profile.StackID) {
	b := newBuilder()

	server := b.Mapping(profile.Mapping{
		Path: "/usr/bin/server", BuildID: "5f1c0de0a1b2c3d4e5f60718293a4b5c6d7e8f90",
		Start: 0x55d0c0001000, Limit: 0x55d0c0009000, Offset: 0x1000,
	})
	libc := b.Mapping(profile.Mapping{
		Path: "/usr/lib/x86_64-linux-gnu/libc.so.6", BuildID: "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00",
		Start: 0x7f0000026000, Limit: 0x7f000017b000, Offset: 0x26000,
	})
	stripped := b.Mapping(profile.Mapping{
		Path: "/opt/vendor/libstripped.so", Start: 0x7f0001001000, Limit: 0x7f0001002000, Offset: 0x1000,
	})
	anon := b.Mapping(profile.Mapping{Path: "[anon]", Start: 0x3a0000000000, Limit: 0x3a0000100000})
	kernel := b.Mapping(profile.Mapping{
		Path: "[kernel.kallsyms]", Start: 0xffffffff81000000, Limit: 0xffffffff82000000,
	})
	module := b.Mapping(profile.Mapping{Path: "[nf_tables]", Start: 0xffffffffc0000000, Limit: 0xffffffffc0010000})

	// The server: main calls handle. parse is inlined into handle, and peek into parse.
	source := func(name, system, file string, line int) profile.FunctionID {
		return b.Function(profile.Function{Name: name, SystemName: system, File: file, StartLine: line})
	}
	start := b.user(libc, "__libc_start_call_main", 0x2724a)
	main := b.Frame(profile.Frame{
		Function: source("main", "main", "/src/server/main.cc", 10),
		Mapping:  server, Address: 0x1150, Offset: 0x20, Line: 14,
	})
	const handleAddr = 0x2234
	handle := b.Frame(profile.Frame{
		Function: source("http::Server::handle(http::Request const&)",
			"_ZN4http6Server6handleERKNS_7RequestE", "/src/server/http.cc", 40),
		Mapping: server, Address: handleAddr, Offset: 0x34, Line: 52,
	})
	parse := b.Frame(profile.Frame{
		Function: source("std::vector<int, std::allocator<int>> parse<int>(char const*)",
			"_Z5parseIiESt6vectorIT_SaIS1_EEPKc", "/src/server/parse.h", 7),
		Mapping: server, Address: handleAddr, Offset: 0x34, Line: 9, Inlined: true,
	})
	peek := b.Frame(profile.Frame{
		Function: source("peek", "peek", "/src/server/parse.h", 3),
		Mapping:  server, Address: handleAddr, Offset: 0x34, Line: 4, Inlined: true,
	})
	walk1 := b.user(server, "walk", 0x3010)
	walk2 := b.user(server, "walk", 0x3020)
	memcpy := b.user(libc, "__memmove_avx_unaligned_erms", 0x160a40)
	write := b.user(libc, "write", 0xf8e63)

	syscall := b.kernel(kernel, "entry_SYSCALL_64_after_hwframe", 0xffffffff81a00076)
	doSyscall := b.kernel(kernel, "do_syscall_64", 0xffffffff81900055)
	ksysWrite := b.kernel(kernel, "ksys_write", 0xffffffff81300066)
	vfsWrite := b.kernel(kernel, "vfs_write", 0xffffffff81300ab0)
	nft := b.kernel(module, "nft_do_chain", 0xffffffffc0001234)
	bpf := b.kernel(kernel, "bpf_prog_6deef7357e7b4530_count", 0xffffffffc1234560)
	unknownKernel := b.Frame(profile.Frame{
		Mapping: kernel, Address: 0xffffffff81ffff00, Kind: profile.KindKernel,
	})

	task := profile.Task{PID: 4242, Comm: "server"}
	inServer := b.stack(start, main)
	b.add(task, b.Push(b.Push(b.Push(inServer, handle), parse), peek), stackend.FramePointer, 30)
	b.add(task, b.Push(inServer, handle), stackend.FramePointer, 8)
	b.add(task, b.stack(start, main, walk1, walk2, walk1), stackend.FramePointer, 6)
	b.add(task, b.stack(start, main, handle, memcpy), stackend.FramePointer, 9)
	b.add(task, b.stack(start, main, write, syscall, doSyscall, ksysWrite, vfsWrite), stackend.FramePointer, 11)
	b.add(task, b.stack(start, main, write, syscall, doSyscall, nft, bpf), stackend.FramePointer, 2)
	b.add(task, b.stack(walk1, walk2, walk1, walk2), stackend.Depth, 3)
	b.add(profile.Task{PID: 4243, Comm: "server"}, b.Push(inServer, handle), stackend.FramePointer, 4)

	node := profile.Task{PID: 77, Comm: "node"}
	named := b.Frame(profile.Frame{
		Function: b.function("JS:*render /srv/app.js:12:3"), Mapping: anon,
		Address: 0x3a0000000480, Offset: 0x80, Kind: profile.KindJIT,
	})
	unnamed := b.Frame(profile.Frame{Mapping: anon, Address: 0x3a0000000f00, Kind: profile.KindJIT})
	b.add(node, b.stack(start, unnamed, named), stackend.FramePointer, 7)

	vendor := profile.Task{PID: 99, Comm: "vendor"}
	inStripped := b.Frame(profile.Frame{Mapping: stripped, Address: 0x1234})
	nowhere := b.Frame(profile.Frame{Address: 0xdeadbeef})
	b.add(vendor, b.stack(nowhere, inStripped), stackend.Fault, 5)
	b.add(vendor, b.stack(syscall, doSyscall, unknownKernel), stackend.Fault, 1)

	worker := b.stack(
		b.kernel(kernel, "ret_from_fork", 0xffffffff81002040),
		b.kernel(kernel, "worker_thread", 0xffffffff810b0050),
		b.kernel(kernel, "process_one_work", 0xffffffff810afab0))
	b.add(profile.Task{PID: 12, Comm: "kworker/u8:1"}, worker, stackend.None, 10)

	lost := b.Frame(profile.Frame{Function: b.function("[stack lost]"), Kind: profile.KindMarker})
	b.add(task, b.stack(lost), stackend.Lost, 4)

	return calls(b.Profile(meta, profile.Losses{
		profile.LossSamples: 3, profile.LossTraces: 4, profile.LossRetries: 6, profile.LossOverflows: 17,
		profile.LossTruncatedUser: 3, profile.LossTruncatedKernel: 1, profile.LossUserFaults: 6,
		profile.LossThrottled: 2, profile.LossSideband: 5,
		profile.LossUnresolved: 13, profile.LossUnresolvedCallers: 7, profile.LossUnresolvedFrames: 4,
		profile.LossProcessesGone: 1,
	}))
}

// Threads returns a profile by thread and CPU: the same stack in two threads of a process
// on two CPUs, one thread on both.
func Threads() *profile.Profile {
	b := newBuilder()
	m := b.Mapping(profile.Mapping{Path: "/usr/bin/server", Start: 0x1000, Limit: 0x9000, Offset: 0x1000})
	s := b.stack(b.user(m, "main", 0x1100), b.user(m, "work", 0x1200))
	for _, seen := range []struct {
		tid, cpu int
		n        int64
	}{{42, 0, 3}, {43, 1, 5}, {42, 1, 2}} {
		b.Add(profile.Sample{
			Stack: s, Task: b.Task(profile.Task{PID: 42, TID: seen.tid, Comm: "server"}),
			CPU: seen.cpu, End: stackend.FramePointer, Values: []int64{seen.n, seen.n * period},
		})
	}
	return b.profile(meta)
}

// Owners returns a profile by container: the same stack in processes of a pod, of a docker
// container with a hostile name, of a unit, and of an unknown owner. Process 1 moved from
// one container to the other.
func Owners() *profile.Profile {
	b := newBuilder()
	m := b.Mapping(profile.Mapping{Path: "/usr/bin/server", Start: 0x1000, Limit: 0x9000, Offset: 0x1000})
	s := b.stack(b.user(m, "main", 0x1100), b.user(m, "work", 0x1200))
	id := strings.Repeat("0f", 32)
	for i, seen := range []struct {
		pid   int
		owner profile.Owner
	}{
		{1, profile.Owner{ContainerID: id, Container: "nginx", Image: "docker.io/library/nginx:1.25", Runtime: "containerd", Pod: "web-1", Namespace: "default", PodUID: "1-2"}},
		{1, profile.Owner{ContainerID: strings.Repeat("a1", 32), Container: `<b>;"'` + "\n\x1b[31m", Image: "tiny:1", Runtime: "docker", Unit: "docker.scope"}},
		{2, profile.Owner{ContainerID: id[:12] + "...", Runtime: "docker"}},
		{3, profile.Owner{Unit: "nginx.service"}},
		{4, profile.Owner{}},
		{5, profile.Owner{Unknown: true}},
	} {
		b.add(profile.Task{PID: seen.pid, Comm: "server", Owner: b.Owner(seen.owner)}, s, stackend.Complete, int64(1+i))
	}
	grouped := meta
	grouped.Grouping = profile.GroupContainer
	return b.profile(grouped)
}

// HostileNames break encoders that trust names: markup, separators, terminal escapes,
// text direction, invalid UTF-8.
var HostileNames = []string{
	`<script>alert("x")</script>`,
	`a & b's "c" \ ]]> --> ${d}`,
	"semi;colon",
	"line\nbreak\r\ttab",
	"\x1b]0;title\x07\x1b[31mred",
	"\u009b31mC1",
	"bidi\u202eoverride",
	"separators\u2028\u2029",
	"invalid\xff\xfe\xc3UTF-8",
	"nul\x00byte",
	"",
	" space ",
	"count 42",
	"-",
	"日本語 ünïcode",
}

// Hostile returns a profile whose commands, functions and mappings have the names of
// [HostileNames]. Each has its own sample, and another stack contains all functions.
func Hostile() *profile.Profile {
	b := newBuilder()
	var all []profile.FrameID
	for i, name := range HostileNames {
		addr := uint64(0x1000 * (i + 1))
		m := b.Mapping(profile.Mapping{Path: "/tmp/" + name, BuildID: name, Start: addr, Limit: addr + 0x1000})
		f := b.Frame(profile.Frame{
			Function: b.Function(profile.Function{Name: name, SystemName: name, File: "/src/" + name, StartLine: 1}),
			Mapping:  m, Address: addr, Line: 2,
		})
		unresolved := b.Frame(profile.Frame{Mapping: m, Address: addr + 1})
		all = append(all, f)
		b.add(profile.Task{PID: 100 + i, Comm: name}, b.stack(unresolved, f), stackend.FramePointer, int64(i+1))
	}
	b.add(profile.Task{PID: 1, Comm: "all"}, b.stack(all...), stackend.FramePointer, 1000)
	m := meta
	m.Command, m.Host, m.Scope = HostileNames[0], HostileNames[8], HostileNames[4]
	return b.profile(m)
}

// NameAll gives the name to everything in p that [Hostile] does not name: owners and labels of tasks,
// the machine, and files without symbols. It does not change tables that p shares.
func NameAll(p *profile.Profile, name string) {
	p.Owners = []profile.Owner{{}, {Unit: name, ContainerID: name, Container: name, Image: name, Runtime: name, Pod: name, Namespace: name, PodUID: name}}
	p.Labels = []profile.Labels{nil, {{Key: name, Value: name}}}
	p.Tasks = slices.Clone(p.Tasks)
	for i := range p.Tasks {
		p.Tasks[i].Owner, p.Tasks[i].Labels = 1, 1
	}
	m := &p.Meta
	m.Command, m.Host, m.Kernel, m.Arch, m.CPUName, m.Event, m.Value, m.GroupLabel, m.Scope = name, name, name, name, name, name, name, name, name
	m.Stripped = profile.StrippedFiles{Files: []profile.Stripped{{Path: "/tmp/" + name, BuildID: name, Samples: 1, Remedy: name}}}
	m.Unmeasured = []string{name}
	m.Slowest = []profile.SlowInterval{{Begin: m.Start, Length: 1, Comm: name, Fields: []profile.Label{{Key: name, Value: name}}}}
}

// Empty returns a profile without samples.
func Empty() *profile.Profile { return newBuilder().Profile(meta, profile.Losses{}) }

// Large returns a profile of n distinct stacks in the shape of a busy machine: 10 to 50
// frames with common roots, a few thousand functions, a third of the stacks with a kernel
// part, a hundred processes. It is the same on every call.
func Large(n int) *profile.Profile {
	const functions, files, processes = 4000, 40, 100
	b := newBuilder()
	kernel := b.Mapping(profile.Mapping{
		Path: "[kernel.kallsyms]", Start: 0xffffffff81000000, Limit: 0xffffffff82000000,
	})
	var mappings []profile.MappingID
	for i := range uint64(files) {
		mappings = append(mappings, b.Mapping(profile.Mapping{
			Path: fmt.Sprintf("/usr/lib/libexample%d.so.1", i), BuildID: fmt.Sprintf("%040x", i+1),
			Start: i << 24, Limit: (i + 1) << 24,
		}))
	}
	var user, kern [2][]profile.FrameID // that call, and leaves
	for i := range uint64(functions) {
		name := fmt.Sprintf("example::component%d::Handler<int>::operation%d(int, char const*)", i%97, i)
		file := i % files
		for leaf := range 2 {
			f := profile.Frame{Function: b.function(name), Mapping: mappings[file], Address: file<<24 + 0x10*i, Offset: 0x10, Return: leaf == 0}
			user[leaf] = append(user[leaf], b.Frame(f))
			if i%8 == 0 {
				f.Function, f.Mapping = b.function(fmt.Sprintf("subsystem_operation_%d", i)), kernel
				f.Address, f.Kind = 0xffffffff81000000+0x10*i, profile.KindKernel
				kern[leaf] = append(kern[leaf], b.Frame(f))
			}
		}
	}
	for i := range n {
		s := profile.StackID(0)
		// Neighboring stacks have the same depth and differ only in the last levels,
		// which form a binary tree.
		depth := 10 + i>>8%41
		for level := range depth {
			branch := i >> min(14, depth-1-level)
			s = b.Push(s, user[level/(depth-1)][(level*131+branch*7919)%functions])
		}
		if i%3 == 0 {
			for level := range 12 {
				s = b.Push(s, kern[level/11][(level*17+i%(1+level))%len(kern[0])])
			}
		}
		b.add(profile.Task{PID: 1000 + i%processes, Comm: fmt.Sprintf("process%d", i%processes)},
			s, stackend.FramePointer, int64(1+i%7))
	}
	return b.Profile(meta, profile.Losses{})
}
