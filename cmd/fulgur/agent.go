package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fulgur/internal/agent"
	"fulgur/internal/capture/rules"
	"fulgur/internal/capture/target"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/usage"
	"fulgur/internal/session"
)

// agentCommand measures for as long as it runs. Its flags are also the keys of its
// configuration file.
type agentCommand struct {
	Interval  seconds   `default:"10" placeholder:"TIME" group:"how" help:"Send a profile every TIME. Default: 10 seconds."`
	Frequency frequency `short:"F" default:"19" placeholder:"HZ" group:"how" help:"Samples per second on each CPU. Default: 19."`
	OffCPU    bool      `name:"offcpu" group:"how" help:"Include off-CPU time."`
	MinBlock  micros    `short:"m" name:"min-block-time" default:"10000" placeholder:"US" group:"how" help:"With --offcpu, count only waits of at least this many microseconds. Default: 10000."`
	walkFlags

	Include []rules.Rule   `sep:"none" placeholder:"RULE" group:"what" help:"Measure only processes that RULE matches, such as unit=nginx.service, namespace=shop or program=/usr/bin/postgres. A RULE tests cgroup, container, label:KEY, namespace, pod, program, unit or user; with several, joined by commas, all must match. Give the flag again for other processes."`
	Exclude []rules.Rule   `sep:"none" placeholder:"RULE" group:"what" help:"Do not measure processes that RULE matches, even if they are included."`
	Rate    []rules.Slower `sep:"none" placeholder:"HZ:RULE" group:"what" help:"Take HZ samples per second of the processes that RULE matches, below the rate of -F. Of several, the first that matches counts."`
	MinAge  seconds        `name:"min-age" default:"0" placeholder:"TIME" group:"what" help:"Do not measure processes until they are this old."`

	Endpoint string `placeholder:"URL" group:"server" help:"Send to this OpenTelemetry back end. Default: OTEL_EXPORTER_OTLP_ENDPOINT, or the Collector on this machine: http://127.0.0.1:4318."`
	Protocol string `placeholder:"NAME" group:"server" help:"Send by http/protobuf or grpc. Default: OTEL_EXPORTER_OTLP_PROTOCOL, or http/protobuf."`
	Headers  string `name:"headers-file" placeholder:"FILE" group:"server" help:"Send the headers in FILE with every request: one NAME=VALUE per line. Other users must have no access to FILE."`
	Spool    string `placeholder:"DIR" group:"server" help:"Keep profiles in DIR until they are sent, even if fulgur is killed. Without this flag, up to 16 MiB of profiles wait in memory."`
	Size     size   `name:"spool-size" default:"256M" placeholder:"BYTES" group:"server" help:"Maximum size of all files in the spool; fulgur removes the oldest to stay below it. Default: 256M."`
	Listen   string `default:"127.0.0.1:9464" placeholder:"ADDRESS" group:"server" help:"Serve /healthz and /metrics (Prometheus) at ADDRESS: HOST:PORT or unix:PATH; off disables it. Default: 127.0.0.1:9464."`
	Config   string `placeholder:"FILE" group:"server" help:"Read flags that are not on the command line from FILE, in YAML: lines NAME: VALUE, with names without --. SIGHUP reads FILE again."`

	Bolt       []string `placeholder:"PROGRAM" group:"branches" help:"Take branch profiles of these executables, for llvm-bolt and clang. Give absolute paths, as ls -l /proc/PID/exe shows them. fulgur uses the processor's branch records or counts jumps, and never single-steps."`
	BoltDir    string   `placeholder:"DIR" group:"branches" help:"Write branch profiles to DIR: a file for each build and day (UTC), PROGRAM.DATE.BUILDID.preagg."`
	BoltSize   size     `default:"256M" placeholder:"BYTES" group:"branches" help:"Maximum size of all branch profiles in DIR; fulgur removes the oldest to stay below it. Default: 256M."`
	BoltEvery  seconds  `default:"1800" placeholder:"TIME" group:"branches" help:"Take branches of each program during one window, at a random time, in every period of TIME. Default: 30 minutes."`
	BoltWindow seconds  `default:"30" placeholder:"TIME" group:"branches" help:"Length of a window of branches. Default: 30 seconds."`
	BoltLLVM   string   `name:"bolt-llvm" default:"auto" placeholder:"VERSION" group:"branches" help:"Write for perf2bolt of this version: 22 (and newer), 16 (16 to 21), or auto (the version of llvm-bolt in PATH, else 22). Default: auto."`

	NoInlines bool `group:"output" help:"Send function names only, without inlined functions, files and lines. Takes less time and memory."`
	logFlag
	MaxCPU    limit[percent] `name:"max-cpu" default:"1%" placeholder:"PERCENT" group:"limit" help:"Stay below this share of all CPUs' time on average, if possible; off for no limit. Above it, fulgur lowers the rate and measures fewer waits, then omits names. Default: 1%."`
	MaxMemory limit[size]    `name:"max-memory" default:"128M" placeholder:"BYTES" group:"limit" help:"Stay below this much memory, BPF maps included, if possible; off for no limit. Above it, fulgur drops caches, then omits names. Unwind tables in the kernel take up to a quarter of it, unless --unwind-memory is given. Default: 128M."`
	limitFlags
}

