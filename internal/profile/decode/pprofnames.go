package decode

import (
	"bytes"
	"regexp"
	"strconv"

	"github.com/google/pprof/profile"

	model "fulgur/internal/profile"
)

// goFrame matches the comment with which Go names a frame of a stack in its legacy profiles
// (?debug=1): an address within the call, the function with an offset, and the line.
var goFrame = regexp.MustCompile(`^#\s+0x([0-9a-f]{1,16})\s+(\S.*)\+0x[0-9a-f]+\s+(\S.*):(\d+)\s*$`)

// nameLegacy names the locations of a profile in one of pprof's legacy formats by the comments in its
// text. pprof's parser skips them, since other programs have none.
func nameLegacy(p *profile.Profile, data []byte) {
	locations := map[uint64]*profile.Location{}
	for _, l := range p.Location {
		locations[l.Address] = l
	}
	functions := map[profile.Function]*profile.Function{}
	var last *profile.Location // of the last line, which inlined frames share
	for line := range bytes.Lines(data) {
		m := goFrame.FindSubmatch(line)
		if m == nil {
			last = nil
			continue
		}
		address, _ := strconv.ParseUint(string(m[1]), 16, 64) // at most 16 digits
		l := locations[address]
		if l == nil || len(l.Line) > 0 && l != last || len(l.Line) >= model.MaxDepth {
			last = nil // named before
			continue
		}
		last = l
		name, file := string(m[2]), string(m[3])
		key := profile.Function{Name: name, SystemName: name, Filename: file}
		f := functions[key]
		if f == nil {
			f = &profile.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: name, Filename: file}
			functions[key] = f
			p.Function = append(p.Function, f)
		}
		number, _ := strconv.ParseInt(string(m[4]), 10, 64) // 0 if it is too large
		l.Line = append(l.Line, profile.Line{Function: f, Line: number})
	}
}
