package otlpclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAnswer is the maximum number of bytes to read of a response.
const maxAnswer = 1 << 20

// contentType is the type of requests and responses.
const contentType = "application/x-protobuf"

// userAgent is the User-Agent header.
const userAgent = "fulgur"

// httpConnection sends by OTLP/HTTP.
type httpConnection struct {
	config *Config
	client http.Client
}

func newHTTP(c *Config, t *tls.Config) (connection, error) {
	return &httpConnection{config: c, client: http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: t, ForceAttemptHTTP2: true,
			MaxIdleConns: 1, IdleConnTimeout: 90 * time.Second,
		},
		CheckRedirect: sameHost,
	}}, nil
}

// maxRedirects limits the redirects of one request.
const maxRedirects = 5

// errRedirect is the error of a redirect that is not followed.
var errRedirect = errors.New("refused to follow a redirect that loses the profiles or leaves the host")

// sameHost refuses redirects to another host or from https to http, so that headers and
// profiles remain secret. It also refuses the statuses 301 to 303, which turn a POST into a
// GET without the profiles.
func sameHost(to *http.Request, via []*http.Request) error {
	first := via[0]
	if to.URL.Host != first.URL.Host || to.URL.Scheme != first.URL.Scheme || to.Method != first.Method || len(via) > maxRedirects {
		return errRedirect
	}
	return nil
}

// retryStatus lists the status codes of servers that may accept the profiles later.
var retryStatus = []int{http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout}

func (h *httpConnection) send(ctx context.Context, message []byte) (answer Answer, err error) {
	body, err := compressed(message, h.config.Compression)
	if err != nil {
		return answer, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.config.URL.String(), bytes.NewReader(body))
	if err != nil {
		return answer, &Error{Err: err}
	}
	request.Header = h.config.httpHeaders()
	request.Header.Set("Content-Type", contentType)
	request.Header.Set("User-Agent", userAgent)
	if h.config.Compression != "none" {
		request.Header.Set("Content-Encoding", h.config.Compression)
	}
	response, err := h.client.Do(request)
	if err != nil {
		return answer, &Error{Err: withoutURL(err), Retry: !errors.Is(err, errRedirect)}
	}
	defer func() { err = errors.Join(err, response.Body.Close()) }()
	text, _ := io.ReadAll(io.LimitReader(response.Body, maxAnswer)) // only the status matters
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		switch mediaType(response.Header) {
		case contentType:
			answer = parseAnswer(text)
		case "text/html": // a login page, or the page of a server that is no back end
			return answer, &Error{Err: fmt.Errorf("answer %q with a web page: nothing at this URL takes profiles", response.Status)}
		}
		return answer, nil
	}
	what := fmt.Errorf("answer %q%s", response.Status, explanation(response.Header, text))
	if !slices.Contains(retryStatus, response.StatusCode) {
		return answer, &Error{Err: what}
	}
	return answer, &Error{Err: what, Retry: true, After: retryAfter(response.Header.Get("Retry-After"), time.Now())}
}

func (h *httpConnection) close() error {
	h.client.CloseIdleConnections()
	return nil
}

// withoutURL returns the cause of an error of [http.Client], without the URL.
func withoutURL(err error) error {
	if cause := errors.Unwrap(err); cause != nil {
		return cause
	}
	return err
}

// mediaType returns the media type of a response, "" if unknown.
func mediaType(h http.Header) string {
	kind, _, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return ""
	}
	return kind
}

// maxExplanation limits the bytes of a server's text in a message.
const maxExplanation = 200

// explanation returns the explanation in the body of a failed request, for an error message.
func explanation(h http.Header, body []byte) string {
	text := string(body)
	if mediaType(h) == contentType {
		text = parseStatus(body)
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return ": " + strings.ToValidUTF8(text[:min(len(text), maxExplanation)], "")
}

// maxWait limits the wait that a server can request.
const maxWait = 10 * time.Minute

// retryAfter parses a Retry-After header: seconds, or a time; see RFC 9110, section 10.2.3.
// It returns 0 for anything else.
func retryAfter(value string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(value, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxWait)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWait)
}
