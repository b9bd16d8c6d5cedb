package offline

import (
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/report"
)

// Reports of real programs say what an expert would say first.
func TestRecordings(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        map[string]string // by rule, with parts of the sentence
	}{
		{"redis-bgsave", "off-cpu", map[string]string{
			"load":       "It used 10 % of a CPU in 8.0 s.",
			"waits":      "Threads waited for 15.0 s, 95.1 % of their time",
			"idle":       "mostly in bioProcessBackgroundJobs",
			"starved":    "redis-server 32668 was ready to run, but got no CPU, for 4.0 s",
			"memory":     "Copying pages shared since a fork (copy-on-write) took 137.1 ms, 17.9 % of the CPU time.",
			"interrupts": "",
		}},
		{"thread-pool", "", map[string]string{
			"idle":    "8 idle threads waited",
			"starved": "Threads were ready to run, but got no CPU",
		}},
	} {
		p, err := readProfile(t.Context(), recordingPath(c.name), "", func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		value, err := chooseValue(p, "")
		if err != nil {
			t.Fatal(err)
		}
		if first := report.First(p, value); c.value != "" && p.ValueTypes[first].Type != c.value {
			t.Errorf("%s: %s is first, want %s", c.name, p.ValueTypes[first].Type, c.value)
		}
		got := map[string]string{}
		for _, f := range report.New(p, value, 20, false).Findings {
			got[f.Rule] = f.Text
		}
		for rule, part := range c.want {
			if text, ok := got[rule]; !ok || !strings.Contains(text, part) {
				t.Errorf("%s: rule %s says %q, want %q", c.name, rule, text, part)
			}
		}
	}
}

// The numbers of a run, which its file has, are those of a report and of a page of that file.
func TestSameNumbers(t *testing.T) {
	for _, name := range []string{"redis-bgsave", "thread-pool"} {
		warn := func(err error) { t.Error(err) }
		in, err := readInput(t.Context(), recordingPath(name), "", "", noTimes, warn)
		if err != nil {
			t.Fatal(err)
		}
		recorded := in.profile.Losses
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		recounted := *in.profile
		recounted.CountUnnamed(false)
		if recounted.Losses != recorded {
			t.Errorf("%s: the file has %q, a count of its samples gives %q", name, lossesOf(in.profile, recorded), lossesOf(in.profile, recounted.Losses))
		}
	}
}

// lossesOf returns losses in words.
func lossesOf(p *profile.Profile, l profile.Losses) []string {
	return describe.Brief(l, describe.NounOfProfile(p))
}

func recordingPath(name string) string {
	return filepath.Join("testdata", "recordings", name+".pb.gz")
}
