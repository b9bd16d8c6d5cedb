// Package sampleprof writes clang's sample profiles (-fprofile-sample-use),
// in LLVM's text format and extensible binary format.
//
// A profile counts samples by function and by position in the function's source: the line
// relative to the function's first line, and a discriminator for code on the same line. An
// inlined function has a separate profile at the position of the call. Since positions are
// relative, a profile still fits after other parts of the program have changed.
//
// The formats are described in llvm/include/llvm/ProfileData/SampleProfReader.h, and
// https://clang.llvm.org/docs/UsersManual.html#sample-profile-text-format.
package sampleprof

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"strings"
)

// Location is a position in a function.
type Location struct {
	// Line is the number of lines after the function's declaration, modulo 65536.
	Line uint32
	// Discriminator distinguishes basic blocks on the same line.
	Discriminator uint32
}

// Compare orders locations.
func (l Location) Compare(o Location) int {
	return cmp.Or(cmp.Compare(l.Line, o.Line), cmp.Compare(l.Discriminator, o.Discriminator))
}

// Record holds the samples at a location.
type Record struct {
	// Samples is the number of times that the location was executed.
	Samples uint64
	// Targets counts the calls at the location by function. It may be nil.
	Targets map[string]uint64
}

// Call is an inlined function and the location where it was called.
type Call struct {
	Location
	Callee string
}

// Function holds the samples of a function, or of one inlined call.
type Function struct {
	// Total is the sum of the samples of all instructions, weighted by their bytes, as
	// clang expects it, including functions inlined into this one.
	Total uint64
	// Head is the number of times that the function was entered. It is 0 for inlined
	// calls.
	Head uint64
	// Body holds the samples of the function's own code.
	Body map[Location]*Record
	// Inlined holds the calls that were inlined.
	Inlined map[Call]*Function
}

// At returns the record at a location, and creates it if necessary.
func (f *Function) At(l Location) *Record {
	r := f.Body[l]
	if r == nil {
		if f.Body == nil {
			f.Body = map[Location]*Record{}
		}
		r = &Record{}
		f.Body[l] = r
	}
	return r
}

// Call returns the profile of an inlined call, and creates it if necessary.
func (f *Function) Call(c Call) *Function {
	callee := f.Inlined[c]
	if callee == nil {
		if f.Inlined == nil {
			f.Inlined = map[Call]*Function{}
		}
		callee = &Function{}
		f.Inlined[c] = callee
	}
	return callee
}

// AddTarget counts calls of a function.
func (r *Record) AddTarget(name string, count uint64) {
	if r.Targets == nil {
		r.Targets = map[string]uint64{}
	}
	r.Targets[name] = Sum(r.Targets[name], count)
}

// ValidName reports whether LLVM's text format can represent the name of a function.
func ValidName(name string) bool {
	return name != "" && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) &&
		!strings.ContainsRune("#[!0123456789", rune(name[0]))
}

// Sum returns a+b, or the largest number if that does not fit, as LLVM does.
func Sum(a, b uint64) uint64 {
	sum, carry := bits.Add64(a, b, 0)
	if carry != 0 {
		return ^uint64(0)
	}
	return sum
}

// Product returns a·b, or the largest number if that does not fit.
func Product(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	if hi != 0 {
		return ^uint64(0)
	}
	return lo
}

// Profile is a sample profile.
type Profile struct {
	// Functions holds the functions by linker name.
	Functions map[string]*Function
	// Flow is whether discriminators are flow-sensitive, as clang makes them with
	// -enable-fs-discriminator. Only the binary format has this flag.
	Flow bool
}

// Function returns the profile of a function, and creates it if necessary.
func (p *Profile) Function(name string) *Function {
	f := p.Functions[name]
	if f == nil {
		if p.Functions == nil {
			p.Functions = map[string]*Function{}
		}
		f = &Function{}
		p.Functions[name] = f
	}
	return f
}

// sorted returns the names of functions in the order of LLVM's writer: by descending samples.
func (p *Profile) sorted() []string {
	return slices.SortedFunc(maps.Keys(p.Functions), func(a, b string) int {
		return cmp.Or(cmp.Compare(p.Functions[b].Total, p.Functions[a].Total), cmp.Compare(a, b))
	})
}

// locations returns the locations with samples, in order.
func (f *Function) locations() []Location {
	return slices.SortedFunc(maps.Keys(f.Body), Location.Compare)
}

// calls returns the inlined calls, in order.
func (f *Function) calls() []Call {
	return slices.SortedFunc(maps.Keys(f.Inlined), func(a, b Call) int {
		return cmp.Or(a.Compare(b.Location), cmp.Compare(a.Callee, b.Callee))
	})
}

// targets returns the functions called at a location, the most frequent first.
func (r *Record) targets() []string {
	return slices.SortedFunc(maps.Keys(r.Targets), func(a, b string) int {
		return cmp.Or(cmp.Compare(r.Targets[b], r.Targets[a]), cmp.Compare(a, b))
	})
}
