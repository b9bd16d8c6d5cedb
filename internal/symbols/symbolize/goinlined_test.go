package symbolize

import (
	"strings"
	"testing"

	"fulgur/internal/symbols/elffile"
)

// Small functions of the runtime are inlined, and those with breakpoints are not.
func TestGoInlined(t *testing.T) {
	for _, toolchain := range strings.Split(*toolchains, ",") {
		t.Run(toolchain, func(t *testing.T) {
			f, err := elffile.Open(goBuild(t, toolchain, nil, oracleFlags(toolchain)))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			inlined, into, err := GoInlined(f, "runtime.gopark", "runtime.add")
			if err != nil || inlined != "runtime.add" || into == "" {
				t.Errorf("got %q in %q, %v; want runtime.add in another function", inlined, into, err)
			}
			inlined, into, err = GoInlined(f, "runtime.gopark", "runtime.ready", "runtime.injectglist", "runtime.execute")
			if err != nil || inlined != "" {
				t.Errorf("got %q in %q, %v; want none", inlined, into, err)
			}
		})
	}
}
