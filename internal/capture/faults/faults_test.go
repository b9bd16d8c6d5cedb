package faults

import "testing"

func TestDetail(t *testing.T) {
	for _, want := range []Page{
		{Kind: Unknown},
		{Kind: Anonymous},
		{Kind: File},
		{Kind: File, Offset: 1 << 12},
		{Kind: File, Offset: 1<<63 - 1<<16},
	} {
		if got := ParseDetail(want.detail()); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}
