package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/perfevent"
	"fulgur/internal/testenv"
)

func TestExplain(t *testing.T) {
	refused := fmt.Errorf("program on_sample: %w (MEMLOCK may be too low)", syscall.EPERM)
	tests := map[string]struct {
		machine string
		err     error
		needed  []capability.Capability
		want    string
	}{
		"capabilities": {
			machine: "a user", err: refused,
			want: "loading BPF programs needs CAP_BPF and CAP_PERFMON: run fulgur with sudo, or run once: sudo setcap cap_bpf,",
		},
		"one of them": {
			machine: "CAP_BPF", err: refused,
			want: "loading BPF programs needs CAP_PERFMON: ",
		},
		"another one": {
			machine: "CAP_BPF", err: syscall.EACCES, needed: []capability.Capability{capability.SysPtrace},
			want: "loading BPF programs needs CAP_SYS_PTRACE: ",
		},
		"tracing is forbidden": {
			machine: "yama, nobody", err: syscall.EPERM, needed: []capability.Capability{capability.SysPtrace},
			want: "loading BPF programs: sysctl kernel.yama.ptrace_scope is 3, which forbids ptrace",
		},
		"before CAP_BPF": {
			machine: "before CAP_BPF", err: refused,
			want: "loading BPF programs needs CAP_SYS_ADMIN: run fulgur with sudo, or run once: sudo setcap cap_sys_admin,",
		},
		"user namespace":    {machine: "a rootless container", err: refused, want: "loading BPF programs: fulgur runs in a user namespace"},
		"bounding set":      {machine: "a container", err: refused, want: "needs CAP_BPF and CAP_PERFMON: neither sudo nor setcap helps here"},
		"lockdown":          {machine: "confidentiality", err: refused, want: "locked down in confidentiality mode"},
		"paranoia":          {machine: "Debian's paranoia", err: refused, want: "kernel.perf_event_paranoid is 3; above 2, kernels of Debian and Ubuntu require CAP_SYS_ADMIN: run fulgur with sudo, or: sudo sysctl kernel.perf_event_paranoid=2"},
		"paranoia, service": {machine: "Debian's paranoia, a service", err: refused, want: "require CAP_SYS_ADMIN: add it to the capabilities of the systemd service (CapabilityBoundingSet=, AmbientCapabilities=) or of the container, or: sudo sysctl kernel.perf_event_paranoid=2"},
		"above paranoia":    {machine: "Ubuntu's paranoia, root", err: refused, want: "refused (program on_sample: operation not permitted (MEMLOCK may be too low)) although CAP_BPF and CAP_PERFMON are in effect: a security module"},
		"security module":   {machine: "a security module", err: refused, want: "a security module may confine fulgur (its label is \"system_u:system_r:container_t:s0\")"},
		"locked memory":     {machine: "CAP_BPF and CAP_PERFMON", err: fmt.Errorf("map: %w: %w", syscall.EPERM, perfevent.ErrLockedMemory), want: "loading BPF programs: map: operation not permitted: more memory than may be locked: raise"},
		"no refusal":        {machine: "a user", err: syscall.EINVAL, want: "loading BPF programs: invalid argument"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := machine(test.machine).explain(test.err, "loading BPF programs", test.needed...)
			if !errors.Is(err, test.err) {
				t.Errorf("got %v, want it to wrap %v", err, test.err)
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want it to contain %q", err, test.want)
			}
			if e := new(Error); errors.As(err, &e) == (errors.Is(err, syscall.EINVAL) || errors.Is(err, perfevent.ErrLockedMemory)) {
				t.Errorf("got an error of type %T", err)
			}
		})
	}
	if err := Explain(nil, "nothing"); err != nil {
		t.Error(err)
	}
}

