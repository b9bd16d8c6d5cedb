package e2e

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// jitVar makes the test binary a JIT. It lists the names of its code in turn, each after
// a word for the preceding action: "exec", "rewrite" or, at first, "run". After "keep"
// the map does not change.
const jitVar = "E2E_JIT"

func init() {
	if steps := os.Getenv(jitVar); steps != "" {
		if err := jit(strings.Fields(steps)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// loops is a function that counts down from 2 million and returns.
var loops = map[string][]uint32{
	"amd64": {0x200000b9, 0x75c9ff00, 0x9090c3fc},             // mov ecx, 0x200000; dec ecx; jnz; ret
	"arm64": {0x52a00400, 0x71000400, 0x54ffffe1, 0xd65f03c0}, // mov w0, 0x200000; subs w0, w0, 1; b.ne; ret
}

// jit runs the same code at the same address under each name.
func jit(steps []string) (err error) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	defer func() { err = errors.Join(err, os.Remove(path)) }()
	size := uintptr(os.Getpagesize())
	const address = 0x700000000000
	mem, err := unix.MmapPtr(-1, 0, unsafe.Add(nil, address), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED_NOREPLACE)
	if err != nil {
		return fmt.Errorf("map memory for code: %w", err)
	}
	code := unsafe.Slice((*byte)(mem), size)
	for i, word := range loops[runtime.GOARCH] {
		binary.LittleEndian.PutUint32(code[4*i:], word)
	}
	if err := unix.Mprotect(code, unix.PROT_READ|unix.PROT_EXEC); err != nil {
		return fmt.Errorf("make code executable: %w", err)
	}
	entry := &mem
	run := *(*func())(unsafe.Pointer(&entry))
	for i := 0; i+1 < len(steps); i += 2 {
		if i > 0 && steps[i] == "exec" {
			if err := os.Setenv(jitVar, strings.Join(steps[i:], " ")); err != nil {
				return err
			}
			return unix.Exec("/proc/self/exe", os.Args[:1], os.Environ())
		}
		if steps[i] == "keep" {
			// Another user wrote it.
		} else if err := os.WriteFile(path, fmt.Appendf(nil, "%x %x %s\n", address, size, steps[i+1]), 0o644); err != nil {
			return err
		}
		for range 800 {
			run()
		}
	}
	return nil
}

// TestProfileJIT replaces a JIT's code by other code at the same address: the names are
// not mixed.
func TestProfileJIT(t *testing.T) {
	testenv.Root(t)
	testenv.AnyKernel(t)
	if loops[runtime.GOARCH] == nil {
		testenv.Unsupported(t, "no machine code for %s", runtime.GOARCH)
	}
	for _, step := range []string{"exec", "rewrite"} {
		t.Run(step, func(t *testing.T) {
			cmd := command(t, "profile", "-F", "199", "-f", "-q", "--", os.Args[0])
			cmd.Env = append(os.Environ(), jitVar+"=run JIT_one "+step+" JIT_two")
			r := finish(t, cmd)
			if r.code != 0 {
				t.Fatalf("exit code %d, want 0: %s", r.code, r.stderr)
			}
			stacks := folded(t, r.stdout)
			one, two := share(stacks, "JIT_one"), share(stacks, "JIT_two")
			// Both do the same work. fulgur reads a rewritten map again after a tenth of
			// a second.
			if one < 0.3 || two < 0.2 {
				t.Errorf("JIT_one has %.2f of the samples, JIT_two %.2f, want about a half each", one, two)
			}
		})
	}
}
