package e2e

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"fulgur/internal/testenv"
)

// A function that WebAssembly exports has V8's name for it, between its caller and what it calls.
func TestNodeWasm(t *testing.T) {
	parallel(t)
	testenv.Root(t)
	for name, program := range nodes(t) {
		t.Run(name, func(t *testing.T) {
			script, err := filepath.Abs("testdata/wasm.js")
			if err != nil {
				t.Fatal(err)
			}
			var account struct{ Name string }
			cmd := exec.Command(program, script)
			startAccounting(t, cmd, &account)
			// Versions before 22 may compile a wrapper of the function without a frame of its own.
			between := [][]string{{}, {account.Name}}
			samples := 0
			sampleProcess(t, cmd, func(text string, s streamed) {
				var chain []string
				for _, f := range s.User {
					if f.Module == jsModule {
						chain = append(chain, f.Function)
					}
				}
				at := slices.Index(chain, "calls")
				if s.TID != cmd.Process.Pid || at < 1 || slices.Contains(chain, "") {
					return // a thread of V8, or before the functions were read
				}
				samples++
				chain = chain[:at]
				if chain[0] == "calledBack" {
					chain = chain[1:]
				}
				if !slices.ContainsFunc(between, func(want []string) bool { return slices.Equal(chain, want) }) && !t.Failed() {
					t.Errorf("got %q between calls and calledBack, want one of %q: %s", chain, between, text)
				}
			})
			if t.Logf("%s: %d samples", name, samples); samples == 0 {
				t.Error("got no sample below calls")
			}
		})
	}
}
