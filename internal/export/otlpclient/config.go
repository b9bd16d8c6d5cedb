package otlpclient

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/message/usage"
)

// Protocol is a transport protocol, by its name in OTEL_EXPORTER_OTLP_PROTOCOL.
type Protocol string

// The protocols.
const (
	HTTP Protocol = "http/protobuf"
	GRPC Protocol = "grpc"
)

// profilesPath is the path of OTLP/HTTP's profiles.
const profilesPath = "/v1development/profiles"

// DefaultTimeout is the default time limit of a request.
const DefaultTimeout = 10 * time.Second

// Config describes a back end.
type Config struct {
	// URL has the scheme http or https, a host and, for [HTTP], the path.
	URL      *url.URL
	Protocol Protocol
	// Headers are sent with each request. They may be secret.
	Headers map[string]string
	// Compression is "none", "gzip" or "zstd".
	Compression string
	// Timeout limits one request.
	Timeout time.Duration
	// Certificate is a PEM file with the certificate authorities to trust; empty means the
	// system's. ClientCertificate and ClientKey are PEM files with the client's certificate
	// and key; empty means none. The files are read again when they change.
	Certificate, ClientCertificate, ClientKey string
}

// Environment returns the value of a variable, empty if it is not set; see [os.Getenv].
type Environment func(name string) string

// option returns the value of an exporter's option, for profiles or else for all signals, and
// the name of the variable that sets it.
func (e Environment) option(name string) (value, variable string) {
	variable = "OTEL_EXPORTER_OTLP_PROFILES_" + name
	if value = strings.TrimSpace(e(variable)); value == "" {
		variable = "OTEL_EXPORTER_OTLP_" + name
		value = strings.TrimSpace(e(variable))
	}
	return value, variable
}

// Configure returns the configuration from the standard variables, see
// https://opentelemetry.io/docs/specs/otel/protocol/exporter/. endpoint and protocol, if
// not empty, take precedence over the variables. The endpoint is a base URL like
// OTEL_EXPORTER_OTLP_ENDPOINT, or has the full path. Errors are usage errors and never
// quote headers.
func Configure(endpoint string, protocol Protocol, env Environment) (c Config, err error) {
	name, variable := env.option("PROTOCOL")
	c.Protocol = cmp.Or(protocol, Protocol(name), HTTP)
	if c.Protocol != HTTP && c.Protocol != GRPC {
		return c, usage.Errorf("%s: unknown protocol %q: choose %s or %s", variable, c.Protocol, HTTP, GRPC)
	}
	if c.URL, err = c.endpoint(endpoint, env); err != nil {
		return c, err
	}
	value, variable := env.option("HEADERS")
	if c.Headers, err = ParseHeaders(strings.Split(value, ",")); err != nil {
		return c, usage.Errorf("%s: %v", variable, err)
	}
	value, variable = env.option("COMPRESSION")
	switch c.Compression = cmp.Or(value, "gzip"); c.Compression {
	case "none", "gzip", "zstd":
	default:
		return c, usage.Errorf("%s: unknown compression %q: choose none, gzip or zstd", variable, value)
	}
	c.Timeout = DefaultTimeout
	if value, variable = env.option("TIMEOUT"); value != "" {
		n, err := strconv.ParseUint(value, 10, 31)
		if err != nil || n == 0 {
			return c, usage.Errorf("%s: %q is not a number of milliseconds", variable, value)
		}
		c.Timeout = time.Duration(n) * time.Millisecond
	}
	c.Certificate, _ = env.option("CERTIFICATE")
	c.ClientCertificate, variable = env.option("CLIENT_CERTIFICATE")
	c.ClientKey, _ = env.option("CLIENT_KEY")
	if (c.ClientCertificate == "") != (c.ClientKey == "") {
		return c, usage.Errorf("%s: a client certificate needs its key, and a key its certificate", variable)
	}
	_, err = c.tls() // fail now if a file is missing
	return c, err
}

// endpoint returns the URL to send to.
func (c *Config) endpoint(given string, env Environment) (*url.URL, error) {
	text, from, full := given, "endpoint", false
	if given == "" {
		text, from = env.option("ENDPOINT")
		full = strings.Contains(from, "PROFILES")
	}
	if text == "" {
		text = "http://127.0.0.1:4318"
		if c.Protocol == GRPC {
			text = "http://127.0.0.1:4317"
		}
	}
	if c.Protocol == GRPC && !strings.Contains(text, "://") {
		scheme := "https://"
		if insecure, _ := env.option("INSECURE"); strings.EqualFold(insecure, "true") {
			scheme = "http://"
		}
		text = scheme + text
	}
	u, err := url.Parse(text)
	switch {
	case err != nil: // err quotes the whole text, which may contain a password
		return nil, usage.Errorf("%s: not a URL", from)
	case u.User != nil:
		return nil, usage.Errorf("%s: the password in a URL is visible to everyone: use OTEL_EXPORTER_OTLP_HEADERS", from)
	case u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return nil, usage.Errorf("%s: %q is not a URL such as http://127.0.0.1:4318", from, u.Redacted())
	case u.RawQuery != "" || u.Fragment != "":
		return nil, usage.Errorf("%s: the URL must end after its path", from)
	}
	if c.Protocol == HTTP && !full && !strings.HasSuffix(u.Path, profilesPath) {
		u.Path = path.Join("/", u.Path, profilesPath)
	}
	return u, nil
}

// ParseHeaders parses headers of the form name=value, whose values may be URL-encoded.
// Errors do not quote them.
func ParseHeaders(list []string) (map[string]string, error) {
	pairs, err := parsePairs(list)
	if err != nil {
		return nil, err
	}
	headers := map[string]string{}
	for i, p := range pairs {
		name := strings.ToLower(p[0])
		if !validHeader(name, p[1]) {
			return nil, fmt.Errorf("item %d is not a header", i+1)
		}
		headers[name] = p[1]
	}
	return headers, nil
}

// parsePairs parses items of the form key=value, whose values may be URL-encoded. Errors do
// not quote them.
func parsePairs(list []string) (pairs [][2]string, err error) {
	for i, item := range list {
		if strings.TrimSpace(item) == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		key = strings.TrimSpace(key)
		value, err := url.PathUnescape(strings.TrimSpace(value))
		if !ok || key == "" || err != nil {
			return nil, fmt.Errorf("item %d is not of the form name=value", i+1)
		}
		pairs = append(pairs, [2]string{key, value})
	}
	return pairs, nil
}

// validHeader reports whether a header is valid in HTTP, see RFC 9110, section 5.
func validHeader(name, value string) bool {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
	if name == "" || strings.Trim(name, token) != "" {
		return false
	}
	return !strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// Warning returns why the configuration is unsafe, or "".
func (c Config) Warning() string {
	if c.URL.Scheme == "https" || len(c.Headers) == 0 || isLoopback(c.URL.Hostname()) {
		return ""
	}
	return fmt.Sprintf("headers, which may be secret, go to %s unencrypted: use https", c.URL.Host)
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// httpHeaders returns the headers of a request.
func (c *Config) httpHeaders() http.Header {
	all := http.Header{}
	for name, value := range c.Headers {
		all.Set(name, value)
	}
	return all
}
