package stacks

import (
	"slices"

	"fulgur/internal/bpf"
	"fulgur/internal/runtimes"
	"fulgur/internal/runtimes/known"
)

// maxFunctions limits the functions of language runtimes in a store. Real programs have
// tens of thousands. maxFunctionBytes limits the bytes of their names and line tables,
// which are up to 17 KB per function if a process makes new code all the time.
const (
	maxFunctions     = 1 << 18
	maxFunctionBytes = 256 << 20
)

// functions holds the functions of language runtimes that the kernel side sent.
type functions struct {
	known    map[runtimes.Identity]*runtimes.Code
	previous map[runtimes.Identity]*runtimes.Code // from the previous store
	same     map[runtimes.Code]*runtimes.Code
	bytes    int // names and tables in same
}

func newFunctions() functions {
	return functions{known: map[runtimes.Identity]*runtimes.Code{}, same: map[runtimes.Code]*runtimes.Code{}}
}

// full reports whether no function may be added.
func (f *functions) full() bool {
	return len(f.known) >= maxFunctions || len(f.same) >= maxFunctions || f.bytes >= maxFunctionBytes
}

// AddCode adds the function in a record of code. Stacks that contain it arrive later.
// Beyond the limits on functions it only counts them.
func (s *Store) AddCode(record []byte) error {
	id, code, err := runtimes.ParseCode(record)
	if err != nil {
		return err
	}
	if s.functions.full() {
		*s.Unkept++
		return nil
	}
	s.functions.known[id] = s.functions.intern(code)
	return nil
}

// intern returns the same pointer for equal functions.
func (f *functions) intern(code runtimes.Code) *runtimes.Code {
	same := f.same[code]
	if same == nil {
		same = &code
		f.same[code] = same
		f.bytes += len(code.Name) + len(code.File) + len(code.Lines)
	}
	return same
}

// find returns the function with the given identity. If it has not arrived, find returns a
// function without a name, and false.
func (f *functions) find(kind runtimes.Kind, id runtimes.Identity) (*runtimes.Code, bool) {
	if code := f.known[id]; code != nil {
		return code, true
	}
	if code := f.previous[id]; code != nil {
		code = f.intern(*code)
		f.known[id] = code
		return code, true
	}
	return f.intern(runtimes.Code{Kind: kind}), false
}

// userWord is a user frame of a record. Only frames of a runtime have a second word.
type userWord struct{ first, second uint64 }

// ofRuntime reports whether w is a frame of a runtime.
func (w userWord) ofRuntime() bool {
	kind := w.kind()
	return w.first>>bpf.FrameRuntimeShift == 1 && kind != 0 && kind != bpf.FrameKinds
}

func (w userWord) kind() runtimes.Kind {
	return runtimes.Kind(w.first >> bpf.FrameKindShift & bpf.FrameKinds)
}

// identity returns the identity of the code in a process image.
func (w userWord) identity(epoch uint64) runtimes.Identity {
	return runtimes.Identity{Epoch: epoch, Address: w.first & (1<<bpf.FrameKindShift - 1), Check: uint32(w.second >> 32)}
}

// position returns the position in the code, or -1 if the code has not begun.
func (w userWord) position() int { return int(w.second&(bpf.FrameEntered-1)) - 1 }

// frame returns native frame w, which is the i-th of its stack, from the leaf.
func (w userWord) frame(i int) Frame {
	addr, exact := userAddress(w.first)
	return Frame{Address: addr, Return: i > 0 && !exact}
}

// runtimeFrame returns the stack of w, a frame of a runtime, called from parent. cut means
// that the stack lacks the frame because there was no room.
func (s *Store) runtimeFrame(parent NodeID, epoch uint64, w userWord) (at NodeID, cut bool) {
	function, ok := s.functions.find(w.kind(), w.identity(epoch))
	code := s.code(Code{Kind: CodeRuntime, Function: function}, Range{})
	if known.Internal(function) {
		return parent, false
	}
	if !ok {
		at = s.push(parent, Frame{Code: code}) // do not cache a step: the function may still arrive
		return at, at == parent
	}
	key := step{epoch: epoch, addr: w.first, second: w.second &^ bpf.FrameEntered, parent: parent}
	at = s.step(key, func(step) (NodeID, bool) {
		return s.push(parent, Frame{Code: code, Address: uint64(known.Line(function, w.position()))}), true
	})
	return at, at == parent
}

// readFrame returns the stack of w, a frame whose functions a reader of process pid reads,
// at a time in ns (CLOCK_MONOTONIC), called from parent. pc is an address in the instruction of
// its native frame, whose code is in no file if compiled is set. cut means that the stack lacks frames
// because there was no room.
func (s *Store) readFrame(parent NodeID, pid int, time, epoch uint64, w userWord, pc uint64, compiled bool) (at NodeID, cut bool) {
	key := step{epoch: epoch, addr: w.first, second: w.second, pc: pc, parent: parent}
	at = s.step(key, func(step) (pushed NodeID, final bool) {
		var places []runtimes.Place
		if r := s.reader(pid, w.kind(), time); r != nil {
			places, final = r.Places(runtimes.Frame{Identity: w.identity(epoch), Position: w.position(), PC: pc, Compiled: compiled})
		}
		if len(places) > 0 && s.functions.full() {
			*s.Unkept++
			places = nil
		}
		if len(places) == 0 {
			places, final = []runtimes.Place{{Function: runtimes.Code{Kind: w.kind()}}}, false
		}
		pushed = parent
		for _, p := range slices.Backward(places) {
			code := s.code(Code{Kind: CodeRuntime, Function: s.functions.intern(p.Function)}, Range{})
			below := pushed
			if pushed = s.push(pushed, Frame{Code: code, Address: uint64(p.Line)}); pushed == below {
				break
			}
		}
		s.unfinished = s.unfinished || !final
		return pushed, final
	})
	return at, at == parent
}

// unidentifiedFrame returns the stack of native code that is not in a file, and that the kernel side did
// not identify, called from parent, or 0 if no reader has a name for it. final is false if a reader may
// have one later.
func (s *Store) unidentifiedFrame(parent NodeID, pid int, time, epoch, pc uint64) (at NodeID, final bool) {
	final = true
	for kind := range known.All {
		r := s.reader(pid, kind, time)
		if r == nil || s.functions.full() {
			continue
		}
		places, last := r.Places(runtimes.Frame{Identity: runtimes.Identity{Epoch: epoch}, Position: -1, PC: pc, Compiled: true})
		if len(places) > 0 {
			return s.push(parent, Frame{Code: s.code(Code{Kind: CodeRuntime, Function: s.functions.intern(places[0].Function)}, Range{})}), true
		}
		final = final && last
	}
	return 0, final
}

// reader returns the reader of the functions of a process's runtime, or nil; see [Store.Readers].
func (s *Store) reader(pid int, kind runtimes.Kind, time uint64) runtimes.Reader {
	if s.Readers == nil {
		return nil
	}
	return s.Readers(pid, kind, time)
}
