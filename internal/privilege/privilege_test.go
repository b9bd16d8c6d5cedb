package privilege

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// all is every capability that Linux 6.18 knows.
const all Set = 1<<41 - 1

// root returns the state of root on a current kernel.
func root() State { return State{Effective: all, Last: CheckpointRestore, BTF: true} }

// without returns all less caps.
func without(caps ...Capability) Set {
	s := all
	for _, c := range caps {
		s &^= 1 << c
	}
	return s
}

func TestParseStatus(t *testing.T) {
	tests := map[string]struct {
		status string
		want   State
		bad    bool
	}{
		"root":          {status: "Name:\tfulgur\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n", want: State{Effective: all}},
		"container":     {status: "CapEff:\t00000000a80425fb\nSeccomp:\t2\n", want: State{Effective: 0xa80425fb, Seccomp: true}},
		"no seccomp":    {status: "CapEff:\t0000000000000000\n"},
		"not hex":       {status: "CapEff:\tx\n", bad: true},
		"empty":         {bad: true},
		"capless value": {status: "CapEff:\n", bad: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got State
			err := got.parseStatus([]byte(test.status))
			if (err != nil) != test.bad {
				t.Fatalf("error %v, want one: %v", err, test.bad)
			}
			if d := cmp.Diff(test.want, got); d != "" {
				t.Error("(-want +got):\n" + d)
			}
		})
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte("Name:\tfulgur\nCapEff:\t000001ffffffffff\nSeccomp:\t0\n"))
	f.Fuzz(func(_ *testing.T, b []byte) {
		var s State
		_ = s.parseStatus(b)
	})
}

func TestParseLockdown(t *testing.T) {
	tests := map[string]Lockdown{
		"[none] integrity confidentiality\n": LockdownNone,
		"none [integrity] confidentiality\n": LockdownIntegrity,
		"none integrity [confidentiality]\n": LockdownConfidentiality,
		"":                                   LockdownNone,
	}
	for text, want := range tests {
		if got := parseLockdown([]byte(text)); got != want {
			t.Errorf("%q is mode %d, want %d", text, got, want)
		}
	}
}

