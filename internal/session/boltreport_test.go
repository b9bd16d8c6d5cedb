package session

import (
	"os/exec"
	"strings"
	"testing"
)

func TestBoltReportText(t *testing.T) {
	r := &boltReport{
		Samples: 2, Records: 64, InsideShare: 0.75, MispredictedShare: 0.0125,
		Lost:    []cause{{"records that the kernel could not deliver", 7}},
		LeftOut: []cause{{"records of the kernel", 3}},
		Binaries: []binaryReport{
			{
				Binary: "bin/app", BuildID: "0123", Profile: "my app.preagg", Branches: 48, Traces: 1, Taken: 40,
				ExecutableBytes: 400, TakenByExecutable: 0.1, Warnings: []string{"too few"},
				Next: [][]string{{"perf2bolt", "-p", "my app.preagg"}},
			},
			{Binary: "new\nline", Profile: "-", Branches: 2, Traces: 2, TakenByExecutable: 123.4},
		},
		Warnings: []string{"beware"},
	}
	const want = `2 samples, 64 branch records
  lost: 7 records that the kernel could not deliver
  left out: 3 records of the kernel
  75.0 % of the branches inside, 1.25 % of these mispredicted

bin/app (build ID 0123)
  profile: my app.preagg
  48 branch records of 1 different trace
  0.1 taken branches for each byte of machine code (1 or more is enough)
  warning: too few

new\nline (no build ID)
  2 branch records of 2 different traces
  123 taken branches for each byte of machine code (1 or more is enough)

warning: beware

next, for each, as:
  perf2bolt -p 'my app.preagg'
`
	if got := r.text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRemedy(t *testing.T) {
	for want, r := range map[string]binaryReport{
		"measure 10 times as long":  {Taken: 1, TakenByExecutable: 0.1},
		"measure 1.3 times as long": {Taken: 1, TakenByExecutable: 0.75},
		"no branch was taken in it": {},
	} {
		if got := r.remedy(); !strings.HasPrefix(got, want) {
			t.Errorf("remedy %q, want %q", got, want)
		}
	}
}

// A shell takes words for what they were.
func TestShellWords(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs the program bash")
	}
	for _, word := range []string{"plain-1.2/x", "", "a b", "it's", `$HOME "x" \ !`, "tab\tnew\nline'", "\x1b[31m\xff"} {
		out, err := exec.Command(bash, "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q becomes %s, and that %q: %v", word, shellWord(word), out, err)
		}
	}
}
