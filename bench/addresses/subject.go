package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// subject is a file with addresses to look up.
type subject struct {
	path  string
	input string // addresses, one per line
	count int    // number of addresses
	// debugInfo is the size of the sections with debug information, in
	// bytes, uncompressed.
	debugInfo uint64
}

// openSubject chooses n distinct random addresses in the code of the file at path, and
// reads the file into the page cache.
func openSubject(path string, n int) (s *subject, err error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return nil, err
	}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s = &subject{path: path}
	for _, section := range f.Sections {
		if strings.HasPrefix(section.Name, ".debug_") {
			s.debugInfo += section.Size
		}
	}
	text := f.Section(".text")
	if text == nil || text.Size < uint64(n) || s.debugInfo == 0 {
		return nil, fmt.Errorf("%s: no debug information, or less than %d bytes of code", path, n)
	}
	random := rand.New(rand.NewPCG(1, 2))
	chosen := map[uint64]bool{}
	var addrs []uint64
	for len(addrs) < n {
		if a := text.Addr + random.Uint64N(text.Size); !chosen[a] {
			chosen[a] = true
			addrs = append(addrs, a)
		}
	}
	slices.Sort(addrs)
	var lines strings.Builder
	for _, a := range addrs {
		fmt.Fprintf(&lines, "%#x\n", a)
	}
	s.input, s.count = lines.String(), n
	return s, nil
}

// buildProgram builds the template program in dir.
func buildProgram(ctx context.Context, dir string, units int) (string, error) {
	fmt.Fprintf(os.Stderr, "building %d units\n", units)
	path := filepath.Join(dir, "templates")
	link := []string{"-o", path}
	errs := make([]error, units)
	var jobs sync.WaitGroup
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range units {
		object := filepath.Join(dir, strconv.Itoa(i)+".o")
		link = append(link, object)
		jobs.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			errs[i] = compile(ctx, "-std=c++17", "-O2", "-g", fmt.Sprint("-DUNIT=", i), fmt.Sprint("-DUNITS=", units),
				"-c", "-o", object, "bench/workload/templates.cpp")
		})
	}
	jobs.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return path, compile(ctx, link...)
}

func compile(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "g++", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return nil
}
