package branches

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// Profiles that other programs merge are refused with what they are and the program's name, wherever
// they stand among the inputs.
func TestMergeOthers(t *testing.T) {
	profdata := testenv.Tool(t, "llvm-profdata-19")
	dir := t.TempDir()
	file := func(name, contents string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(contents), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	made := func(name, contents string, args ...string) string {
		path := filepath.Join(dir, name)
		if out, err := exec.Command(profdata, append(append([]string{"merge"}, args...), "-o", path, file("in", contents))...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return path
	}
	const samples, counts = "f:3:1\n 1: 3\n", ":ir\nf\n123\n1\n5\n"
	const clang = "clang (AutoFDO): merge such profiles with llvm-profdata merge --sample, or profile_merger"
	preagg := file("a.preagg", "B 1 2 3 0\n")
	for name, c := range map[string]struct{ path, want string }{
		"samples as text":          {file("text", samples), clang},
		"samples after a comment":  {file("comment", "# comment\n"+samples), clang},
		"extensible binary":        {made("extbinary", samples, "--sample", "--extbinary"), clang},
		"compressed":               {made("compressed", samples, "--sample", "--extbinary", "--compress-all-sections"), clang},
		"with hashes":              {made("hashes", samples, "--sample", "--extbinary", "--use-md5"), clang},
		"raw binary":               {made("binary", samples, "--sample", "--binary"), clang},
		"instrumentation":          {made("profdata", counts), "LLVM's instrumentation: merge such profiles with llvm-profdata merge"},
		"instrumentation, as text": {file("proftext", counts), "LLVM's instrumentation: merge such profiles with llvm-profdata merge"},
		"GCC's":                    {file("gcc", "adcg*33A\x00\x00\x00\x00"), "GCC (AutoFDO or gcov): merge such profiles with profile_merger"},
		"fdata":                    {file("fdata", "1 main 0 1 main 4 0 7\n"), "merge-fdata"},
	} {
		for _, inputs := range [][]string{{c.path}, {preagg, c.path}} {
			out := filepath.Join(dir, "out")
			o := MergeOptions{Inputs: inputs, Output: out, Force: true, Stdout: os.Stdout, Stderr: os.Stderr}
			if code, err := Merge(t.Context(), o); code != 1 || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.path) {
				t.Errorf("%s: got exit code %d, error %v; want %q", name, code, err, c.want)
			}
			if _, err := os.Stat(out); err == nil {
				t.Errorf("%s: got an output", name)
			}
		}
	}
}
