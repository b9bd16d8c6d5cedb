package remote

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fulgur/internal/testenv"
)

// fakeSSH is a program that runs the command for the host here, as sshd does, by the user's shell.
const fakeSSH = `#!/bin/sh
printf '%s\n' "$*" >>"$SSH_LOG"
for last do :; done
case " $* " in *" -G "*) echo "connecttimeout $SSH_TIMEOUT"; exit;; esac
echo "a start-up script says hello"
export PATH="$HOST_PATH" HOME="$HOST_HOME"
exec "${SSH_SHELL:-/bin/sh}" -c "$last"
`

// host is a host for fakeSSH.
type host struct {
	t       *testing.T
	ssh     SSH
	bin     string // comes first in its PATH
	home    string
	log     string // the command lines of ssh
	program *program
}

// newHost makes a host. The program that is copied there is a script, which runs the test binary.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{t: t, bin: t.TempDir(), home: t.TempDir(), log: filepath.Join(t.TempDir(), "log")}
	var err error
	if h.ssh, err = ParseSSH("ssh://me@web1:2222"); err != nil {
		t.Fatal(err)
	}
	here := t.TempDir()
	write(t, filepath.Join(here, "ssh"), fakeSSH)
	t.Setenv("HOST_PATH", h.bin+":"+os.Getenv("PATH"))
	t.Setenv("HOST_HOME", h.home)
	t.Setenv("SSH_LOG", h.log)
	t.Setenv("SSH_TIMEOUT", "none")
	t.Setenv("PATH", here+":"+os.Getenv("PATH"))
	h.fake("uname", `case $1 in -s) echo Linux;; *) echo x86_64;; esac`)
	h.fake("id", "echo 0")
	h.program = h.write(filepath.Join(here, "fulgur"), testVersion)
	return h
}

// write writes a fulgur of a version.
func (h *host) write(path, version string) *program {
	h.t.Helper()
	own, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	text := fmt.Sprintf("#!/bin/sh\ncase $1 in version) echo %q; exit;; esac\nexec %s \"$@\"\n", version, own)
	write(h.t, path, text)
	return &program{path, int64(len(text)), fmt.Sprintf("%x", sha256.Sum256([]byte(text)))}
}

// fake puts a program into the host's PATH.
func (h *host) fake(name, script string) {
	h.t.Helper()
	write(h.t, filepath.Join(h.bin, name), "#!/bin/sh\n"+script+"\n")
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := testenv.WriteProgram(path, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

// run runs a script on the host.
func (h *host) run(o Options, script string) *outcome {
	h.t.Helper()
	if o.programs == nil {
		o.programs = &programs{found: map[string]*program{"amd64": h.program}}
	}
	return runScript(h.t, o, script, h.ssh)
}

// wantRun fails unless a run has ended well.
func (h *host) wantRun(r *outcome) {
	h.t.Helper()
	if r.code != 0 || r.stdout.String() != "ran\n" {
		h.t.Errorf("got %d, %q, %q, want a run", r.code, r.stdout.String(), r.stderr.String())
	}
}

// wantFailure fails unless a run has failed for a reason.
func (h *host) wantFailure(r *outcome, why string) {
	h.t.Helper()
	if r.code != 1 || !strings.Contains(r.stderr.String(), why) || r.stdout.String() != "" {
		h.t.Errorf("got %d, %q, %q, want a failure: %s", r.code, r.stdout.String(), r.stderr.String(), why)
	}
}

// The program is copied, runs, and is removed, whatever the user's shell.
func TestInstall(t *testing.T) {
	for _, shell := range []string{"sh", "bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			h := newHost(t)
			t.Setenv("SSH_SHELL", testenv.Tool(t, shell))
			h.wantRun(h.run(Options{}, `echo ran`))
			log, err := os.ReadFile(h.log)
			const begin = "-l me -p 2222 -- web1"
			want := "-G " + begin + "\n-T -o ClearAllForwardings=yes -o RemoteCommand=none -e none -o ConnectTimeout=15 " + begin + " exec /bin/sh -c"
			if err != nil || !strings.HasPrefix(string(log), want) {
				t.Errorf("got %q, %v, want %q", log, err, want)
			}
		})
	}
}

// The shell of a host may be busybox.
func TestInstallBusybox(t *testing.T) {
	h := newHost(t)
	busybox := testenv.Tool(t, "busybox")
	// Its own programs come first, except those that the test replaces.
	for _, name := range []string{"sh", "sha256sum", "head", "mktemp", "wc", "cut", "find", "rm", "chmod", "df", "tail"} {
		h.fake(name, `exec `+busybox+` `+name+` "$@"`)
	}
	h.wantRun(h.run(Options{}, `echo ran`))
}

// A time limit of the user's configuration stays.
func TestConnectTimeout(t *testing.T) {
	h := newHost(t)
	t.Setenv("SSH_TIMEOUT", "3")
	h.wantRun(h.run(Options{}, `echo ran`))
	if log, err := os.ReadFile(h.log); err != nil || strings.Contains(string(log), "ConnectTimeout") {
		t.Errorf("got %q, %v, want no time limit", log, err)
	}
}

