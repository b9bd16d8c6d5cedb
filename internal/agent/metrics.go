package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/export/delivery"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/ui/connlimit"
)

// serverTimeout limits each step of a request.
const serverTimeout = 10 * time.Second

// server serves /healthz and /metrics.
type server struct {
	http   *http.Server
	served chan error
}

// listen starts the server.
func (a *Agent) listen() (*server, error) {
	if a.options().Listen == "" {
		return &server{}, nil
	}
	l, err := listenAt(a.options().Listen)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w; choose another address with %s", err, usage.Listen)
	}
	s := &server{served: make(chan error, 1), http: &http.Server{
		ReadTimeout: serverTimeout, WriteTimeout: serverTimeout, IdleTimeout: time.Minute, MaxHeaderBytes: 8 << 10,
	}}
	if l.Addr().Network() == "unix" {
		a.warn(fmt.Sprintf("metrics: /metrics at the socket %s", plain.Terminal(l.Addr().String())))
	} else {
		a.warn(fmt.Sprintf("metrics: http://%s/metrics", l.Addr()))
	}
	s.http.Handler = a.handler(connlimit.Limit(s.http))
	go func() { s.served <- s.http.Serve(l) }()
	return s, nil
}

// socketPrefix begins the address of a Unix socket.
const socketPrefix = "unix:"

// listenAt listens at an address: HOST:PORT, or unix:PATH for a socket that only the user of the
// process can connect to.
func listenAt(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, socketPrefix)
	if !ok {
		return net.Listen("tcp", address)
	}
	if err := removeStale(path); err != nil {
		return nil, err
	}
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		// The file that bind(2) creates has the mode of the socket.
		err := c.Control(func(fd uintptr) { failed = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, failed)
	}}
	return private.Listen(context.Background(), "unix", path)
}

// removeStale removes the socket at path if nobody listens there: a process that was killed left it.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s: not a socket", path)
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		return errors.Join(fmt.Errorf("%s: another process listens there", path), c.Close())
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

