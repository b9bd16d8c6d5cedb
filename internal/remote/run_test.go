package remote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/testenv"
)

// A run brings output, messages, files and the exit code. Arguments arrive as they are, and messages name
// the files of this side.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	o := Options{
		Args:   []string{"a  b'\"$(x)`\n", "-"},
		Output: file(filepath.Join(dir, "flame.html")), Log: file(filepath.Join(dir, "debug.log")),
	}
	r := runScript(t, o, `printf 'out\0%s %s' "$4" "$5"; echo "written: $1/$2" >&2
		printf page >"$1/$2"; printf log >"$1/$3"; exit 7`, self(t, "here"))
	if r.code != 7 || r.err != nil {
		t.Errorf("got %d, %v, want exit code 7", r.code, r.err)
	}
	if got, want := r.stdout.String(), "out\x00a  b'\"$(x)`\n -"; got != want {
		t.Errorf("output: got %q, want %q", got, want)
	}
	if got, want := r.stderr.String(), "written: "+o.Output.Path+"\n"; got != want {
		t.Errorf("messages: got %q, want %q", got, want)
	}
	wantFile(t, o.Output.Path, "page")
	wantFile(t, o.Log.Path, "log")
}

// Several machines begin at the same time, and have files of their own. The exit code is the highest.
func TestSeveral(t *testing.T) {
	dir := t.TempDir()
	met := t.TempDir()
	o := Options{Output: file(filepath.Join(dir, "a.folded")), Args: []string{met}}
	// Each waits for the other. Names of files tell them apart.
	r := runScript(t, o, `mkdir "$4/$2"; while [ "$(ls "$4" | wc -l)" -lt 2 ]; do sleep 0.01; done
		echo text; echo message >&2; echo "$2" >"$1/$2"; case $2 in *one*) exit 3;; esac`, self(t, "one"), self(t, "two"))
	if r.code != 3 || r.err != nil {
		t.Errorf("got %d, %v, want exit code 3", r.code, r.err)
	}
	for _, text := range []string{r.stdout.String(), r.stderr.String()} {
		if !strings.Contains(text, "one: ") || !strings.Contains(text, "two: ") {
			t.Errorf("got %q, want lines of both machines", text)
		}
	}
	wantFile(t, filepath.Join(dir, "a-one.folded"), "a-one.folded\n")
	wantFile(t, filepath.Join(dir, "a-two.folded"), "a-two.folded\n")
	wantFile(t, o.Output.Path, "")
}

// A machine that fails does not stop the others.
func TestOneFails(t *testing.T) {
	dir := t.TempDir()
	o := Options{Output: file(filepath.Join(dir, "a.folded"))}
	r := runScript(t, o, `echo x >"$1/$2"`, self(t, "good"), shell("echo no >&2; exit 255"))
	if r.code != 1 || !strings.Contains(r.stderr.String(), "fulgur: bad: ") || !strings.Contains(r.stderr.String(), "bad: no\n") {
		t.Errorf("got %d, %q, want exit code 1, and why", r.code, r.stderr.String())
	}
	wantFile(t, filepath.Join(dir, "a-good.folded"), "x\n")
}

// Series and folders of files arrive whole.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	series := file(filepath.Join(dir, "a.folded"))
	series.Form = Series
	runScript(t, Options{Output: series}, `echo 1 >"$1/a-0001.folded"; echo 2 >"$1/a-0012.folded"`, self(t, ""))
	wantFile(t, filepath.Join(dir, "a-0001.folded"), "1\n")
	wantFile(t, filepath.Join(dir, "a-0012.folded"), "2\n")

	into := Output{Path: filepath.Join(dir, "profiles"), Stem: filepath.Join(dir, "profiles"), Form: Folder}
	runScript(t, Options{Output: into}, `mkdir "$1/$2"; echo b >"$1/$2/b.1.preagg"`, self(t, ""))
	wantFile(t, filepath.Join(into.Path, "b.1.preagg"), "b\n")
}

// awaitText waits until a buffer has text.
func awaitText(t *testing.T, b *buffer, text string) {
	t.Helper()
	testenv.Await(t, func() bool { return strings.Contains(b.String(), text) }, func() string { return "got " + b.String() })
}

