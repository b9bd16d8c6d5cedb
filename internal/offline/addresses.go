package offline

import (
	"context"
	"path"

	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/decode"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
)

// linkAddresses converts addresses in files, which each format counts in its
// own way, to link-time addresses as in [profile.Frame]. It needs the file for
// that: addresses in missing files stay unchanged.
func linkAddresses(ctx context.Context, d decode.Decoded, finder *debugfile.Finder) {
	p, format := d.Profile, d.Format
	framesOf := make([][]profile.FrameID, len(p.Mappings))
	for id, f := range p.Frames {
		framesOf[f.Mapping] = append(framesOf[f.Mapping], profile.FrameID(id))
	}
	for id := 1; id < len(p.Mappings); id++ {
		m := &p.Mappings[id]
		fromBase, fromFile := format == decode.Firefox, m.Placed && m.Start != 0
		if !fromBase && !fromFile || !path.IsAbs(m.Path) {
			continue
		}
		file, err := code.Open(ctx, finder.Local(), m.Path, m.BuildID, symbolize.Options{})
		if err != nil {
			continue // symbolization reports the reason
		}
		m.Base = file.Base()
		first := true
		for _, i := range framesOf[id] {
			f := &p.Frames[i]
			switch {
			case fromBase && f.Function == 0 && !d.Relative: // its name has the whole address
			case fromBase:
				f.Address += m.Base
			default:
				address, ok := file.Address(f.Address)
				if !ok {
					m.Placed = false // the frames' addresses differ in kind
					continue
				}
				if linked := address - f.Address; first || linked == m.Linked {
					m.Linked, first = linked, false
				} else {
					m.Placed = false // there is no single difference
				}
				f.Address = address
			}
		}
		_ = file.Close() // read-only
	}
}