// Capabilities of fulgur's file are not enough for everything that root can do. Neither the kernel
// nor a security module is to blame.
// Who may not load BPF programs can measure own processes, where the kernel permits perf events.
func TestInstead(t *testing.T) {
	const works = "Without privileges, fulgur profile, top, offcpu and record measure code and waits of your own processes (the process) and commands."
	const code = "Without privileges, fulgur profile and fulgur top measure the code of your own processes (the process) and commands."
	const after = "commands, after: sudo sysctl kernel.perf_event_paranoid=2"
	for _, test := range []struct {
		machine string
		tried   error
		stops   error
		want    string
	}{
		{"a user", nil, syscall.EPERM, works},
		{"CAP_BPF", nil, syscall.EPERM, works},
		{"a rootless container", nil, syscall.EPERM, works},
		{"Debian's paranoia", syscall.EACCES, syscall.EPERM, after},
		{"Debian's paranoia", syscall.EACCES, nil, code},
		{"yama", syscall.EACCES, nil, "Without privileges, fulgur profile measures commands."},
		{"a user", syscall.EACCES, syscall.EPERM, ""}, // a seccomp filter
		{"a user", syscall.ENOENT, syscall.EPERM, ""},
		{"root", nil, nil, ""},
	} {
		f := machine(test.machine)
		if test.machine == "Debian's paranoia" || test.machine == "yama" {
			f.Effective = 0
		}
		if got := f.instead(test.tried, test.stops); got != test.want && (test.want != after || !strings.HasSuffix(got, after)) {
			t.Errorf("%s, %v: got %q, want %q", test.machine, test.tried, got, test.want)
		}
	}
}

func TestExplainLent(t *testing.T) {
	f := machine("Ubuntu's paranoia, root")
	f.Lent = capability.SetOf(capability.DACReadSearch)
	const want = "run fulgur with sudo: the capabilities of its file are not enough"
	if err := f.explain(syscall.EACCES, "loading BPF programs"); !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %q, want it to end with %q", err, want)
	}
	f.Tried = map[Probe]Outcome{ProbeUprobe: {Err: syscall.EACCES}}
	for _, p := range problems(trials, f) {
		if p.Check == "uprobe" && p.Remedy.Do != want {
			t.Errorf("uprobe: got remedy %q, want %q", p.Remedy.Do, want)
		}
	}
}

// TestMain lets the test binary print the result of its own preflight, so that it can be
// started with fewer rights.
func TestMain(m *testing.M) {
	if os.Getenv("DOCTOR_TEST_PREFLIGHT") != "" {
		f, err := Read()
		_, stopped := Preflight(&f, Profile)
		fmt.Println(errors.Join(err, stopped))
		return
	}
	os.Exit(m.Run())
}

// preflight runs this test binary with a tool that drops privileges.
func preflight(t *testing.T, tool string, options ...string) string {
	t.Helper()
	cmd := exec.Command(testenv.Tool(t, tool), append(options, os.Args[0])...)
	cmd.Env = append(os.Environ(), "DOCTOR_TEST_PREFLIGHT=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		testenv.Skip(t, "needs to drop privileges: %v: %s", err, out)
	}
	return string(out)
}

// A process has dropped a capability, on the real kernel.
func TestPreflightDropped(t *testing.T) {
	f, err := Read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Preflight(&f, Profile); err != nil {
		testenv.Skip(t, "needs the capabilities that it drops: %v", err)
	}
	out := preflight(t, "setpriv", "--bounding-set", "-perfmon,-sys_admin", "--inh-caps", "-perfmon,-sys_admin")
	if !strings.HasPrefix(out, "profiling needs CAP_PERFMON: neither sudo nor setcap helps here") {
		t.Errorf("bounding set: got %q, want that neither sudo nor setcap helps", out)
	}
	out = preflight(t, "setpriv", "--no-new-privs", "--reuid=65534", "--clear-groups", "--inh-caps=-all,+bpf", "--ambient-caps=-all,+bpf")
	if !strings.HasPrefix(out, "profiling needs CAP_PERFMON: neither sudo nor setcap helps here, because no_new_privs is set") {
		t.Errorf("no_new_privs: got %q, want it named", out)
	}
}

// Capabilities of a user namespace do not count, and a PID namespace needs its own /proc.
func TestPreflightNamespaces(t *testing.T) {
	tests := map[string]struct {
		options []string
		want    string
	}{
		"user":                 {[]string{"--user", "--map-root-user"}, "profiling: fulgur runs in a user namespace"},
		"pid":                  {[]string{"--pid", "--fork", "--mount-proc"}, "<nil>"},
		"pid, machine's /proc": {[]string{"--pid", "--fork"}, "profiling: /proc is not mounted, or belongs to another PID namespace"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if out := preflight(t, "unshare", test.options...); !strings.HasPrefix(out, test.want) {
				t.Errorf("got %q, want %q", out, test.want)
			}
		})
	}
}
