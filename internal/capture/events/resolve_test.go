package events

import (
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"

	"fulgur/internal/linux/tracefs"
)

// Without a place, the error has all reasons, or says that a file has no probes.
func TestNoPlace(t *testing.T) {
	p := &Probe{Event: Event{Kind: Kprobe, Name: "f*"}}
	for range 5 {
		p.LeaveOut("f1", "too short")
		p.LeaveOut("f2", "a part of a function")
		p.LeaveOut("f3", "too short")
	}
	usdt := &Probe{Event: Event{Kind: USDT, Path: "/a", Group: "b", Name: "c"}}
	other := new(nearest)
	other.add("d:e")
	for _, test := range []struct {
		p       *Probe
		similar *nearest
		want    string
	}{
		{p, new(nearest), "kprobe:f*: f2: a part of a function; f1, f3: too short"},
		{usdt, new(nearest), "usdt:/a:b:c: the file has no USDT probes"},
		{usdt, other, "usdt:/a:b:c: no such place"},
	} {
		if err := test.p.complete(test.similar, "place"); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
}

// Numbers have a sum, pointers have none.
func TestWeightIsNumber(t *testing.T) {
	number, pointer := &btf.Int{Size: 8}, &btf.Pointer{Target: &btf.Int{Size: 1}}
	recorded := record{userPointers: true, fields: []tracefs.Field{
		{Name: "a", Type: "size_t", Offset: 16, Size: 8}, {Name: "b", Type: "const char *", Offset: 24, Size: 8},
	}}
	called := call{kernel: true, proto: &btf.FuncProto{Params: []btf.FuncParam{{Name: "a", Type: number}, {Name: "b", Type: pointer}}}}
	for _, fields := range []Fields{recorded, called} {
		if _, _, err := (Query{Weight: "a"}).layout(fields); err != nil {
			t.Error(err)
		}
		if _, _, err := (Query{Weight: "b"}).layout(fields); err == nil || !strings.Contains(err.Error(), "is a pointer") {
			t.Errorf("%T: got error %v", fields, err)
		}
	}
	if _, _, err := (Query{Weight: "arg1"}).layout(call{}); err != nil {
		t.Errorf("unknown types: %v", err)
	}
}

func TestSeveralEvents(t *testing.T) {
	for _, s := range []string{"sched:sched_switch,sched:sched_wakeup", "kprobe:a,kprobe:b"} {
		if _, err := Parse(s); err == nil || !strings.Contains(err.Error(), "one by one") {
			t.Errorf("%s: got error %v", s, err)
		}
	}
}
