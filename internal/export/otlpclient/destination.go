package otlpclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"fulgur/internal/files/ctxfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/output"
)

// oneProfile is the time limit for sending one profile from the command line.
const oneProfile = time.Minute

// errUnsent is the error of a profile that an interrupt kept from being sent.
const errUnsent ctxfile.GaveUpError = "the back end has not taken the profile: write it to a file, and send that later (fulgur convert)"

// Create is like [output.Create], but if path is a URL, it sends the data there. ctx also ends
// sending. warn receives warnings about the connection.
func Create(ctx context.Context, path string, stdout io.Writer, warn func(string)) (output.Output, error) {
	if !output.IsURL(path) {
		return output.Create(ctx, path, stdout)
	}
	c, err := Configure(path, "", os.Getenv)
	if err != nil {
		return nil, err
	}
	if warning := c.Warning(); warning != "" {
		warn(warning)
	}
	return &destination{ctx: ctx, client: New(c), warn: warn}, nil
}

// destination is an [output.Output] that sends its data.
type destination struct {
	bytes.Buffer
	ctx    context.Context
	client *Client
	warn   func(string)
}

// Commit sends the profile.
func (d *destination) Commit() error {
	answer, err := d.client.Deliver(d.ctx, d.Bytes(), oneProfile, func(err error) {
		d.warn(plain.Error(err) + "; trying again")
	})
	switch {
	case err != nil && d.ctx.Err() != nil:
		err = fmt.Errorf("send to %s: %w", d.client.config.URL.Host, errUnsent)
	case err == nil && answer.Rejected > 0:
		err = fmt.Errorf("the back end rejected %s: %s", plain.Count(uint64(answer.Rejected), "profile"), plain.Terminal(answer.Message))
	case err == nil && answer.Message != "":
		d.warn("the back end says: " + plain.Terminal(answer.Message))
	}
	return errors.Join(err, d.client.Close())
}

// Abort does nothing: without Commit, nothing is sent.
func (d *destination) Abort() error { return nil }

// Resource returns the attributes of this machine from OTEL_RESOURCE_ATTRIBUTES. It leaves
// out attributes that would describe fulgur rather than the measured processes. Errors are
// usage errors.
func Resource(env Environment) (map[string]string, error) {
	const variable = "OTEL_RESOURCE_ATTRIBUTES"
	attributes := map[string]string{}
	pairs, err := parsePairs(strings.Split(env(variable), ","))
	if err != nil {
		return nil, usage.Errorf("%s: %v", variable, err)
	}
	for _, p := range pairs {
		if !describesProcess(p[0]) {
			attributes[p[0]] = p[1]
		}
	}
	return attributes, nil
}

// describesProcess reports whether an attribute describes a process, or a group that it
// belongs to.
func describesProcess(key string) bool {
	for _, prefix := range []string{"process.", "service.", "telemetry.", "container.", "k8s.pod.", "k8s.container."} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}