// Each Ctrl-C reaches the other side, which still sends what it has.
func TestInterrupt(t *testing.T) {
	o := Options{Output: file(filepath.Join(t.TempDir(), "a.folded"))}
	r, interrupt, end := start(t, o, `n=0; trap 'n=$((n+1)); echo got $n' INT; echo ready
		while [ $n -lt 2 ]; do sleep 0.01; done; echo $n >"$1/$2"`, self(t, ""))
	awaitText(t, &r.stdout, "ready\n")
	interrupt()
	awaitText(t, &r.stdout, "got 1\n")
	interrupt()
	if end(); r.code != 0 {
		t.Errorf("got exit code %d: %s", r.code, r.stderr.String())
	}
	wantFile(t, o.Output.Path, "2\n")
}

// Before the beginning, Ctrl-C ends the connection.
func TestInterruptConnecting(t *testing.T) {
	r, interrupt, end := start(t, Options{}, "", shell("echo connecting >&2; exec sleep 1000"))
	awaitText(t, &r.stderr, "connecting\n")
	interrupt()
	if end(); r.code != 1 || !strings.Contains(r.stderr.String(), errInterrupted.Error()) {
		t.Errorf("got %d, %q, want an interrupted run", r.code, r.stderr.String())
	}
}

// A machine that is ready does not measure if the user no longer wants to wait for another.
func TestInterruptOneConnecting(t *testing.T) {
	r, interrupt, end := start(t, Options{}, "echo measured", self(t, "ready"), shell("echo connecting >&2; exec sleep 1000"))
	awaitText(t, &r.stderr, "connecting\n")
	interrupt()
	if end(); r.code != 1 || strings.Count(r.stderr.String(), errInterrupted.Error()) != 2 || r.stdout.String() != "" {
		t.Errorf("got %d, %q, %q, want two interrupted runs", r.code, r.stdout.String(), r.stderr.String())
	}
}

// A program that is killed is an error.
func TestKilled(t *testing.T) {
	r := runScript(t, Options{}, "kill -KILL $$", self(t, ""))
	if r.code != 128+int(unix.SIGKILL) || !strings.Contains(r.stderr.String(), "killed") {
		t.Errorf("got %d, %q, want that it was killed", r.code, r.stderr.String())
	}
}

// If the connection breaks, the other side ends what it has started, and leaves no files. This side keeps
// no file that is not whole.
func TestBrokenConnection(t *testing.T) {
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal
	}{
		{"obedient", `trap 'exit 1' INT; echo $$; while :; do sleep 0.01; done`, unix.SIGKILL},
		{"with others", `sleep 1000 & echo $!; trap 'exit 1' INT; while :; do sleep 0.01; done`, unix.SIGKILL},
		{"asked", `trap 'exit 1' INT; echo $$; while :; do sleep 0.01; done`, unix.SIGTERM},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("TMPDIR", t.TempDir())
			own, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := testenv.Command(t, own, Subcommand)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			p := newPeer(out, in)
			if err := p.sendValue(order, Order{Args: []string{c.script}}); err != nil {
				t.Fatal(err)
			}
			var pid int
			for k := kind(0); k != stdout; {
				var body []byte
				if k, body, err = p.receive(); err != nil {
					t.Fatal(err)
				}
				pid, _ = strconv.Atoi(strings.TrimSpace(string(body)))
			}
			if unix.Kill(pid, 0) != nil {
				t.Fatalf("got process %d, want one that runs", pid)
			}
			if c.signal == unix.SIGKILL { // of the connection
				in.Close()
				out.Close()
			} else if err := cmd.Process.Signal(c.signal); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			testenv.Await(t, func() bool { return ended(pid) }, func() string { return "the program still runs" })
			if left, _ := filepath.Glob(os.Getenv("TMPDIR") + "/*"); len(left) > 0 {
				t.Errorf("got %q left", left)
			}
		})
	}
}

// ended reports whether a process has ended. It may not have been waited for.
func ended(pid int) bool {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || strings.Contains(string(text), ") Z ")
}

// Silence ends a run on both sides.
func TestSilence(t *testing.T) {
	t.Run("here", func(t *testing.T) {
		r := runScript(t, Options{silence: time.Millisecond}, "", shell(`printf '`+octal(hello, testVersion)+`'; exec sleep 1000`))
		if r.code != 1 || !strings.Contains(r.stderr.String(), "nothing was heard for 1ms") {
			t.Errorf("got %d, %q, want that nothing was heard", r.code, r.stderr.String())
		}
	})
	t.Run("there", func(t *testing.T) {
		t.Setenv("FULGUR_TEST_SILENCE", "1ms")
		own, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := testenv.Command(t, own, Subcommand)
		if _, err := cmd.StdinPipe(); err != nil { // stays open
			t.Fatal(err)
		}
		if err := cmd.Run(); !errors.As(err, new(*exec.ExitError)) {
			t.Errorf("got %v, want a failure", err)
		}
	})
}

