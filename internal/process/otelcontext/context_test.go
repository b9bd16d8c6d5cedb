package otelcontext

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	resource "go.opentelemetry.io/proto/slim/otlp/resource/v1"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// encoded returns a payload: a message ProcessContext with a resource, encoded by
// OpenTelemetry's own messages, and an extra attribute.
func encoded(t testing.TB, attributes ...*common.KeyValue) []byte {
	t.Helper()
	r, err := proto.Marshal(&resource.Resource{Attributes: attributes, DroppedAttributesCount: 3})
	if err != nil {
		t.Fatal(err)
	}
	extra, err := proto.Marshal(text("extra", "value"))
	if err != nil {
		t.Fatal(err)
	}
	b := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), r)
	return protowire.AppendBytes(protowire.AppendTag(b, 2, protowire.BytesType), extra)
}

func text(key, value string) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}

// TestParseContext parses values of simple types, except for reserved attributes.
func TestParseContext(t *testing.T) {
	got, err := parseContext(encoded(t, text("service.name", "shop"), text("host.name", "forged"), text("container.id", "forged"),
		text("process.pid", "1"), text("k8s.pod.name", "forged"), text("fulgur.run", "forged"), text("", "no key"),
		&common.KeyValue{Key: "count", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: -5}}},
		&common.KeyValue{Key: "flag", Value: &common.AnyValue{Value: &common.AnyValue_BoolValue{BoolValue: true}}},
		&common.KeyValue{Key: "ratio", Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: 1.5}}},
		&common.KeyValue{Key: "list", Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: &common.ArrayValue{}}}},
		&common.KeyValue{Key: "none"},
	))
	want := []Attribute{{"service.name", "shop"}, {"count", int64(-5)}, {"flag", true}}
	if diff := cmp.Diff(want, got.attributes); err != nil || diff != "" {
		t.Errorf("error %v, -want +got:\n%s", err, diff)
	}
	var many []*common.KeyValue
	for range maxAttributes + 10 {
		many = append(many, text("a", "b"))
	}
	if got, err := parseContext(encoded(t, many...)); err != nil || len(got.attributes) != maxAttributes {
		t.Errorf("got %d attributes, error %v; want %d", len(got.attributes), err, maxAttributes)
	}
	if got, err := parseContext([]byte{0x0a, 0x02, 0x0a, 0xff}); err == nil {
		t.Errorf("a truncated message: got %v", got)
	}
}

// keyed returns a payload with the keys of attributes of threads.
func keyed(t testing.TB, keys ...string) []byte {
	t.Helper()
	array := &common.ArrayValue{}
	for _, key := range keys {
		array.Values = append(array.Values, text("", key).Value)
	}
	extra, err := proto.Marshal(&common.KeyValue{Key: keyMap, Value: &common.AnyValue{Value: &common.AnyValue_ArrayValue{ArrayValue: array}}})
	if err != nil {
		t.Fatal(err)
	}
	return protowire.AppendBytes(protowire.AppendTag(encoded(t, text("service.name", "shop")), 2, protowire.BytesType), extra)
}

// TestParseKeys parses the keys of attributes of threads.
func TestParseKeys(t *testing.T) {
	got, err := parseContext(keyed(t, "http.route", "user"))
	if want := []string{"http.route", "user"}; err != nil || !cmp.Equal(got.keys, want) || len(got.attributes) != 1 {
		t.Errorf("got %v, error %v, want keys %v", got, err, want)
	}
	if got, err := parseContext(keyed(t, make([]string, maxKeys+1)...)); err != nil || len(got.keys) != maxKeys {
		t.Errorf("got %d keys, error %v, want %d", len(got.keys), err, maxKeys)
	}
}

