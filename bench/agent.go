package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"time"
)

// agentFrequency is the default rate of fulgur agent.
const agentFrequency = 19

// An agent runs for agentRun. Its first window, of 10 s, has names that later ones do not find
// again, so its steady state begins after agentSettled.
const (
	agentRun     = 45 * time.Second
	agentSettled = 15 * time.Second
)

// agent returns fulgur agent, run from the path program. It sends to a back end that accepts
// everything.
func agent(program string) tool {
	return tool{name: nameAgent, frequency: agentFrequency, run: func(ctx context.Context, j job) (c cost, err error) {
		endpoint, stop, err := backEnd()
		if err != nil {
			return cost{}, err
		}
		defer func() { err = errors.Join(err, stop()) }()
		argv := []string{program, "agent", "--endpoint", endpoint, "--listen", "off", "-F", strconv.Itoa(j.Frequency)}
		o, err := observe(ctx, argv, nil, newBPFWatch, agentRun)
		if err != nil {
			return cost{}, err
		}
		if o.firstRun == 0 {
			return cost{}, fmt.Errorf("%s: none of its BPF programs ran\n%s", argv[0], o.stderr)
		}
		c = o.cost(int(agentRun.Seconds()))
		c.Steady = o.steady(agentSettled, agentRun)
		c.Start = (o.firstRun - o.started).Seconds()
		c.Result = (o.ended - o.firstRun - agentRun).Seconds()
		c.BPFShare = c.BPF / agentRun.Seconds()
		c.Lost = reportedLost(o.stderr)
		if m := takenLine.FindStringSubmatch(o.stderr); m != nil {
			c.Samples, err = strconv.ParseUint(m[1], 10, 64)
		}
		return c, err
	}}
}

// takenLine matches an agent's last line.
var takenLine = regexp.MustCompile(`(?m)^fulgur: (\d+) samples taken, `)

// backEnd serves a back end on loopback, which discards what it takes.
func backEnd() (endpoint string, stop func() error, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/x-protobuf")
	})}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	return "http://" + l.Addr().String(), func() error {
		err := s.Close()
		if e := <-served; !errors.Is(e, http.ErrServerClosed) {
			err = errors.Join(err, e)
		}
		return err
	}, nil
}