// Whatever the other side sends, this side ends with an error, writes no file that was not asked for, and
// nothing that a terminal would obey.
func TestHostile(t *testing.T) {
	begin := octal(hello, testVersion) + octal(folder, "/tmp/folder")
	for name, c := range map[string]struct{ script, want string }{
		"nothing":       {"exit 0", "has ended before the result"},
		"text":          {"yes", "what is not fulgur's"},
		"version":       {"printf '" + octal(hello, "fulgur v1.2.2 linux/amd64 go1.26") + "'; cat >/dev/null", "use the same version"},
		"escapes":       {"printf '" + begin + octal(stderr, "\x1b]0;title\a\r\x1b[2K\n") + octal(exited, "0") + "'; cat >/dev/null", `\x1b]0;title\a\r\x1b[2K`},
		"its messages":  {`printf '\033[31mred\n' >&2`, `\x1b[31mred`},
		"other file":    {"printf '" + begin + octal(fileName, `{"Name":"../.bashrc","Size":1}`) + "'; cat >/dev/null", "not asked for"},
		"longer file":   {"printf '" + begin + octal(fileName, `{"Name":"a.folded","Size":1}`) + octal(fileData, "more") + "'; cat >/dev/null", "what is not fulgur's"},
		"shorter file":  {"printf '" + begin + octal(fileName, `{"Name":"a.folded","Size":5}`) + octal(fileData, "less") + octal(fileEnd, "") + "'; cat >/dev/null", "what is not fulgur's"},
		"half a file":   {"printf '" + begin + octal(fileName, `{"Name":"a.folded","Size":5}`) + octal(fileData, "less") + "'", "has ended before the result"},
		"no file":       {"printf '" + begin + octal(fileEnd, "") + "'; cat >/dev/null", "what is not fulgur's"},
		"long message":  {`printf 'o\377\377\377\377'; cat >/dev/null`, "what is not fulgur's"},
		"exit code":     {"printf '" + begin + octal(exited, "-1") + "'; cat >/dev/null", "what is not fulgur's"},
		"no exit code":  {"printf '" + begin + "'; exit 0", "has ended before the result"},
		"many messages": {"printf '" + begin + "'; i=0; while [ $i -le 10000 ]; do printf '" + octal(stderr, "x\n") + "'; i=$((i+1)); done; printf '" + octal(exited, "0") + "'; cat >/dev/null", "more messages are left out"},
		"half a header": {"printf '" + begin + "o\\000'", "has ended before the result"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			r := runScript(t, Options{Output: file(filepath.Join(dir, "a.folded"))}, "", shell(c.script))
			text := r.stderr.String()
			if !strings.Contains(text, c.want) || strings.ContainsAny(text, "\x1b\r\a") {
				t.Errorf("got %d, %q, want %q", r.code, text, c.want)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("got the files %v", left)
			}
		})
	}
}

// What comes back is limited, also if it never ends.
func TestMaxBytes(t *testing.T) {
	r := receiver{limit: 10}
	if err := errors.Join(r.spend(4), r.spend(6)); err != nil {
		t.Error(err)
	}
	if err := r.spend(1); err == nil {
		t.Error("got no error beyond the limit")
	}
}

// The output must be writable before anything is measured.
func TestNotWritable(t *testing.T) {
	o := Options{Output: file(filepath.Join(t.TempDir(), "missing", "a.folded"))}
	if r := runScript(t, o, "exit 5", self(t, "")); r.code != 1 || !errors.Is(r.err, os.ErrNotExist) {
		t.Errorf("got %d, %v, want that the folder is missing", r.code, r.err)
	}
}

// A reader of the output that has gone ends the run.
func TestReaderGone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	r := runScript(t, Options{Stdout: write}, "yes", self(t, ""))
	if r.code != 1 || !errors.Is(r.err, syscall.EPIPE) {
		t.Errorf("got %d, %v, want a broken pipe", r.code, r.err)
	}
}
