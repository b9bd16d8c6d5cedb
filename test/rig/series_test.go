package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The file lists each kernel that fulgur supports.
func TestKernelsFile(t *testing.T) {
	list, err := readSeries(kernelsFile)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][]string{}
	for _, s := range list {
		got[s.arch] = append(got[s.arch], s.name)
	}
	want := map[string][]string{"amd64": {"5.10", "6.1", "6.12", "7.2"}, "arm64": {"6.1", "6.12", "7.2"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadSeries(t *testing.T) {
	list, err := readSeries("# comment\namd64 6.1 a,b 6.1.0-9 # more\n\narm64 7.2 sid -\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []series{
		{arch: "amd64", name: "6.1", suites: []string{"a", "b"}, green: "6.1.0-9"},
		{arch: "arm64", name: "7.2", suites: []string{"sid"}},
	}
	if diff := cmp.Diff(want, list, cmp.AllowUnexported(series{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := readSeries("amd64 6.1 sid\n"); err == nil {
		t.Error("got no error for a line with 3 columns")
	}
	if got, err := chooseSeries(list, "amd64", nil); err != nil || len(got) != 1 || got[0].name != "6.1" {
		t.Errorf("series of amd64 = %v, %v, want 6.1", got, err)
	}
	if _, err := chooseSeries(list, "amd64", []string{"7.2"}); err == nil {
		t.Error("got no error for a kernel of another architecture")
	}
}

func TestSeenGreen(t *testing.T) {
	for _, tc := range []struct {
		green, release string
		want           bool
	}{
		{"", "7.2.13+deb14-cloud-amd64", false},
		{"7.2.13+deb14-cloud-amd64", "7.2.13+deb14-cloud-amd64", true},
		{"7.2.13+deb14-cloud-amd64", "7.2.9+deb14-cloud-amd64", true},
		{"7.2.13+deb14-cloud-amd64", "7.2.14+deb14-cloud-amd64", false},
		{"7.2.13+deb14-cloud-amd64", "7.10.1+deb14-cloud-amd64", false},
		{"6.1.0-56-cloud-amd64", "6.1.0-9-cloud-amd64", true},
	} {
		if got := (series{green: tc.green}).seenGreen(tc.release); got != tc.want {
			t.Errorf("%s, green up to %q: %v, want %v", tc.release, tc.green, got, tc.want)
		}
	}
}
