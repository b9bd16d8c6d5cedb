package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

const testLog = `time=2026-11-28T04:40:00.000Z level=DEBUG msg=start version=fulgur
time=2026-11-28T04:40:00.100Z level=DEBUG msg="unwind table" file=/usr/bin/start took=1ms
time=2026-11-28T04:40:01.500Z level=DEBUG msg=attached target=system
not a message
time=2026-11-28T04:40:06.500Z level=DEBUG msg="sampling ended" lasted=5s
time=2026-11-28T04:40:06.750Z level=DEBUG msg=end exit=0
`

const testSamples = `{"time":"2026-11-28T04:40:00.2Z","weight":1000000,"user":[{"address":"0x10","function":"leaf;x"},{"address":"0x20","module":"fulgur"}]}
{"time":"2026-11-28T04:40:01.6Z","weight":1000000,"kernel":[{"address":"0x30","function":"read"}],"user":[{"address":"0x20","function":"main"}]}
{"dropped":7}
{"time":"2026-11-28T04:40:01.7Z","weight":2000000,"kernel":[{"address":"0x30","function":"read"}],"user":[{"address":"0x20","function":"main"}]}
{"time":"2026-11-28T04:40:06.6Z","weight":1000000,"user":[{"address":"0x20","function":"main"}]}
`

const wantFolded = `end;main 1
sampling;main;read 2
start;fulgur+0x20;leaf:x 1
`

const wantTable = `| phase | time s | CPU s |
|---|---:|---:|
| start | 1.500 | 0.001 |
| sampling | 5.000 | 0.003 |
| end | 0.250 | 0.001 |

7 samples were dropped.
`

func write(t *testing.T, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestPhases(t *testing.T) {
	p, err := readPhases(write(t, "log", testLog))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.lasted(sampling); got != 5*time.Second {
		t.Errorf("sampling lasted %s, want 5s", got)
	}
	s, err := readSamples(write(t, "samples", testSamples), p)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(s.folded()); got != wantFolded {
		t.Errorf("got stacks\n%s\nwant\n%s", got, wantFolded)
	}
	if got := s.table(p); got != wantTable {
		t.Errorf("got table\n%s\nwant\n%s", got, wantTable)
	}
}

func TestPhasesMissing(t *testing.T) {
	if p, err := readPhases(write(t, "log", "time=2026-11-28T04:40:00.000Z level=DEBUG msg=start\n")); err == nil {
		t.Errorf("got %v, want an error about missing messages", p)
	}
}
