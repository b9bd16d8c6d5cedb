package remote

import "testing"

// Only files that were asked for have a place.
func TestPlace(t *testing.T) {
	plain := Output{Path: "d/a.pb.gz", Stem: "d/a", Ending: ".pb.gz"}
	series, folder := plain, Output{Path: "d/p", Stem: "d/p", Form: Folder}
	series.Form = Series
	for _, c := range []struct {
		o          Output
		name, want string // "" for no place
	}{
		{Output{}, "", ""},
		{Output{}, "a", ""},
		{plain, "a.pb.gz", "d/a.pb.gz"},
		{plain, "d/a.pb.gz", ""},
		{plain, "../a.pb.gz", ""},
		{plain, "b.pb.gz", ""},
		{plain.of("web1"), "a-web1.pb.gz", "d/a-web1.pb.gz"},
		{series, "a-0001.pb.gz", "d/a-0001.pb.gz"},
		{series, "a-x.pb.gz", ""},
		{series, "a-1/../../x.pb.gz", ""},
		{series, "a.pb.gz", ""},
		{series.of("web1"), "a-web1-12345.pb.gz", "d/a-web1-12345.pb.gz"},
		{folder, "p/server.1.preagg", "d/p/server.1.preagg"},
		{folder, "p/a/b", ""},
		{folder, "p/../x", ""},
		{folder, "p/..", ""},
		{folder, "p/.bashrc", ""},
		{folder, "p/", ""},
		{folder, "p/\x1b", ""},
		{folder, "x/y", ""},
		{folder.of("web1"), "p-web1/y", "d/p-web1/y"},
	} {
		got, ok := c.o.place(c.name)
		if ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%+v: %q: got %q, %v, want %q", c.o, c.name, got, ok, c.want)
		}
	}
}
