package stackend

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The kernel side has the same reasons with the same numbers.
func TestKernelSide(t *testing.T) {
	header, err := os.ReadFile("../../../bpf/record.h")
	if err != nil {
		t.Fatal(err)
	}
	_, enum, _ := strings.Cut(string(header), "enum stack_end {\n")
	enum, _, _ = strings.Cut(enum, "}")
	got := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\tEND_(\w+) = (\d+),`).FindAllStringSubmatch(enum, -1) {
		got[m[2]] = m[1]
	}
	want := [KernelSide]string{
		None: "NONE", FramePointer: "FRAME_POINTER", Depth: "DEPTH", Fault: "FAULT", Complete: "COMPLETE", NoMapping: "NO_MAPPING",
		NoTable: "NO_TABLE", Unsupported: "UNSUPPORTED", Register: "REGISTER", NotGrowing: "NOT_GROWING", NotReady: "NOT_READY",
		Evicted: "PAGE", Broken: "NO_CHAIN", Unseen: "UNSEEN", Late: "LATE",
	}
	for e, name := range want {
		if n := strconv.Itoa(e); got[n] != name {
			t.Errorf("%v: got END_%s with number %s in record.h, want END_%s", End(e), got[n], n, name)
		}
	}
	if len(got) != KernelSide {
		t.Errorf("got %d reasons in record.h, want %d", len(got), KernelSide)
	}
}

// The text of each reason is its own, and can be read back.
func TestParse(t *testing.T) {
	for e := None; e <= Forbidden; e++ {
		if got := Parse(e.String()); got != e || e.String() == "" {
			t.Errorf("got %v for the text of %v", got, e)
		}
		if in := e.InProfile(); in != e.InProfile().InProfile() || e.Cut() != in.Cut() {
			t.Errorf("%v: got %v in a profile", e, in)
		}
	}
	if got := Parse("unknown"); got != None {
		t.Errorf("got %v for an unknown text, want %v", got, None)
	}
	if got := (Forbidden + 1).String(); got != "unknown" {
		t.Errorf("got %q for an unknown reason", got)
	}
}