func TestIdentityMap(t *testing.T) {
	tests := map[string]bool{
		"         0          0 4294967295\n":                          true,
		"         0       1000          1\n":                          false,
		"         0       1000          1\n 1     100000     65536\n": false,
		"": false,
	}
	for text, want := range tests {
		if got := identityMap([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		change func(*State)
		want   error
		says   []string
	}{
		"root": {change: func(*State) {}},
		"just enough": {
			change: func(s *State) { s.Effective = 1<<BPF | 1<<Perfmon },
		},
		"CAP_SYS_ADMIN stands for both": {
			change: func(s *State) { s.Effective = 1 << SysAdmin },
		},
		"no capabilities": {
			change: func(s *State) { s.Effective = 0 },
			says:   []string{"profiling needs CAP_BPF and CAP_PERFMON", "sudo", "setcap cap_bpf,cap_perfmon,"},
		},
		"one is missing": {
			change: func(s *State) { s.Effective = without(SysAdmin, Perfmon) },
			says:   []string{"profiling needs CAP_PERFMON:"},
		},
		"before CAP_BPF": {
			change: func(s *State) { s.Effective, s.Last = 0, 37 },
			says:   []string{"profiling needs CAP_SYS_ADMIN:", "setcap cap_sys_admin,"},
		},
		"user namespace": {
			change: func(s *State) { s.UserNamespace = true },
			want:   ErrUserNamespace,
			says:   []string{"container"},
		},
		"pid namespace": {
			change: func(s *State) { s.PIDNamespace, s.ForeignProc, s.Effective = true, true, 0 },
			want:   ErrPIDNamespace,
			says:   []string{"docker run --pid=host"},
		},
		"another namespace's /proc": {
			change: func(s *State) { s.ForeignProc, s.Effective = true, 0 },
			want:   ErrForeignProc,
			says:   []string{"mount -t proc"},
		},
		"integrity": {change: func(s *State) { s.Lockdown = LockdownIntegrity }},
		"confidentiality": {
			change: func(s *State) { s.Lockdown = LockdownConfidentiality },
			want:   ErrLockdown,
			says:   []string{"lockdown=integrity"},
		},
		"no BTF": {
			change: func(s *State) { s.BTF = false },
			want:   ErrNoBTF,
			says:   []string{"CONFIG_DEBUG_INFO_BTF"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := root()
			test.change(&s)
			err := s.Check()
			if test.want != nil && !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
			if (err != nil) != (len(test.says) > 0) {
				t.Fatalf("error %v", err)
			}
			saysAll(t, err, test.says)
		})
	}
}

func saysAll(t *testing.T, err error, parts []string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestExplain(t *testing.T) {
	refused := fmt.Errorf("program on_sample: %w (MEMLOCK may be too low)", syscall.EPERM)
	tests := map[string]struct {
		change func(*State)
		err    error
		needed []Capability
		says   []string
		not    string
	}{
		"capability": {
			change: func(s *State) { s.Effective = without(SysAdmin, BPF) },
			err:    refused,
			says:   []string{"load BPF programs needs CAP_BPF:", "sudo setcap"},
			not:    "MEMLOCK",
		},
		"given capability": {
			change: func(s *State) { s.Effective = without(SysPtrace) },
			err:    syscall.EACCES,
			needed: []Capability{SysPtrace},
			says:   []string{"needs CAP_SYS_PTRACE"},
		},
		"namespace": {
			change: func(s *State) { s.UserNamespace = true },
			err:    refused,
			says:   []string{"user namespace"},
		},
		"lockdown": {
			change: func(s *State) { s.Lockdown = LockdownConfidentiality },
			err:    refused,
			says:   []string{"locked down"},
		},
		"seccomp": {
			change: func(s *State) { s.Seccomp = true },
			err:    refused,
			says:   []string{"seccomp"},
		},
		"distribution's paranoia": {
			change: func(s *State) { s.Paranoid, s.Effective = 3, 1<<BPF|1<<Perfmon },
			err:    refused,
			says:   []string{"kernel.perf_event_paranoid is 3", "CAP_SYS_ADMIN", "sudo sysctl kernel.perf_event_paranoid=2"},
		},
		"root is above paranoia": {
			change: func(s *State) { s.Paranoid = 4 },
			err:    refused,
			says:   []string{"security module"},
			not:    "paranoid",
		},
		"unknown cause": {
			change: func(*State) {},
			err:    refused,
			says:   []string{"CAP_BPF and CAP_PERFMON is in effect", "program on_sample"},
		},
		"no refusal": {
			change: func(s *State) { s.Effective = 0 },
			err:    syscall.EINVAL,
			says:   []string{"load BPF programs: invalid argument"},
			not:    "CAP_",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := root()
			test.change(&s)
			err := s.explain(test.err, "load BPF programs", test.needed...)
			if !errors.Is(err, test.err) {
				t.Errorf("%v does not wrap %v", err, test.err)
			}
			saysAll(t, err, test.says)
			if test.not != "" && strings.Contains(err.Error(), test.not) {
				t.Errorf("%q says %q", err, test.not)
			}
		})
	}
	if err := Explain(nil, "nothing"); err != nil {
		t.Error(err)
	}
}

func TestWarnings(t *testing.T) {
	tests := map[string]struct {
		change func(*State)
		want   []string
	}{
		"root": {change: func(*State) {}},
		"only the two": {
			func(s *State) { s.Effective, s.Paranoid = 1<<BPF|1<<Perfmon, 2 },
			[]string{"CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH", "sudo setcap"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := root()
			test.change(&s)
			got := s.Warnings()
			if len(got) != len(test.want) {
				t.Fatalf("warnings %q, want %d of them", got, len(test.want))
			}
			for i, w := range got {
				if !strings.Contains(w, test.want[i]) {
					t.Errorf("%q does not say %q", w, test.want[i])
				}
			}
		})
	}
}

// TestMain lets the test binary print what it finds out about itself, to be
// started with fewer capabilities.
func TestMain(m *testing.M) {
	if os.Getenv("PRIVILEGE_TEST_CHECK") != "" {
		s, err := Read()
		fmt.Println(errors.Join(err, s.Check()))
		return
	}
	os.Exit(m.Run())
}

// The real kernel's account of a process that has dropped a capability.
func TestCheckDropped(t *testing.T) {
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv of util-linux")
	}
	s, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(); err != nil && !errors.Is(err, ErrNoBTF) {
		t.Skip("needs the capabilities that it drops: ", err)
	}
	cmd := exec.Command(setpriv, "--bounding-set", "-perfmon,-sys_admin", "--inh-caps", "-perfmon,-sys_admin", os.Args[0])
	cmd.Env = append(os.Environ(), "PRIVILEGE_TEST_CHECK=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if !strings.HasPrefix(string(out), "profiling needs CAP_PERFMON: run fulgur with sudo") {
		t.Errorf("said %q", out)
	}
}

// A user namespace has capabilities that do not count, a pid namespace other
// IDs, whichever of them /proc shows.
func TestCheckNamespaces(t *testing.T) {
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		t.Skip("needs unshare of util-linux")
	}
	tests := map[string]struct {
		options []string
		want    error
	}{
		"user":                 {[]string{"--user", "--map-root-user"}, ErrUserNamespace},
		"pid":                  {[]string{"--pid", "--fork", "--mount-proc"}, ErrPIDNamespace},
		"pid, machine's /proc": {[]string{"--pid", "--fork"}, ErrPIDNamespace},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(unshare, append(test.options, os.Args[0])...)
			cmd.Env = append(os.Environ(), "PRIVILEGE_TEST_CHECK=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Skipf("needs to make a namespace: %v: %s", err, out)
			}
			if want := test.want.Error() + "\n"; string(out) != want {
				t.Errorf("said %q, want %q", out, want)
			}
		})
	}
}
