package symbolize

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/symbols/debugfile"
)

// kernelSource has an inlined function, in a section that is not the first.
const kernelSource = `
static inline __attribute__((always_inline)) int inner(int n) { asm volatile("nop"); return n * 3; }
__attribute__((noinline, section(".text.hot"))) int outer(int n) { return inner(n) + 1; }
int _start(int n) { return outer(n); }
`

// fakeHost returns a directory with the given files of a machine.
func fakeHost(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// contents returns the content of a file.
func contents(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// notes returns the build ID note of an ELF file, as /sys shows it.
func notes(t *testing.T, path string) string {
	t.Helper()
	out := path + ".notes"
	run(t, "", "objcopy", "--dump-section", ".note.gnu.build-id="+out, path, path+".copy")
	return contents(t, out)
}

// named is a table with one function.
type named struct {
	start, end uint64
	module     string
}

func (n named) LookupBatch(addrs []uint64) ([][]Frame, error) {
	frames := make([][]Frame, len(addrs))
	for i, addr := range addrs {
		if n.start <= addr && addr < n.end {
			frames[i] = []Frame{{Name: "outer", SystemName: "outer", Module: n.module, Offset: addr - n.start}}
		}
	}
	return frames, nil
}

// Lines and inlined functions come from debug files even though the code runs at other
// addresses than its link-time addresses.
func TestDebugKernel(t *testing.T) {
	const running = uint64(0xffffffffa1200000)
	vmlinux := compile(t, "vmlinux.c", kernelSource, "gcc", "-g", "-O1", "-static", "-nostdlib", "-no-pie",
		"-Wl,--build-id", "-Wl,-Ttext=0x81000000", "-Wl,--defsym=_text=0x81000000", "-o", "OUT", "IN")
	object := compile(t, "m.c", kernelSource, "gcc", "-c", "-g", "-O1", "-mcmodel=large", "-o", "OUT", "IN")
	module := object + ".ko"
	run(t, "", "ld", "-r", "--build-id", "-o", module, object)

	var outer nmSymbol
	for _, s := range nm(t, vmlinux) {
		if s.name == "outer" {
			outer = s
		}
	}
	host := fakeHost(t, map[string]string{
		"sys/kernel/notes":                             notes(t, vmlinux),
		"usr/lib/debug/boot/vmlinux-test":              contents(t, vmlinux),
		"sys/module/mod/notes/.note.gnu.build-id":      notes(t, module),
		"sys/module/mod/sections/.text":                "0xffffffffc0100000",
		"sys/module/mod/sections/.text.hot":            "0xffffffffc0200000",
		"lib/modules/test/modules.dep":                 "kernel/mod.ko:\n",
		"usr/lib/debug/lib/modules/test/kernel/mod.ko": contents(t, module),
		"kallsyms":        fmt.Sprintf("%x T _stext\n%[1]x T _text\n", running),
		"kallsyms.hidden": "0000000000000000 T _stext\n0000000000000000 T _text\n",
	})
	finder, err := debugfile.New(debugfile.Config{Host: host, Release: "test", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name   string
		start  uint64
		module string
		source string
	}{
		{"kernel", outer.addr - 0x81000000 + running, "", "vmlinux.c"},
		{"module", 0xffffffffc0200000, "mod", "m.c"},
		{"BPF program", 0xffffffffc0300000, "bpf", ""},
		{"module without debug information", 0xffffffffc0400000, "other", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			names := named{test.start, test.start + outer.size, test.module}
			k := NewDebugKernel(t.Context(), names, finder, filepath.Join(host, "kallsyms"), Options{})
			var addrs []uint64
			for a := names.start - 1; a <= names.end; a++ {
				addrs = append(addrs, a)
			}
			frames, err := k.LookupBatch(addrs)
			if err != nil {
				t.Fatal(err)
			}
			inlined := false
			for i, f := range frames {
				if i == 0 || i == len(frames)-1 {
					if f != nil {
						t.Errorf("%#x: got %+v outside the function, want none", addrs[i], f)
					}
					continue
				}
				last := f[len(f)-1]
				if last.Name != "outer" || last.Module != test.module || last.Offset != uint64(i-1) || filepath.Base("/"+last.File) != filepath.Base("/"+test.source) {
					t.Errorf("%#x: got %+v, want outer", addrs[i], last)
				}
				if len(f) == 2 {
					inlined = true
					if f[0].Name != "inner" || !f[0].Inlined || f[0].Module != test.module || f[0].Line != 2 || last.Line != 3 {
						t.Errorf("%#x: got %+v, want inner in line 2, called in line 3", addrs[i], f)
					}
				}
			}
			if inlined != (test.source != "") {
				t.Errorf("got inlined functions: %t, want %t", inlined, test.source != "")
			}
		})
	}

	names := named{running, running + 1, ""}
	hidden := NewDebugKernel(t.Context(), names, finder, filepath.Join(host, "kallsyms.hidden"), Options{})
	frames, err := hidden.LookupBatch([]uint64{running})
	if err == nil || !strings.Contains(err.Error(), "kptr_restrict") || len(frames[0]) != 1 {
		t.Errorf("hidden addresses: got %v, %v; want a name and an error about kptr_restrict", frames, err)
	}
	plain := NewDebugKernel(t.Context(), names, finder, filepath.Join(host, "kallsyms.hidden"), Options{NoInlines: true})
	if frames, err := plain.LookupBatch([]uint64{running}); err != nil || frames[0][0].File != "" {
		t.Errorf("names only: got %v, %v; want no file", frames, err)
	}
}
