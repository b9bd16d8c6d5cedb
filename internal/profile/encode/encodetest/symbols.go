package encodetest

import (
	"fmt"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// Symbols returns a small profile with features of debug information: a function both
// called and inlined by the same caller, one inlined where another is called, inlined
// kernel functions, names of Go methods, instances and closures, Rust names, and C++
// template names of hundreds of characters. It has 100 samples.
func Symbols() *profile.Profile {
	b := newBuilder()
	source := func(name, system, file string, start int) profile.Function {
		return profile.Function{Name: name, SystemName: system, File: file, StartLine: start}
	}
	// at pushes the functions at an address, outermost first.
	at := func(s profile.StackID, f profile.Frame, functions ...profile.Function) profile.StackID {
		for i, function := range functions {
			f.Function, f.Line, f.Inlined = b.Function(function), function.StartLine+3, i > 0
			s = b.Push(s, b.Frame(f))
		}
		return s
	}

	program := b.Mapping(profile.Mapping{Path: "/usr/bin/index", BuildID: "0123456789abcdef0123456789abcdef01234567"})
	user := func(address, offset uint64) profile.Frame {
		return profile.Frame{Mapping: program, Address: address, Offset: offset}
	}
	index := profile.Task{PID: 10, Comm: "index"}
	main := source("main", "main", "/src/index/main.cc", 20)
	square := source("square", "square", "/src/index/square.h", 5)
	root := at(0, user(0x1100, 0x10), main)
	b.add(index, root, stackend.FramePointer, 3)
	b.add(index, at(0, user(0x1108, 0x18), main, square), stackend.FramePointer, 7)
	b.add(index, at(root, user(0x1200, 0), square), stackend.FramePointer, 11)

	insert := source(LongName("insert", 6), "_Z6insert", "/usr/include/c++/12/bits/stl_map.h", 500)
	find := source(LongName("find", 6), "_Z4find", "/usr/include/c++/12/bits/stl_tree.h", 700)
	compare := source(LongName("operator()", 5), "_Zcl", "/usr/include/c++/12/bits/stl_function.h", 400)
	calls := at(at(0, user(0x1120, 0x30), main, insert), user(0x3040, 0x40), find, compare)
	b.add(index, calls, stackend.FramePointer, 19)

	kernel := b.Mapping(profile.Mapping{Path: "[kernel.kallsyms]", Start: 0xffffffff81000000, Limit: 0xffffffff82000000})
	enter := source("do_syscall_64", "do_syscall_64", "arch/x86/entry/common.c", 70)
	dispatch := source("do_syscall_x64", "do_syscall_x64", "arch/x86/entry/common.c", 40)
	entry := profile.Frame{Mapping: kernel, Address: 0xffffffff81900055, Offset: 0x55, Kind: profile.KindKernel}
	b.add(index, at(calls, entry, enter, dispatch), stackend.FramePointer, 10)

	server := b.Mapping(profile.Mapping{Path: "/usr/bin/server"})
	tree := source("main.(*tree[go.shape.int]).insert", "main.(*tree[go.shape.int]).insert", "/src/server/tree.go", 30)
	less := source("main.less[...]", "main.less[...]", "/src/server/tree.go", 12)
	closure := source("main.main.func1", "main.main.func1", "/src/server/main.go", 9)
	serve := at(0, profile.Frame{Mapping: server, Address: 0x47a100, Offset: 0x20}, closure)
	serve = at(serve, profile.Frame{Mapping: server, Address: 0x47b200, Offset: 0x60}, tree, less)
	b.add(profile.Task{PID: 20, Comm: "server"}, serve, stackend.FramePointer, 20)

	rust := b.Mapping(profile.Mapping{Path: "/usr/bin/rg"})
	search := source("<grep_searcher::searcher::Searcher as core::ops::Drop>::drop", "_ZN13grep_searcher", "src/searcher/mod.rs", 600)
	memchr := source("memchr::memmem::find::{{closure}}", "_ZN6memchr", "/cargo/registry/memchr-2.7.1/src/memmem/mod.rs", 90)
	b.add(profile.Task{PID: 30, Comm: "rg"},
		at(0, profile.Frame{Mapping: rust, Address: 0x51000, Offset: 0x100}, search, memchr), stackend.FramePointer, 30)
	return b.profile(meta)
}

// LongName returns a C++ function name. Each level of templates more than doubles its
// length, from 31 characters of its class at depth 1 to 1767 at depth 6.
func LongName(function string, depth int) string {
	t := "int"
	for range depth {
		t = fmt.Sprintf("std::map<%s, std::vector<%s>>", t, t)
	}
	return t + "::" + function
}

// Inlines returns a profile of n stacks of up to four addresses, each with eight
// functions inlined into each other and names of about a hundred characters. It reveals
// costs that grow faster than the number of frames.
func Inlines(n int) *profile.Profile {
	const inlined = 8
	b := newBuilder()
	m := b.Mapping(profile.Mapping{Path: "/usr/bin/templates", BuildID: strings.Repeat("ab", 20)})
	var functions [inlined]profile.FunctionID
	for i := range functions {
		functions[i] = b.Function(profile.Function{
			Name: LongName(fmt.Sprint("operation", i), 4), SystemName: fmt.Sprint("_Z", i),
			File: fmt.Sprintf("/src/templates/%d.h", i), StartLine: 10 * i,
		})
	}
	var s profile.StackID
	for stack := range n {
		if stack%4 == 0 {
			s = 0
		}
		for i, f := range functions {
			s = b.Push(s, b.Frame(profile.Frame{
				Function: f, Mapping: m, Address: uint64(0x1000 + stack), Line: 10*i + stack%7, Inlined: i > 0,
			}))
		}
		b.add(profile.Task{PID: 1, Comm: "templates"}, s, stackend.FramePointer, 1)
	}
	return b.Profile(meta, profile.Losses{})
}