func (s *server) stop() error {
	if s.http == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if s.http.Shutdown(ctx) != nil { // a slow reader
		_ = s.http.Close()
	}
	if err := <-s.served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// handler answers requests. Anyone who can connect may ask. Known connections are the last to be closed
// for others, so a connection is known only while its answer is made. So nobody shuts out others by an
// idle connection, or by an answer that is not read.
func (a *Agent) handler(connections *connlimit.Limiter) http.Handler {
	mux := http.NewServeMux()
	page := &page{make: a.metrics}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if problem := a.problem(time.Now()); problem != "" {
			http.Error(w, problem, http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		connections.Know(r.Context())
		text := page.get(time.Now())
		connections.Forget(r.Context())
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write([]byte(text))
	})
	return mux
}

// page is a text that is made at most once a second: making it takes milliseconds of CPU time, which count
// against the budget, and clients may ask for it at any rate.
type page struct {
	make func() string
	mu   sync.Mutex
	text string
	at   time.Time
}

func (p *page) get(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.text == "" || now.Sub(p.at) >= time.Second {
		p.text, p.at = p.make(), now
	}
	return p.text
}

// lateAfter is how much longer than its interval a window may take.
const lateAfter = time.Minute

// problem returns why the agent is not healthy, or "".
func (a *Agent) problem(now time.Time) string {
	// Not by the wall clock, which may be set.
	if age := now.Sub(a.started) - time.Duration(a.window.Load()); age > 2*a.options().Measure.Every+lateAfter {
		return fmt.Sprintf("no window for %s", age.Round(time.Second))
	}
	return ""
}

// metrics returns the state in Prometheus's text format, see
// https://prometheus.io/docs/instrumenting/exposition_formats/.
func (a *Agent) metrics() string {
	var b strings.Builder
	family := func(name, kind, help string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	}
	one := func(name, kind, help string, value any) {
		family(name, kind, help)
		fmt.Fprintf(&b, "%s %v\n", name, value)
	}
	c := a.delivery.Account()
	one("fulgur_samples_taken_total", "counter", "Samples that were measured.", c.Taken)
	one("fulgur_samples_found_total", "counter", "Samples that an earlier run left in the spool.", c.Found)
	one("fulgur_samples_acknowledged_total", "counter", "Samples that the back end has accepted.", c.Acknowledged)
	one("fulgur_samples_waiting", "gauge", "Samples that wait to be sent.", c.Waiting.Samples)
	family("fulgur_samples_lost_total", "counter", "Samples that never reached the back end, by cause.")
	for _, cause := range delivery.Causes {
		fmt.Fprintf(&b, "fulgur_samples_lost_total{cause=%q} %d\n", cause, c.Lost[cause])
	}
	excluded := a.excluded.Load()
	one("fulgur_samples_excluded_total", "counter", "Samples of processes that rules exclude. They are not among the samples taken.", excluded.Samples)
	one("fulgur_excluded_cpu_seconds_total", "counter", "CPU time that these samples stand for.", excluded.CPU.Seconds())
	one("fulgur_samples_thinned_total", "counter", "Samples that rules with lower rates left out. Others stand for their CPU time.", excluded.Thinned)
	family("fulgur_losses_total", "counter", "What was not recorded, or only in part, by cause.")
	losses := a.losses.Load()
	for cause, n := range losses {
		if profile.Loss(cause) != profile.LossUnresolvedFrames { // windows share functions
			fmt.Fprintf(&b, "fulgur_losses_total{cause=%q} %d\n", profile.Loss(cause), n)
		}
	}
	one("fulgur_windows_total", "counter", "Windows that were measured.", a.windows.Load())
	one("fulgur_windows_waiting", "gauge", "Messages that wait to be sent.", c.Waiting.Entries)
	one("fulgur_requests_accepted_total", "counter", "Messages that the back end has accepted.", c.Accepted)
	one("fulgur_requests_refused_total", "counter", "Messages that the back end does not take.", c.Failures)
	one("fulgur_requests_retried_total", "counter", "Attempts that will be repeated.", c.Retries)
	one("fulgur_sent_bytes_total", "counter", "Bytes of accepted messages, before compression.", c.Bytes)
	one("fulgur_spool_bytes", "gauge", "Bytes in the spool's files.", c.Waiting.Files)
	one("fulgur_memory_queue_bytes", "gauge", "Bytes that wait in memory.", c.Waiting.Memory)
	one("fulgur_spool_corrupt_files_total", "counter", "Files of the spool that were set aside.", c.CorruptFiles)
	one("fulgur_gap_seconds", "gauge", "Time without measurement before this run, after one that was killed.", a.gap.Seconds())
	family("fulgur_reloads_total", "counter", "Configurations that were read again, by result.")
	for i, result := range []string{"failed", "ok"} {
		fmt.Fprintf(&b, "fulgur_reloads_total{result=%q} %d\n", result, a.reloads[i].Load())
	}
	a.governed(one)
	a.bolter.metrics(family, one, func(format string, args ...any) { fmt.Fprintf(&b, format, args...) })
	one("process_start_time_seconds", "gauge", "When the agent started, in seconds since 1970.", float64(a.started.UnixMilli())/1e3)
	var used unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &used) == nil {
		one("process_cpu_seconds_total", "counter", "User and system CPU time of the agent.", float64(used.Utime.Nano()+used.Stime.Nano())/1e9)
	}
	if status, err := procfs.Self.Status(); err == nil {
		one("process_resident_memory_bytes", "gauge", "Resident memory of the agent.", status.Resident)
	}
	if used, err := procfs.Self.BPF(); err == nil {
		one("fulgur_bpf_memory_bytes", "gauge", "Kernel memory of the agent's BPF programs and maps.", used.Memory)
		if procfs.BPFStatistics() {
			one("fulgur_bpf_cpu_seconds_total", "counter", "CPU time of the agent's BPF programs, since the measurement last began.", used.RunTime.Seconds())
		}
	}
	return b.String()
}

// governed reports the budget and its effects.
func (a *Agent) governed(one func(name, kind, help string, value any)) {
	o := a.options()
	limits, share := a.governor.limits()
	number := map[bool]int{true: 1}
	one("fulgur_cpu_limit_ratio", "gauge", "Limit of fulgur_cpu_ratio; 0 means none.", o.Budget.CPU)
	one("fulgur_cpu_ratio", "gauge", "CPU time of the agent and its BPF programs in the last window, as a share of the time of all CPUs. The part of BPF programs is an estimate unless the kernel measures it.", share)
	one("fulgur_memory_limit_bytes", "gauge", "Limit of the agent's resident memory and fulgur_bpf_memory_bytes together; 0 means none.", o.Budget.Memory)
	one("fulgur_sampling_frequency_hertz", "gauge", "Samples per second on each CPU.", frequency(o, limits))
	if !o.Measure.NoOffCPU {
		one("fulgur_waits_measured_ratio", "gauge", "Share of waits that are measured; below 1 to save CPU time.", 1/float64(max(limits.Reduction, 1)))
	}
	one("fulgur_caches_reduced", "gauge", "1 if caches are kept small to save memory.", number[limits.LessMemory])
	one("fulgur_names_omitted", "gauge", "1 if functions are not looked up, to save CPU time or memory.", number[limits.NoSymbols])
}
