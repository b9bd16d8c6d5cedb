package otlpclient

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// exportMethod is the name of the gRPC method. The OTLP module in use has no generated stub
// for it.
const exportMethod = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export"

// grpcConnection sends by OTLP/gRPC.
type grpcConnection struct {
	conn     *grpc.ClientConn
	metadata metadata.MD
	options  []grpc.CallOption
}

func newGRPC(c *Config, t *tls.Config) (connection, error) {
	secure := credentials.NewTLS(t)
	port := "443"
	if c.URL.Scheme == "http" {
		secure, port = insecure.NewCredentials(), "80"
	}
	if p := c.URL.Port(); p != "" {
		port = p
	}
	registerMethods()
	wait := backoff.DefaultConfig
	wait.MaxDelay = maxInterval
	conn, err := grpc.NewClient(net.JoinHostPort(c.URL.Hostname(), port),
		grpc.WithTransportCredentials(secure), grpc.WithUserAgent(userAgent), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: wait, MinConnectTimeout: c.Timeout}))
	if err != nil {
		return nil, fmt.Errorf("prepare a gRPC connection: %w", err)
	}
	g := &grpcConnection{conn: conn, metadata: metadata.New(c.Headers), options: []grpc.CallOption{
		grpc.ForceCodecV2(rawCodec{}), grpc.MaxCallRecvMsgSize(maxAnswer),
	}}
	if c.Compression != "none" {
		g.options = append(g.options, grpc.UseCompressor(c.Compression))
	}
	return g, nil
}

// registerMethods registers the compression methods with gRPC.
var registerMethods = sync.OnceFunc(func() {
	encoding.RegisterCompressor(method("gzip"))
	encoding.RegisterCompressor(method("zstd"))
})

// retryCodes are the codes that the specification of OTLP calls retryable.
var retryCodes = []codes.Code{
	codes.Canceled, codes.DeadlineExceeded, codes.Aborted, codes.OutOfRange, codes.Unavailable, codes.DataLoss,
}

func (g *grpcConnection) send(ctx context.Context, message []byte) (Answer, error) {
	var answer []byte
	err := g.conn.Invoke(metadata.NewOutgoingContext(ctx, g.metadata), exportMethod, message, &answer, g.options...)
	if err == nil {
		return parseAnswer(answer), nil
	}
	s := status.Convert(err)
	text := s.Message()
	failed := &Error{Err: fmt.Errorf("%s: %s", s.Code(), text[:min(len(text), maxExplanation)])}
	after, hasInfo := retryInfo(s)
	failed.Retry = slices.Contains(retryCodes, s.Code()) || s.Code() == codes.ResourceExhausted && hasInfo
	failed.After = after
	return Answer{}, failed
}

// retryInfo returns how long to wait, if the server says so.
func retryInfo(s *status.Status) (after time.Duration, ok bool) {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return min(max(info.GetRetryDelay().AsDuration(), 0), maxWait), true
		}
	}
	return 0, false
}

func (g *grpcConnection) close() error { return g.conn.Close() }

// rawCodec passes messages that are already encoded.
type rawCodec struct{}

// Name returns the content subtype.
func (rawCodec) Name() string { return "proto" }

var errNotRaw = errors.New("not an encoded message")

// Marshal returns a message of type []byte.
func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	b, ok := v.([]byte)
	if !ok {
		return nil, errNotRaw
	}
	return mem.BufferSlice{mem.SliceBuffer(b)}, nil
}

// Unmarshal copies a message to a *[]byte.
func (rawCodec) Unmarshal(data mem.BufferSlice, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return errNotRaw
	}
	*b = data.Materialize()
	return nil
}