// Keys are read when they are expected or an attribute needs them, but not all the time.
func TestKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, asked, published := NewKeys(), 0, []string{"a"}
		keys.ask = func(pid int, of *known, _ time.Time) {
			time.Sleep(time.Millisecond)
			asked++
			of.keys = published
		}
		of := func(epoch uint64, n, wantAsked int, want ...string) {
			t.Helper()
			if got := keys.Of(5, epoch, n); !slices.Equal(got, want) || asked != wantAsked {
				t.Errorf("asked %d times, got %v, want %d and %v", asked, got, wantAsked, want)
			}
		}
		of(1, 0, 1, "a")
		of(1, 0, 1, "a")
		published = []string{"a", "b"}
		of(1, 1, 1, "a")
		time.Sleep(retryKeys)
		of(1, 1, 2, "a", "b")
		time.Sleep(retryKeys)
		published = nil // the process has ended
		of(1, 2, 3, "a", "b")
		published = []string{"other"}
		of(1, 1, 3, "a", "b")
		of(2, 0, 4, "other") // the process executed another program
		published = nil      // not yet
		keys.Expect(5, 3)
		published = []string{"c"}
		of(3, 0, 6, "c")
		keys.Expect(5, 4)
		published = nil // the process has ended
		of(3, 0, 7, "c")
		of(4, 0, 7, "c")
		time.Sleep(retryKeys)
		of(4, 0, 7, "c")
		asked = 0
		const many = 1 << 14 // processes that lack keys
		begin := time.Now()
		for pid := range many {
			keys.Of(pid, 5, 7)
		}
		if spent, most := time.Since(begin), maxAsking*askingShare/(askingShare-1)+10*time.Millisecond; spent > most || asked < 100 {
			t.Errorf("asked %d of %d processes for %v, want at most %v", asked, many, spent, most)
		}
		if len(keys.known) > maxKnown {
			t.Errorf("got %d processes, want at most %d", len(keys.known), maxKnown)
		}
	})
}

// FuzzParseContext parses arbitrary bytes.
func FuzzParseContext(f *testing.F) {
	f.Add(encoded(f, text("service.name", "shop"), &common.KeyValue{Key: "n", Value: &common.AnyValue{Value: &common.AnyValue_IntValue{IntValue: 1}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseContext(b)
		if len(got.attributes) > maxAttributes || len(got.keys) > maxKeys {
			t.Errorf("got %d attributes and %d keys, error %v", len(got.attributes), len(got.keys), err)
		}
		var r resource.Resource
		payload := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), b)
		if _, err := parseContext(payload); proto.Unmarshal(b, &r) == nil && err != nil {
			t.Errorf("got error %v for a valid message", err)
		}
	})
}

// memory is the memory of a process, by address. changes are made before a read.
type memory struct {
	at      map[uint64][]byte
	changes []func(map[uint64][]byte)
}

func (m *memory) Read(b []byte, addr uint64) error {
	if len(m.changes) > 0 {
		if m.changes[0] != nil {
			m.changes[0](m.at)
		}
		m.changes = m.changes[1:]
	}
	from, ok := m.at[addr]
	if !ok || len(from) < len(b) {
		return unix.EFAULT
	}
	copy(b, from)
	return nil
}

// head returns a header.
func head(version, size uint32, published, payload uint64) []byte {
	b := binary.NativeEndian.AppendUint32([]byte(signature), version)
	b = binary.NativeEndian.AppendUint32(b, size)
	b = binary.NativeEndian.AppendUint64(b, published)
	return binary.NativeEndian.AppendUint64(b, payload)
}

