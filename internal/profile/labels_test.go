package profile

import (
	"slices"
	"strings"
	"testing"
)

func TestNewLabels(t *testing.T) {
	t.Parallel()
	got := NewLabels([]Label{{Key: "b", Value: "1"}, {Key: "a", Value: "2"}, {Key: "b", Value: "3"}})
	if want := (Labels{{Key: "a", Value: "2"}, {Key: "b", Value: "1"}}); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, ok := got.Value("c"); ok {
		t.Error("got a value of an unknown key")
	}
}

// Equal sets have one ID, and different sets never share one.
func TestBuilderLabels(t *testing.T) {
	t.Parallel()
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
	ids := map[LabelsID]bool{}
	sets := []Labels{nil, {{Key: "a", Value: "bc"}}, {{Key: "ab", Value: "c"}}, {{Key: "a", Value: "b"}, {Key: "c", Value: ""}}, {{Key: "a", Value: ""}, {Key: "b", Value: "c"}}, {{Key: "k", Value: strings.Repeat("x", 300)}}}
	for _, set := range sets {
		id := b.Labels(set)
		ids[id] = true
		if again := b.Labels(slices.Clone(set)); again != id {
			t.Errorf("%v: got IDs %d and %d", set, id, again)
		}
	}
	if len(ids) != len(sets) {
		t.Errorf("got %d IDs for %d sets", len(ids), len(sets))
	}
}

// Labels without room are left out and counted.
func TestBuilderLabelsBounded(t *testing.T) {
	t.Parallel()
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
	set := Labels{{Key: "a", Value: strings.Repeat("x", 1000)}, {Key: "b", Value: strings.Repeat("y", 1000)}}
	b.left.bytes = 5000
	known := b.Labels(set)
	if known == 0 || b.left.bytes < 2000 {
		t.Errorf("got ID %d, and %d bytes left; want the text to count once", known, b.left.bytes)
	}
	for i := range 4 {
		set[0].Value = strings.Repeat("z", 1000+i)
		b.Labels(set)
	}
	b.left.bytes = 0
	set[0].Value = strings.Repeat("x", 1000)
	if again := b.Labels(set); again != known {
		t.Errorf("got ID %d, want the known %d", again, known)
	}
	if got := b.Profile(Meta{}, Losses{}).Losses[LossUnlabeled]; got != 3 {
		t.Errorf("got %d sets without room, want 3", got)
	}
}

// Samples that differ in their labels stay separate, and the group of a label is its value.
func TestGroupLabel(t *testing.T) {
	t.Parallel()
	b := NewBuilder(ValueType{Type: "samples", Unit: "count"})
	sets := []Labels{nil, {{Key: "kind", Value: "x"}}, {{Key: "kind", Value: "y"}, {Key: "user", Value: "u"}}, {{Key: "kind", Value: ""}}}
	for _, set := range sets {
		b.Add(Sample{Task: b.Task(Task{PID: 1, Labels: b.Labels(set)}), CPU: -1, Values: []int64{1}})
	}
	p := b.Profile(Meta{Grouping: GroupLabel, GroupLabel: "kind"}, Losses{})
	if err := p.Check(); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"[no kind]", "x", "y", "[no kind]"} {
		if got := p.Group(p.Samples[i].Task); got != want {
			t.Errorf("sample %d: got group %q, want %q", i, got, want)
		}
		value, ok := LabelsNamed("kind", want).Value("kind")
		if wantValue, _ := sets[i].Value("kind"); value != wantValue || ok != (wantValue != "") {
			t.Errorf("%q: got %q, %v; want %q", want, value, ok, wantValue)
		}
	}
}
