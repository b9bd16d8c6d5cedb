package debugfile

import (
	"encoding/hex"
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/symbols/elffile/elftest"
)

// notes returns the kernel's /sys file for a build ID.
func notes(t testing.TB, id string) string {
	t.Helper()
	b, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	return string(elftest.BuildID(b).Content)
}

func TestKernel(t *testing.T) {
	vmlinux := string(image(t, id, debugInfo("right")))
	rebuilt := string(image(t, "eeff0011", debugInfo("wrong")))
	const boot, modules = "/usr/lib/debug/boot/vmlinux-6.1.0-test", "/usr/lib/debug/lib/modules/6.1.0-test/vmlinux"
	for _, tt := range []struct {
		name          string
		notes         string
		files         tree
		want, problem string
	}{
		{"Debian", notes(t, id), tree{boot: vmlinux}, boot, ""},
		{"Fedora", notes(t, id), tree{modules: vmlinux}, modules, ""},
		{"built here", notes(t, id), tree{"/lib/modules/6.1.0-test/build": "->/src/linux", "/src/linux/vmlinux": vmlinux}, "/lib/modules/6.1.0-test/build/vmlinux", ""},
		{"by build ID", notes(t, id), tree{byID: vmlinux}, byID, ""},
		{"built again", notes(t, id), tree{boot: rebuilt}, "", "build ID is "},
		{"one of two", notes(t, id), tree{boot: rebuilt, modules: vmlinux}, modules, ""},
		{"of another release", notes(t, id), tree{"/usr/lib/debug/boot/vmlinux-6.1.1": vmlinux}, "", "vmlinux of kernel 6.1.0-test: not found"},
		{"without debug info", notes(t, id), tree{boot: string(image(t, id))}, "", "neither debug info"},
		{"without build ID", "", tree{boot: vmlinux}, "", "/sys/kernel/notes has none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := maps.Clone(tt.files)
			files["/sys/kernel/notes"] = tt.notes
			root := files.write(t)
			f, err := newFinder(t, Config{Host: root}).Kernel(t.Context())
			found(t, f, err, root, tt.want, tt.problem)
		})
	}
	if _, err := newFinder(t, Config{}).Kernel(t.Context()); err == nil || !strings.Contains(err.Error(), "build ID of the running kernel") {
		t.Errorf("without /sys: got %v, want %q in it", err, "build ID of the running kernel")
	}
}

// The vmlinux of another kernel is found if its debug info is installed.
func TestKernelByBuildID(t *testing.T) {
	vmlinux := string(image(t, id, debugInfo("right"), elftest.Section{Name: ".text", Content: []byte{0x90}}))
	debugOnly := string(image(t, id, debugInfo("right")))
	const boot, modules = "/usr/lib/debug/boot/vmlinux-6.1.1", "/usr/lib/debug/lib/modules/6.1.1/vmlinux"
	for _, tt := range []struct {
		name          string
		files         tree
		id            string
		want, problem string
	}{
		{"running", tree{"/usr/lib/debug/boot/vmlinux-6.1.0-test": vmlinux}, id, "/usr/lib/debug/boot/vmlinux-6.1.0-test", ""},
		{"Debian", tree{boot: vmlinux, modules: "->../../../boot/vmlinux-6.1.1"}, id, boot, ""},
		{"Fedora", tree{modules: vmlinux}, id, modules, ""},
		{"by build ID", tree{byID: vmlinux}, id, byID, ""},
		{"with code", tree{modules: debugOnly, byID: vmlinux}, id, byID, ""},
		{"without code", tree{modules: debugOnly}, id, "", "no code in it"},
		{"another build", tree{modules: vmlinux}, "eeff0011", "", "build ID is "},
		{"no build ID", tree{modules: vmlinux}, "../../x", "", "not found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tt.files.write(t)
			f, err := newFinder(t, Config{Host: root}).KernelByBuildID(t.Context(), tt.id)
			found(t, f, err, root, tt.want, tt.problem)
		})
	}
}

func TestModule(t *testing.T) {
	module := string(image(t, id, debugInfo("right")))
	sys := func(more tree) tree {
		files := tree{
			"/sys/module/snd_hda/notes/.note.gnu.build-id": notes(t, id),
			"/sys/module/snd_hda/sections/.text":           "0xffffffffc0a00000\n",
			"/sys/module/snd_hda/sections/.init.text":      "0x0000000000000000\n",
			"/lib/modules/6.1.0-test/modules.dep":          "kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko\nkernel/sound/snd-hda.ko.xz: kernel/sound/snd.ko\n",
		}
		maps.Copy(files, more)
		return files
	}
	const below = "/usr/lib/debug/lib/modules/6.1.0-test/kernel/sound/snd-hda.ko"
	for _, tt := range []struct {
		name          string
		files         tree
		want, problem string
	}{
		{"by build ID", sys(tree{byID: module}), byID, ""},
		{"Debian", sys(tree{below: module}), below, ""},
		{"Fedora", sys(tree{"/usr/lib/debug/usr/lib/modules/6.1.0-test/kernel/sound/snd-hda.ko.debug": module}), "/usr/lib/debug/usr/lib/modules/6.1.0-test/kernel/sound/snd-hda.ko.debug", ""},
		{"not stripped", sys(tree{"/lib/modules/6.1.0-test/kernel/sound/snd-hda.ko": module}), "/lib/modules/6.1.0-test/kernel/sound/snd-hda.ko", ""},
		{"built again", sys(tree{below: string(image(t, "eeff0011", debugInfo("wrong")))}), "", "build ID is "},
		{"missing", sys(nil), "", "debug file of kernel module snd_hda: not found"},
		{"no address", sys(tree{"/sys/module/snd_hda/sections/.text": "what"}), "", `"what" is not an address`},
		{"not loaded", nil, "", "build ID of the loaded module"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := tt.files.write(t)
			m, err := newFinder(t, Config{Host: root}).Module(t.Context(), "snd_hda")
			if err != nil {
				found(t, nil, err, root, tt.want, tt.problem)
				return
			}
			found(t, m.File, nil, root, tt.want, "")
			if diff := cmp.Diff(map[string]uint64{".text": 0xffffffffc0a00000, ".init.text": 0}, m.Sections); diff != "" {
				t.Error(diff)
			}
		})
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b"} {
		if _, err := newFinder(t, Config{}).Module(t.Context(), name); err == nil || errors.Is(err, ErrNotFound) {
			t.Errorf("%q: got %v, want an error that is not ErrNotFound", name, err)
		}
	}
}

func FuzzModulePath(f *testing.F) {
	f.Add("kernel/fs/ext4/ext4.ko: kernel/fs/jbd2/jbd2.ko\nkernel/sound/snd-hda.ko.xz:", "snd_hda")
	f.Fuzz(func(t *testing.T, dep, name string) {
		if module, ok := modulePath(strings.NewReader(dep), name); ok && !strings.Contains(dep, module) {
			t.Errorf("got %q, want a part of %q", module, dep)
		}
	})
}
