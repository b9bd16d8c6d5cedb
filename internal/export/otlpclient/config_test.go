package otlpclient

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"fulgur/internal/message/usage"
)

func TestEndpoints(t *testing.T) {
	for _, tt := range []struct {
		given    string
		protocol Protocol
		env      []string
		want     string
	}{
		{want: "http://127.0.0.1:4318/v1development/profiles"},
		{protocol: GRPC, want: "http://127.0.0.1:4317"},
		{given: "http://h:1", want: "http://h:1/v1development/profiles"},
		{given: "https://h/base/", want: "https://h/base/v1development/profiles"},
		{given: "https://h/v1development/profiles", want: "https://h/v1development/profiles"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/x"}, want: "http://all:1/x/v1development/profiles"},
		{env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://all:1/x", "OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://one:2/y"}, want: "http://one:2/y"},
		{given: "http://h:1", env: []string{"OTEL_EXPORTER_OTLP_PROFILES_ENDPOINT", "http://one:2/y"}, want: "http://h:1/v1development/profiles"},
		{env: []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317"}, want: "https://h:4317"},
		{env: []string{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_ENDPOINT", "h:4317", "OTEL_EXPORTER_OTLP_INSECURE", "true"}, want: "http://h:4317"},
		{env: []string{"OTEL_EXPORTER_OTLP_PROFILES_PROTOCOL", "grpc", "OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf"}, want: "http://127.0.0.1:4317"},
	} {
		c, err := Configure(tt.given, tt.protocol, environment(tt.env...))
		if err != nil || c.URL.String() != tt.want {
			t.Errorf("%q %q %q: got %v, error %v; want %s", tt.given, tt.protocol, tt.env, c.URL, err, tt.want)
		}
	}
}

func TestConfigure(t *testing.T) {
	c, err := Configure("", "", environment("OTEL_EXPORTER_OTLP_TIMEOUT", "1500", "OTEL_EXPORTER_OTLP_HEADERS", "A=1,b=x%2Cy",
		"OTEL_EXPORTER_OTLP_PROFILES_HEADERS", "c=3,d=4=5", "OTEL_EXPORTER_OTLP_COMPRESSION", "zstd"))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"c": "3", "d": "4=5"}; !maps.Equal(c.Headers, want) || c.Timeout != 1500*time.Millisecond || c.Compression != "zstd" {
		t.Errorf("got %+v, want headers %v, 1.5 s and zstd", c, want)
	}
	if c, err = Configure("", "", environment()); err != nil || c.Timeout != DefaultTimeout || c.Compression != "gzip" {
		t.Errorf("got %+v, error %v; want the defaults", c, err)
	}
}

// TestConfigureErrors checks that errors are usage errors and do not quote secrets.
func TestConfigureErrors(t *testing.T) {
	const secret = "hunter2"
	for _, tt := range [][]string{
		{"ENDPOINT", "http://u:" + secret + "@h"},
		{"ENDPOINT", "http://u:" + secret + "@h:port"},
		{"ENDPOINT", "ftp://h"},
		{"ENDPOINT", "h:4318"},
		{"ENDPOINT", "http://h?key=" + secret},
		{"PROTOCOL", "http/json"},
		{"HEADERS", secret},
		{"HEADERS", "a=%zz" + secret},
		{"HEADERS", "a=1\n" + secret},
		{"HEADERS", "a b=" + secret},
		{"COMPRESSION", "lz4"},
		{"TIMEOUT", "1s"},
		{"TIMEOUT", "0"},
		{"CLIENT_KEY", "key.pem"},
	} {
		_, err := Configure("", "", environment("OTEL_EXPORTER_OTLP_"+tt[0], tt[1]))
		if !errors.Is(err, usage.Err) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s=%q: got error %v, want a usage error without the secret", tt[0], tt[1], err)
		}
	}
	if _, err := Configure("", "", environment("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent")); err == nil {
		t.Error("got no error for a file that does not exist")
	}
}

func TestWarning(t *testing.T) {
	for _, tt := range []struct {
		endpoint, headers string
		want              bool
	}{
		{"http://collector:4318", "a=1", true},
		{"http://collector:4318", "", false},
		{"https://collector:4318", "a=1", false},
		{"http://127.0.0.1:4318", "a=1", false},
		{"http://[::1]:4318", "a=1", false},
		{"http://localhost:4318", "a=1", false},
		{"http://localhost.example:4318", "a=1", true},
	} {
		c, err := Configure(tt.endpoint, "", environment("OTEL_EXPORTER_OTLP_HEADERS", tt.headers))
		if err != nil || (c.Warning() != "") != tt.want {
			t.Errorf("%s with headers %q: got warning %q, error %v", tt.endpoint, tt.headers, c.Warning(), err)
		}
	}
}

// TestResource checks that attributes of fulgur itself are left out.
func TestResource(t *testing.T) {
	got, err := Resource(environment("OTEL_RESOURCE_ATTRIBUTES", "host.name=n1, deployment.environment.name=a%20b,service.name=me,k8s.pod.name=p,process.pid=1,container.id=c,k8s.node.name=n"))
	want := map[string]string{"host.name": "n1", "deployment.environment.name": "a b", "k8s.node.name": "n"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, error %v; want %v", got, err, want)
	}
	if _, err := Resource(environment("OTEL_RESOURCE_ATTRIBUTES", "a")); !errors.Is(err, usage.Err) {
		t.Errorf("got error %v, want a usage error", err)
	}
}
