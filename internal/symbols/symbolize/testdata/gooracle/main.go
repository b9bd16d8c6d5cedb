// The program gooracle prints what the Go runtime knows about addresses of the
// program's own code. It reads hexadecimal link-time addresses, one per line,
// and answers each with a line of fields, separated by tabs: the address, then
// for each function there, innermost first, its name, file, line and first
// line. For a position-independent program, its argument is the link-time address
// of its lowest segment.
package main

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	_ "unsafe" // for linkname
)

//go:linkname expandFinalInlineFrame runtime/pprof.runtime_expandFinalInlineFrame
func expandFinalInlineFrame(stk []uintptr) []uintptr

func main() {
	exercise()
	load := loadAddress()
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		addr, err := strconv.ParseUint(in.Text(), 0, 64)
		if err != nil {
			panic(err)
		}
		fmt.Fprintf(out, "%x", addr)
		// The runtime takes an address for one to return to, which is after
		// the instruction that it belongs to.
		for _, pc := range expandFinalInlineFrame([]uintptr{uintptr(addr+load) + 1}) {
			f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
			fmt.Fprintf(out, "\t%s\t%s\t%d\t%d", f.Function, f.File, f.Line, startLine(&f))
		}
		fmt.Fprintln(out)
	}
}

// loadAddress returns how far a position-independent program was moved when it
// was loaded: the lowest mapping of its file maps its lowest segment.
func loadAddress() uint64 {
	if len(os.Args) < 2 {
		return 0
	}
	linked, err := strconv.ParseUint(os.Args[1], 16, 64)
	if err != nil {
		panic(err)
	}
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		panic(err)
	}
	for _, line := range strings.Split(string(maps), "\n") {
		if strings.HasSuffix(line, self) {
			start, _, _ := strings.Cut(line, "-")
			addr, err := strconv.ParseUint(start, 16, 64)
			if err != nil {
				panic(err)
			}
			return addr - linked
		}
	}
	panic("no mapping of " + self)
}
