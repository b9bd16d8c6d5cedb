package tracefs

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

const switchFormat = `name: sched_switch
ID: 372
format:
	field:unsigned short common_type;	offset:0;	size:2;	signed:0;
	field:int common_pid;	offset:4;	size:4;	signed:1;

	field:char prev_comm[16];	offset:8;	size:16;	signed:0;
	field:pid_t prev_pid;	offset:24;	size:4;	signed:1;
	field:const char * filename;	offset:32;	size:8;	signed:0;
	field:__data_loc char[] name;	offset:40;	size:4;	signed:0;

print fmt: "prev_comm=%s", REC->prev_comm
`

func TestParseFormat(t *testing.T) {
	got, err := ParseFormat(switchFormat)
	if err != nil {
		t.Fatal(err)
	}
	want := []Field{
		{"prev_comm", "char[16]", 8, 16, false},
		{"prev_pid", "pid_t", 24, 4, true},
		{"filename", "const char *", 32, 8, false},
		{"name", "__data_loc char[]", 40, 4, false},
	}
	if got.ID != 372 || !slices.Equal(got.Fields, want) {
		t.Errorf("got %+v, want ID 372 and %+v", got, want)
	}
	for _, text := range []string{"", "ID: x\n", "ID: 1\n\tfield:;\toffset:0;", "ID: 1\n\tfield:int a;\toffset:-1;", "ID: 1\n\tfield:int a;\toffset:9999999;"} {
		if f, err := ParseFormat(text); err == nil {
			t.Errorf("%q: got %+v, want an error", text, f)
		}
	}
}

func FuzzParseFormat(f *testing.F) {
	f.Add(switchFormat)
	f.Fuzz(func(t *testing.T, text string) {
		format, err := ParseFormat(text)
		if err != nil {
			return
		}
		for _, field := range format.Fields {
			if field.Name == "" || field.Offset < 0 || field.Offset > maxOffset || field.Size < 0 || field.Size > maxOffset {
				t.Errorf("%q: got %+v", text, field)
			}
		}
	})
}

func TestFS(t *testing.T) {
	testenv.EveryKernel(t)
	testenv.Root(t)
	before, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	tracing, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer tracing.Close()
	names, err := tracing.Tracepoints()
	if err != nil || !slices.Contains(names, "sched:sched_switch") {
		t.Errorf("got %d tracepoints, %v; want sched:sched_switch among them", len(names), err)
	}
	format, err := tracing.Tracepoint("sched", "sched_switch")
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(format.Fields, func(f Field) bool { return f.Name == "prev_pid" && f.Type == "pid_t" && f.Signed }); i < 0 || format.ID == 0 {
		t.Errorf("got %+v, want prev_pid", format)
	}
	for _, name := range []string{"no_such", "../sched/sched_switch"} {
		if _, err := tracing.Tracepoint("sched", name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got error %v, want %v", name, err, fs.ErrNotExist)
		}
	}
	functions, err := tracing.Functions()
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) { // lockdown
		t.Error(err)
	}
	for _, f := range functions {
		if f == "" || strings.ContainsAny(f, " \t") {
			t.Fatalf("got function %q", f)
		}
	}
	after, err := os.ReadFile("/proc/self/mounts")
	if err != nil || !bytes.Equal(after, before) {
		t.Errorf("the mounts have changed (%v)", err)
	}
}
