package main

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"fulgur/internal/message/usage"
	"fulgur/internal/remote"
)

func TestSplitRemote(t *testing.T) {
	t.Setenv("FULGUR_IMAGE", "")
	for line, want := range map[string]string{
		"":                           "here: ",
		"profile --on ssh://a":       "here: profile --on ssh://a",
		"--keep profile":             "here: --keep profile",
		"--on ssh://a profile 10":    "a: profile 10",
		"--on=ssh://a profile -- ls": "a: profile -- ls",
		"--on ssh://a --keep --on ssh://me@a:22 count":                    "a me@a-22 keep: count",
		"--on pod://a/b --context=x --kubeconfig f --image i --in ns top": "a-b: top",
	} {
		a, rest, err := splitRemote(words(line))
		got := "here"
		if a != nil {
			var labels []string
			for _, h := range a.machines {
				labels = append(labels, h.Label())
			}
			if a.keep {
				labels = append(labels, "keep")
			}
			got = strings.Join(labels, " ")
		}
		if got += ": " + strings.Join(rest, " "); err != nil || got != want {
			t.Errorf("%s: got %q, %v, want %q", line, got, err, want)
		}
	}
	for _, line := range []string{"--on", "--on ssh://a", "--on ssh://a --keep", "--on= profile", "--on a profile", "--on ssh://a --on ssh://a profile", "--on ssh://a --context x profile", "--on pod://a/b profile", "--on pod://-x profile"} {
		if _, _, err := splitRemote(words(line)); !errors.As(err, new(usageError)) && !errors.Is(err, usage.Err) {
			t.Errorf("%s: got %v, want a usage error", line, err)
		}
	}
}

// Each command either runs on other hosts, or says why it does not.
func TestStaysHere(t *testing.T) {
	for line, want := range map[string]string{
		"profile": "", "top": "", "offcpu": "", "blockio": "", "faults": "", "softirq": "", "runq": "", "count -e x:y": "",
		"latency -e x:y": "", "locks": "", "alloc": "", "record": "", "bolt": "", "autofdo": "", "doctor": "",
		"agent": "runs as a service", "view x": "measures nothing", "convert x": "measures nothing", "diff x y": "measures nothing",
		"report x": "measures nothing", "merge x": "measures nothing", "completion bash": "measures nothing", "help": "measures nothing",
		"version":       "measures nothing",
		"profile --tui": "--tui", "profile --serve": "--serve", "bolt --optimize x -- ls": "--optimize",
		"branch-stepper": "measures nothing", remote.Subcommand: "measures nothing", "complete": "measures nothing",
	} {
		c, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if err := staysHere(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	for _, s := range subcommands {
		if s.group == measureGroup && !slices.ContainsFunc([]string{"agent"}, func(name string) bool { return name == s.name }) {
			if err := staysHere(s.command()); err != nil {
				t.Errorf("%s: %v", s.name, err)
			}
		}
	}
}

func TestOutputsOf(t *testing.T) {
	file := func(path, stem, ending string) remote.Output {
		return remote.Output{Path: path, Stem: stem, Ending: ending}
	}
	series := file("d/a.pb.gz", "d/a", ".pb.gz")
	series.Form = remote.Series
	for line, want := range map[string][2]remote.Output{
		"profile":                               {},
		"profile -o -":                          {},
		"profile -o /dev/stdout":                {},
		"doctor":                                {},
		"top":                                   {},
		"profile -o d//flame.html --log l.txt":  {file("d/flame.html", "d/flame", ".html"), file("l.txt", "l", ".txt")},
		"record":                                {file("fulgur.json.gz", "fulgur", ".json.gz")},
		"record --format pprof":                 {},
		"profile --interval 1 -o d/a.pb.gz":     {series},
		"profile --stream":                      {},
		"bolt -p 1 -o a.preagg":                 {file("a.preagg", "a", ".preagg")},
		"bolt -p 1 --all-binaries -o profiles/": {{Path: "profiles", Stem: "profiles", Form: remote.Folder}},
		"autofdo -p 1 -o ../a.prof":             {file("../a.prof", "../a", ".prof")},
	} {
		c, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		out, log, err := outputsOf(c, false)
		if d := cmp.Diff(want, [2]remote.Output{out, log}); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", line, err, d)
		}
	}
	for line, several := range map[string]bool{
		"profile": true, "profile -o -": true, "profile -o http://127.0.0.1:4318": false, "profile -o /dev/null": false,
		"profile -o a --log ./a": false,
	} {
		c, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if out, _, err := outputsOf(c, several); err == nil {
			t.Errorf("%s: got %+v, want an error", line, out)
		}
	}
}

// The order of the other side changes where files are written, and nothing else.
func TestOrdered(t *testing.T) {
	h := hostCommand{Folder: "/f", Output: "a.html", Log: "l", Command: words("profile -o /other/a.html --log l -F 99 -- ls -o x")}
	c, err := h.ordered(&bytes.Buffer{}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	p := c.(*profileCommand)
	if p.Output != "/f/a.html" || p.Log != "/f/l" || uint64(*p.Frequency) != 99 || strings.Join(p.Command, " ") != "ls -o x" {
		t.Errorf("got %+v", p)
	}
	for _, line := range []string{"view x", "agent", "--help", "profile --serve"} {
		h.Command = words(line)
		if c, err := h.ordered(&bytes.Buffer{}, &bytes.Buffer{}); err == nil {
			t.Errorf("%s: got %+v, want an error", line, c)
		}
	}
}

func TestCompleteRemote(t *testing.T) {
	for line, want := range map[string]string{
		"--o":                               "--on\t",
		"--on ssh://a prof":                 "profile\t",
		"--on=ssh://a --keep offcpu --uni":  "--unit\t",
		"--on ssh://a --on ssh://b profile": "profile\t",
		"--on ssh://a":                      "",
	} {
		got, err := completions(words(line))
		if err != nil || !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%s: got %q, %v, want %q", line, got, err, want)
		}
	}
}

// kubectl fulgur is fulgur on a pod.
func TestFromKubectl(t *testing.T) {
	for line, want := range map[string]string{
		"":                            "",
		"--help":                      "--help",
		"version":                     "version",
		"web/shop-1 profile 10":       "--on pod://web/shop-1 profile 10",
		"-n web shop-1 top":           "--on pod://web/shop-1 top",
		"--namespace=web shop top -n": "--on pod://web/shop top -n",
		"--context a --image=b web/shop profile -- ls": "--on pod://web/shop --context=a --image=b profile -- ls",
		"-n web profile 10":                            "-n web profile 10",
		"-n":                                           "-n",
		"--frob web/shop profile":                      "--frob web/shop profile",
	} {
		if got := strings.Join(fromKubectl(words(line)), " "); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// A pod is the target of commands that can have one, unless they have another.
func TestPodTarget(t *testing.T) {
	for line, want := range map[string]string{
		"profile": "", "top": "", "record": "", "doctor": "", "offcpu --container a": "",
		"bolt": "cannot choose a pod", "autofdo": "cannot choose a pod", "profile -- ls": "no command can follow",
	} {
		c, err := parse(words(line), &bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if err := notOfPods(c); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]string{"profile 1": "a/b", "top": "a/b", "profile -p 1": "", "profile --unit x": ""} {
		h := hostCommand{Folder: "/f", Pod: "a/b", Command: words(line)}
		c, err := h.ordered(&bytes.Buffer{}, &bytes.Buffer{})
		if err != nil {
			t.Fatal(err)
		}
		if got := targetOf(c).Pod; got != want {
			t.Errorf("%s: got the pod %q, want %q", line, got, want)
		}
	}
}
