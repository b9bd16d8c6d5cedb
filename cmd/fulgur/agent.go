package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"fulgur/internal/capture/target"
	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/usage"
	"fulgur/internal/session"
	"fulgur/internal/session/agent"
)

// agentCommand measures for as long as it runs. Its flags are also the keys of its
// configuration file.
type agentCommand struct {
	Interval  seconds   `default:"10" placeholder:"TIME" group:"how" help:"Send a profile every TIME. Default: 10 seconds."`
	Frequency frequency `short:"F" default:"19" placeholder:"HZ" group:"how" help:"Samples per second on each CPU. Default: 19."`
	OffCPU    bool      `name:"offcpu" group:"how" help:"Include off-CPU time."`
	MinBlock  micros    `short:"m" name:"min-block-time" default:"10000" placeholder:"US" group:"how" help:"With --offcpu, count only waits of at least this many microseconds. Default: 10000."`
	walkFlags

	Endpoint string `placeholder:"URL" group:"server" help:"Send to this OpenTelemetry back end. Default: OTEL_EXPORTER_OTLP_ENDPOINT, or the Collector on this machine: http://127.0.0.1:4318."`
	Protocol string `placeholder:"NAME" group:"server" help:"Send by http/protobuf or grpc. Default: OTEL_EXPORTER_OTLP_PROTOCOL, or http/protobuf."`
	Headers  string `name:"headers-file" placeholder:"FILE" complete:"file" group:"server" help:"Send the headers in FILE, one line NAME=VALUE each, with every request. Others must have no access to FILE."`
	Spool    string `placeholder:"DIR" group:"server" help:"Keep profiles in DIR until they are sent, even if fulgur is killed. Without it, up to 16 MiB wait in memory."`
	Size     size   `name:"spool-size" default:"256M" placeholder:"BYTES" group:"server" help:"Limit of the files in DIR; the oldest make room. Default: 256M."`
	Listen   string `default:"127.0.0.1:9464" placeholder:"ADDRESS" group:"server" help:"Serve /healthz and /metrics (Prometheus) at ADDRESS; off disables it. Default: 127.0.0.1:9464."`
	Config   string `placeholder:"FILE" complete:"file" group:"server" help:"Read the flags that are not on the command line from FILE, in YAML: NAME: VALUE, names without --. SIGHUP reads it again."`

	NoInlines bool `group:"output" help:"Send function names only, without inlined functions, files and lines. Takes less time and memory."`
	logFlag
	limitFlags
}

// Help returns the text of fulgur agent --help besides the flags.
func (*agentCommand) Help() string {
	return `Samples the whole machine for as long as it runs, and sends a profile every 10 seconds
to an OpenTelemetry back end, by OTLP. If the back end does not accept a profile, it
waits, on disk with --spool, and is sent later. SIGTERM or Ctrl-C sends the rest and ends
fulgur. SIGHUP reads the configuration again and loses no samples; a configuration that is
not valid changes nothing.

The standard variables are honored: OTEL_EXPORTER_OTLP_ENDPOINT, _PROTOCOL, _HEADERS,
_COMPRESSION, _TIMEOUT, _CERTIFICATE, _CLIENT_CERTIFICATE, _CLIENT_KEY, each also with
PROFILES_ after OTLP_, and OTEL_RESOURCE_ATTRIBUTES.

Examples:

    # to the Collector on this machine
    sudo fulgur agent

    # to another one, surviving outages
    sudo fulgur agent --endpoint https://collector.example:4318 --spool /var/lib/fulgur

    # with waits of 50 ms and longer
    sudo fulgur agent --offcpu -m 50000
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

// options translates the flags.
func (c *agentCommand) options(env environment) (o agent.Options, err error) {
	if c.Interval < seconds(time.Second) {
		return o, usage.Errorf("--interval is too short: give at least 1 second")
	}
	common, err := recording{walk: c.walkFlags, limits: c.limitFlags, output: outputFlags{NoInlines: c.NoInlines}}.options()
	if err != nil {
		return o, err
	}
	env.complete(&common)
	common.Progress = false
	common.Interruptible = nil // the agent's signals end no search for names, and it keeps them
	common.Every, common.Owners = time.Duration(c.Interval), true
	common.Target.Scope = target.System
	if common.Resource, err = otlpclient.Resource(os.Getenv); err != nil {
		return o, err
	}
	o = agent.Options{
		Measure: session.RecordOptions{
			Options: common, Frequency: uint64(c.Frequency), Shortest: time.Duration(c.MinBlock),
			NoOffCPU: !c.OffCPU, NoBlockIO: true, NoFaults: true,
		},
		Spool: c.Spool, SpoolSize: int64(c.Size), Listen: c.Listen,
	}
	if o.Listen == "off" {
		o.Listen = ""
	}
	if o.BackEnd, err = otlpclient.Configure(c.Endpoint, otlpclient.Protocol(c.Protocol), os.Getenv); err != nil {
		return o, err
	}
	if c.Headers != "" {
		o.BackEnd.Headers, err = readHeaders(c.Headers)
	}
	return o, err
}