// Help returns the text of fulgur agent --help besides the flags.
func (*agentCommand) Help() string {
	return `Samples the whole machine for as long as it runs, and sends a profile every 10 seconds
to an OpenTelemetry back end, by OTLP. While the back end cannot be reached, profiles wait
in memory or, with --spool, on disk. On SIGTERM or Ctrl-C, fulgur sends the rest and exits.
On SIGHUP, it reads the file of --config again; an invalid file changes nothing.

fulgur reads these standard environment variables: OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL,
_HEADERS, _COMPRESSION, _TIMEOUT, _CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY, each
also with PROFILES_ after OTLP_, and OTEL_RESOURCE_ATTRIBUTES. docs/agent.md describes them.

Examples:

    # to the Collector on this machine
    sudo fulgur agent

    # to a Collector on another machine, with a spool for outages
    sudo fulgur agent --endpoint https://collector.example:4318 --spool /var/lib/fulgur

    # including waits of 50 ms and longer
    sudo fulgur agent --offcpu -m 50000

    # only the pods of a namespace, without those of a job
    sudo fulgur agent --include namespace=shop --exclude 'pod=import-*'

    # including branch profiles of a program, for llvm-bolt
    sudo fulgur agent --bolt /usr/sbin/server --bolt-dir /var/lib/fulgur-bolt
`
}

// reloads implements reloader.
func (*agentCommand) reloads() {}

func (c *agentCommand) run(ctx context.Context, env environment) (int, error) {
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	return agent.Run(ctx, func() (agent.Options, error) { return loadAgent(env) }, hangup, env.stderr)
}

// loadAgent parses the command line, with the configuration file if it names one.
func loadAgent(env environment) (o agent.Options, err error) {
	c, err := parseAgent(env)
	if err != nil {
		return o, err
	}
	if c.Config != "" {
		file, err := readConfig(c.Config)
		if err != nil {
			return o, err
		}
		if c, err = parseAgent(env, file); err != nil {
			return o, err
		}
	}
	return c.options(env)
}

// parseAgent parses the command line of an agent.
func parseAgent(env environment, file ...*configFile) (*agentCommand, error) {
	parsed, err := parse(env.args, env.stdout, env.stderr, file...)
	if err != nil {
		return nil, err
	}
	c, ok := parsed.(*agentCommand)
	if !ok {
		return nil, errors.New("not an agent") // this cannot happen: it was one
	}
	return c, nil
}

// unwindShare is the part of the memory that unwind tables in the kernel may take by default, as
// a divisor. The rest is for fulgur itself and other BPF maps.
const unwindShare = 4

// options translates the flags.
func (c *agentCommand) options(env environment) (o agent.Options, err error) {
	if c.Interval < seconds(time.Second) {
		return o, usage.Errorf("--interval is too short: give at least 1 second")
	}
	common, err := sessionOptions(subjectFlags{}, profileFlags{walkFlags: c.walkFlags, limitFlags: c.limitFlags, outputFlags: outputFlags{NoInlines: c.NoInlines}})
	if err != nil {
		return o, err
	}
	env.complete(&common)
	common.Progress = false
	common.Interruptible = nil // the agent handles signals itself
	common.Every, common.Owners = time.Duration(c.Interval), true
	common.Target.Scope = target.System
	common.Rules = rules.Rules{Include: c.Include, Exclude: c.Exclude, Slower: c.Rate, MinAge: time.Duration(c.MinAge)}
	if m := c.MaxMemory.value; m > 0 && c.UnwindMemory == nil {
		common.UnwindMemory = int64(m) / unwindShare
	}
	if common.Resource, err = otlpclient.Resource(os.Getenv); err != nil {
		return o, err
	}
	o = agent.Options{
		Measure: session.RecordOptions{
			Options: common, Frequency: uint64(c.Frequency), Shortest: time.Duration(c.MinBlock),
			NoOffCPU: !c.OffCPU, NoBlockIO: true, NoFaults: true,
		},
		Spool: c.Spool, SpoolSize: int64(c.Size), Listen: c.Listen,
		Budget: agent.Budget{CPU: float64(c.MaxCPU.value), Memory: uint64(c.MaxMemory.value)},
		Bolt: agent.Bolt{
			Programs: c.Bolt, Dir: c.BoltDir, DirSize: int64(c.BoltSize),
			Every: time.Duration(c.BoltEvery), Window: time.Duration(c.BoltWindow), LLVM: c.BoltLLVM,
		},
	}
	if o.Listen == "off" {
		o.Listen = ""
	}
	if err := o.Bolt.Check(); err != nil {
		return o, err
	}
	if o.BackEnd, err = otlpclient.Configure(c.Endpoint, otlpclient.Protocol(c.Protocol), os.Getenv); err != nil {
		return o, err
	}
	if c.Headers != "" {
		o.BackEnd.Headers, err = readHeaders(c.Headers)
	}
	return o, err
}