// TestRead reads contexts that are valid, that are invalid, and that change during the read.
func TestRead(t *testing.T) {
	const at, first, second = 0x1000, 0x2000, 0x3000
	old, fresh := encoded(t, text("service.name", "old")), encoded(t, text("service.name", "new"))
	busy := func(m map[uint64][]byte) { m[at] = head(version, 1, 0, 0) }
	done := func(m map[uint64][]byte) { m[at] = head(version, uint32(len(fresh)), 2, second) }
	for name, c := range map[string]struct {
		head    []byte
		changes []func(map[uint64][]byte)
		known   uint64
		want    string // the name of the service
		err     error
	}{
		"valid":              {head: head(version, uint32(len(old)), 1, first), want: "old"},
		"already known":      {head: head(version, uint32(len(old)), 1, first), known: 1},
		"another version":    {head: head(1, uint32(len(old)), 1, first), err: errNoContext},
		"another signature":  {head: make([]byte, headerSize), err: errNoContext},
		"no payload":         {head: head(version, 10, 1, 0), err: unix.EFAULT},
		"being written":      {head: head(version, 10, 0, 0), err: errWriting},
		"written meanwhile":  {head: head(version, uint32(len(old)), 1, first), changes: []func(map[uint64][]byte){nil, nil, busy, done}, want: "new"},
		"replaced meanwhile": {head: head(version, uint32(len(old)), 1, first), changes: []func(map[uint64][]byte){nil, done}, want: "new"},
		"freed meanwhile":    {head: head(version, uint32(len(old)), 1, 0x9999), changes: []func(map[uint64][]byte){nil, nil, done}, want: "new"},
	} {
		m := &memory{at: map[uint64][]byte{at: c.head, first: old, second: fresh}, changes: c.changes}
		_, is, err := read(m, at, c.known)
		got := is.attributes
		if !errors.Is(err, c.err) || len(got) > 0 != (c.want != "") || c.want != "" && got[0].Value != c.want {
			t.Errorf("%s: got %v, error %v; want %q, error %v", name, got, err, c.want, c.err)
		}
	}
	if _, got, err := read(&memory{at: map[uint64][]byte{at: head(version, maxPayload+1, 1, first), first: make([]byte, maxPayload+1)}}, at, 0); err == nil {
		t.Errorf("a large payload: got %v", got)
	}
}

// TestTracker follows the context of a running process: this one.
func TestTracker(t *testing.T) {
	tracker, pid := NewTracker(), os.Getpid()
	tracker.budget = nil // a busy machine may answer late
	of := func() []Attribute { return tracker.Attributes([]int{pid, 1 << 30})[pid] }
	if got := of(); len(got) > 0 {
		t.Fatalf("got %v before anything was published", got)
	}
	page := publish(t)
	pin := encoded(t, text("service.name", "shop"))
	copy(page[headerSize:], pin)
	address := uint64(uintptr(unsafe.Pointer(&page[0])))
	copy(page, head(version, uint32(len(pin)), 1, address+headerSize))
	if got := of(); len(got) > 0 {
		t.Errorf("got %v before the next search", got)
	}
	tracker.known[pid].next = time.Now()
	if got, want := of(), []Attribute{{"service.name", "shop"}}; !cmp.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	binary.NativeEndian.PutUint64(page[16:], 0)
	if got := of(); len(got) != 1 {
		t.Errorf("got %v while it is written, want the old ones", got)
	}
	pin = encoded(t, text("service.name", "store"), text("service.version", strings.Repeat("9", 100)))
	copy(page[headerSize:], pin)
	copy(page, head(version, uint32(len(pin)), 2, address+headerSize))
	if got := of(); len(got) != 2 || got[0].Value != "store" {
		t.Errorf("got %v after an update", got)
	}
	pin = keyed(t, "http.route")
	copy(page[headerSize:], pin)
	copy(page, head(version, uint32(len(pin)), 3, address+headerSize))
	keys := NewKeys()
	keys.budget = nil
	if got := keys.Of(pid, 1, 0); !slices.Equal(got, []string{"http.route"}) {
		t.Errorf("got keys %v of attributes of threads", got)
	}
	clear(page)
	if got := of(); len(got) > 0 {
		t.Errorf("got %v after the context was withdrawn", got)
	}
	if tracker.Attributes(nil); len(tracker.known) > 0 {
		t.Error("processes without samples were not forgotten")
	}
}

// publish maps a page as a process that publishes a context does.
func publish(t *testing.T) []byte {
	t.Helper()
	fd, err := unix.MemfdCreate(signature, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	page, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(page) })
	return page
}
