package symbolize

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/dwarf"
)

func TestDescribe(t *testing.T) {
	function := func(name string, linkage bool) *dwarf.Function {
		return &dwarf.Function{Name: name, Linkage: linkage, StartLine: 7}
	}
	symbol := []Frame{{SystemName: "_Z1fv.cold", Offset: 3}}
	for _, test := range []struct {
		name   string
		chain  []dwarf.Frame
		symbol []Frame
		want   []Frame
	}{
		{
			"inlined",
			[]dwarf.Frame{{Function: function("_Z1gv", true), File: "a.h", Line: 1, Inlined: true}, {Function: function("_Z1fv", true), File: "a.cc", Line: 9}},
			symbol,
			[]Frame{
				{Name: "g", SystemName: "_Z1gv", File: "a.h", Line: 1, StartLine: 7, Offset: 3, Inlined: true},
				{Name: "f", SystemName: "_Z1fv.cold", File: "a.cc", Line: 9, StartLine: 7, Offset: 3},
			},
		},
		{
			"no symbol", []dwarf.Frame{{Function: function("_Z1fv", true), Line: 9}}, nil,
			[]Frame{{Name: "f", SystemName: "_Z1fv", Line: 9, StartLine: 7}},
		},
		{
			"C", []dwarf.Frame{{Function: function("f", false), Line: 9}}, []Frame{{SystemName: "f.part.0"}},
			[]Frame{{Name: "f.part.0", SystemName: "f.part.0", Line: 9, StartLine: 7}},
		},
		{
			"name in the source", []dwarf.Frame{{Function: function("_Z1fv", false), Line: 9}}, nil,
			[]Frame{{Name: "_Z1fv", SystemName: "_Z1fv", Line: 9, StartLine: 7}},
		},
		{
			"assembler", []dwarf.Frame{{File: "a.S", Line: 9}}, []Frame{{SystemName: "memcpy"}},
			[]Frame{{Name: "memcpy", SystemName: "memcpy", File: "a.S", Line: 9}},
		},
		{"line alone", []dwarf.Frame{{File: "a.S", Line: 9}}, nil, nil},
		{
			"nameless around inlined",
			[]dwarf.Frame{{Function: function("g", false), Line: 1, Inlined: true}, {Function: function("", false), Line: 9}}, nil,
			[]Frame{{Name: "g", SystemName: "g", Line: 1, StartLine: 7, Inlined: true}, {Line: 9, StartLine: 7}},
		},
		{
			"foreign bytes", []dwarf.Frame{{Function: function("\xff", true), File: "\xfe", Line: 9}}, nil,
			[]Frame{{Name: "\uFFFD", SystemName: "\uFFFD", File: "\uFFFD", Line: 9, StartLine: 7}},
		},
	} {
		frames := [][]Frame{describe(test.chain, slices.Clone(test.symbol))}
		nameFrames(t.Context(), frames, Options{})
		if diff := cmp.Diff(test.want, frames[0]); diff != "" {
			t.Errorf("%s:\n%s", test.name, diff)
		}
	}
}
