// Package otlptest is an OpenTelemetry back end for tests: it receives profiles by OTLP/HTTP
// and OTLP/gRPC, decodes them with OpenTelemetry's own messages, and can fail on demand.
package otlptest

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
	pb "go.opentelemetry.io/proto/slim/otlp/collector/profiles/v1development"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip" // the client's default
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"fulgur/internal/testenv"
)

// Receiver is a back end. Its methods are safe for concurrent use.
type Receiver struct {
	t  testing.TB
	mu sync.Mutex
	// accepted holds the accepted requests.
	accepted []*Request
	answer   func(*Request) Reply
}

// Request is a request that a client sent.
type Request struct {
	*pb.ExportProfilesServiceRequest
	// Header has the headers, or gRPC's metadata.
	Header http.Header
	// Encoding is the compression of the message.
	Encoding string
	// Body is the uncompressed message.
	Body []byte
	Path string
}

// Reply is the response to a request. The zero value accepts the request.
type Reply struct {
	// Status and Header are parts of the HTTP response; a Status of 0 is 200.
	Status int
	Header http.Header
	// GRPC is the gRPC status, nil for OK.
	GRPC *status.Status
	// Rejected and Message are the fields of a partial success.
	Rejected int64
	Message  string
}

func (r Reply) accepts() bool { return (r.Status == 0 || r.Status == http.StatusOK) && r.GRPC == nil }

// NewReceiver returns a back end. reply chooses the responses; nil accepts everything.
func NewReceiver(t testing.TB, reply func(*Request) Reply) *Receiver {
	return &Receiver{t: t, answer: reply}
}

// Accepted returns the requests that were accepted so far.
func (r *Receiver) Accepted() []*Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Request(nil), r.accepted...)
}

// Await waits until n requests were accepted and returns them.
func (r *Receiver) Await(n int) (all []*Request) {
	r.t.Helper()
	testenv.Await(r.t, func() bool {
		all = r.Accepted()
		return len(all) >= n
	}, func() string { return fmt.Sprintf("got %d requests, want %d", len(all), n) })
	return all
}

// receive decodes a request and returns the reply.
func (r *Receiver) receive(q *Request) Reply {
	q.ExportProfilesServiceRequest = new(pb.ExportProfilesServiceRequest)
	if err := proto.Unmarshal(q.Body, q.ExportProfilesServiceRequest); err != nil {
		r.t.Errorf("decode a request: %v", err)
		return Reply{Status: http.StatusBadRequest, GRPC: status.New(codes.InvalidArgument, err.Error())}
	}
	var a Reply
	if r.answer != nil {
		a = r.answer(q)
	}
	if a.accepts() {
		r.mu.Lock()
		r.accepted = append(r.accepted, q)
		r.mu.Unlock()
	}
	return a
}

func (r Reply) encoded(t testing.TB) []byte {
	message := new(pb.ExportProfilesServiceResponse)
	if r.Rejected != 0 || r.Message != "" {
		message.PartialSuccess = &pb.ExportProfilesPartialSuccess{RejectedProfiles: r.Rejected, ErrorMessage: r.Message}
	}
	data, err := proto.Marshal(message)
	if err != nil {
		t.Error(err)
	}
	return data
}

// ServeHTTP implements OTLP/HTTP.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	q := &Request{Header: request.Header, Encoding: request.Header.Get("Content-Encoding"), Path: request.URL.Path}
	var body io.Reader = request.Body
	var err error
	switch q.Encoding {
	case "gzip":
		body, err = gzip.NewReader(body)
	case "zstd":
		body, err = zstd.NewReader(body)
	}
	if err == nil {
		q.Body, err = io.ReadAll(body)
	}
	if err != nil {
		return // the client went away
	}
	if kind := request.Header.Get("Content-Type"); request.Method != http.MethodPost || kind != "application/x-protobuf" {
		r.t.Errorf("got a request %s of type %q", request.Method, kind)
	}
	a := r.receive(q)
	maps.Copy(w.Header(), a.Header)
	w.Header().Set("Content-Type", "application/x-protobuf")
	if a.Status != 0 {
		w.WriteHeader(a.Status)
	}
	if a.accepts() {
		_, _ = w.Write(a.encoded(r.t))
	}
}

// HTTP serves OTLP/HTTP on loopback until the end of the test, and returns the base URL.
func (r *Receiver) HTTP() string {
	s := httptest.NewServer(r)
	r.t.Cleanup(s.Close)
	return s.URL
}

// GRPC serves OTLP/gRPC on loopback until the end of the test, and returns the URL.
func (r *Receiver) GRPC(options ...grpc.ServerOption) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	s := grpc.NewServer(options...)
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "opentelemetry.proto.collector.profiles.v1development.ProfilesService",
		HandlerType: (*any)(nil),
		Methods:     []grpc.MethodDesc{{MethodName: "Export", Handler: r.export}},
	}, r)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(l); err != nil {
			r.t.Errorf("serve gRPC: %v", err)
		}
	}()
	r.t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return fmt.Sprintf("http://%s", l.Addr())
}

// export handles a gRPC call.
func (r *Receiver) export(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the order is gRPC's
	var message pb.ExportProfilesServiceRequest
	if err := decode(&message); err != nil {
		return nil, err
	}
	body, err := proto.Marshal(&message)
	if err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	q := &Request{Header: http.Header{}, Body: body}
	values, _ := metadata.FromIncomingContext(ctx)
	for name, v := range values {
		q.Header[http.CanonicalHeaderKey(name)] = v
	}
	a := r.receive(q)
	if a.GRPC != nil {
		return nil, a.GRPC.Err()
	}
	answer := new(pb.ExportProfilesServiceResponse)
	if err := proto.Unmarshal(a.encoded(r.t), answer); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	return answer, nil
}