// The host's own fulgur runs if it is the same program; an older one does not.
func TestInstalled(t *testing.T) {
	for name, c := range map[string]struct {
		version string // of the host's own fulgur
		none    bool   // there is no program for its architecture here
		copied  bool
		fails   string
	}{
		"same":             {version: testVersion},
		"old":              {version: "fulgur v1.2.2 linux/amd64 go1.26", copied: true},
		"only there":       {version: testVersion, none: true},
		"old, none here":   {version: "fulgur v1.2.2 linux/amd64 go1.26", none: true, fails: "fulgur-linux-arm64"},
		"nowhere":          {none: true, fails: "fulgur-linux-arm64"},
		"nothing but here": {copied: true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			var o Options
			if c.none {
				if runtime.GOARCH != "amd64" {
					testenv.Unsupported(t, "is for another architecture")
				}
				h.fake("uname", `case $1 in -s) echo Linux;; *) echo aarch64;; esac`)
				c.version = strings.Replace(c.version, "amd64", "arm64", 1)
				o.programs = &programs{found: map[string]*program{}}
			}
			if c.version != "" {
				h.write(filepath.Join(h.bin, "fulgur"), c.version)
			}
			r := h.run(o, `[ -z "$(find "$TMPDIR" -name fulgur)" ] || echo copied >&2; echo ran`)
			if c.fails != "" {
				h.wantFailure(r, c.fails)
				return
			}
			h.wantRun(r)
			if copied := strings.Contains(r.stderr.String(), "copied"); copied != c.copied {
				t.Errorf("got %v, want %v: whether it was copied", copied, c.copied)
			}
		})
	}
}

// With Keep, the next run finds the program. A folder that others can write to is not trusted.
func TestKeep(t *testing.T) {
	h := newHost(t)
	t.Setenv("TMPDIR", t.TempDir())
	h.fake("mktemp", `mkdir -m 700 "$HOME/fulgur.kept" && echo "$HOME/fulgur.kept"`)
	r := h.run(Options{Keep: true}, `echo ran`)
	h.wantRun(r)
	kept := filepath.Join(h.home, "fulgur.kept")
	if want := "kept there: " + kept + "/fulgur"; !strings.Contains(r.stderr.String(), want) {
		t.Errorf("got %q, want %q", r.stderr.String(), want)
	}
	h.fake("mktemp", "exit 1") // nothing can be copied
	h.wantRun(h.run(Options{}, `echo ran`))
	if err := os.Chmod(kept, 0o770); err != nil {
		t.Fatal(err)
	}
	h.wantFailure(h.run(Options{}, `echo ran`), "no folder there")
	if err := os.Chmod(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(kept, "fulgur"), "#!/bin/sh\necho other\n")
	h.wantFailure(h.run(Options{}, `echo ran`), "no folder there")
}

// What keeps the program from running is said, and nothing stays.
func TestCannotInstall(t *testing.T) {
	for name, c := range map[string]struct{ program, script, want string }{
		"system":       {"uname", "echo Darwin", "fulgur does not run there: Darwin on Darwin"},
		"architecture": {"uname", "echo Linux", "fulgur does not run there: Linux on Linux"},
		"no sum":       {"sha256sum", "exit 1", "checksum"},
		"wrong sum":    {"sha256sum", "echo " + strings.Repeat("0", 64), "checksum"},
		"no folder":    {"mktemp", "exit 1", "no folder there"},
		"disk full":    {"df", "echo head; echo /dev/x 1 1 0 100% /", "no folder there"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.fake(c.program, c.script)
			h.wantFailure(h.run(Options{}, `echo ran`), c.want)
		})
	}
}

// The program runs with sudo if sudo allows it without a password. Otherwise, it runs without, and says so.
func TestSudo(t *testing.T) {
	for name, c := range map[string]struct{ sudo, id, want string }{
		"allowed":  {`[ "$1 $2" = "-n --" ] || exit 9; shift 2; AS=root exec "$@"`, "1000", "as root"},
		"password": {"echo a password is required >&2; exit 1", "1000", "without root there"},
		"root":     {"exit 1", "0", "as \n"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.fake("sudo", c.sudo)
			h.fake("id", "echo "+c.id)
			r := h.run(Options{}, `echo "as $AS" >&2; echo ran`)
			h.wantRun(r)
			if !strings.Contains(r.stderr.String(), c.want) {
				t.Errorf("got %q, want %q", r.stderr.String(), c.want)
			}
		})
	}
}

// Programs that cannot run elsewhere are refused.
func TestReadProgram(t *testing.T) {
	script := filepath.Join(t.TempDir(), "fulgur")
	write(t, script, "#!/bin/sh\n")
	other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
	for _, c := range []struct{ path, arch, want string }{
		{script, runtime.GOARCH, "not a program"},
		{"/proc/self/exe", other, "not for " + other},
		{testenv.Tool(t, "ls"), runtime.GOARCH, "linked dynamically"},
	} {
		if p, err := readProgram(c.path, c.arch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s for %s: got %v, %v, want an error: %s", c.path, c.arch, p, err, c.want)
		}
	}
}
