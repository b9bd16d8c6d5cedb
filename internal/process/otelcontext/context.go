// Package otelcontext reads the attributes that processes publish about themselves for
// profilers: OpenTelemetry's process context, see
// https://github.com/open-telemetry/opentelemetry-specification/blob/main/oteps/profiles/4719-process-ctx.md.
//
// All of it is untrusted: any process may publish anything.
package otelcontext

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Limits of a context. Data beyond a limit is not read.
const (
	maxPayload    = 64 << 10 // in bytes
	maxAttributes = 128
	maxKeys       = 256 // a key's index is a byte
)

// content is what a process publishes.
type content struct {
	attributes []Attribute
	// keys are the keys of attributes of threads: threadlocal.attribute_key_map of OTEP 4947.
	keys []string
}

// Attribute is an attribute of a process.
type Attribute struct {
	Key string
	// Value is a string, an int64 or a bool.
	Value any
}

// The header of a context: its signature, version, size of the payload, time of publication
// and address of the payload.
const (
	headerSize = 32
	signature  = "OTEL_CTX"
	version    = 2
)

// header is a valid header.
type header struct {
	size      uint32 // of the payload, in bytes
	published uint64 // in ns since boot; 0 while the process writes
	payload   uint64 // its address
}

// errNoContext is returned for memory that does not hold a process context.
var errNoContext = errors.New("not a process context")

// parseHeader parses a header in the byte order of this machine.
func parseHeader(b []byte) (h header, err error) {
	if len(b) < headerSize || !bytes.Equal(b[:8], []byte(signature)) || binary.NativeEndian.Uint32(b[8:]) != version {
		return h, errNoContext
	}
	return header{binary.NativeEndian.Uint32(b[12:]), binary.NativeEndian.Uint64(b[16:]), binary.NativeEndian.Uint64(b[24:])}, nil
}

// reader reads memory of a process.
type reader interface {
	Read(b []byte, addr uint64) error
}

// attempts is how many times to read a context that changes during the read.
const attempts = 3

// errWriting is returned while the process is writing its context.
var errWriting = errors.New("the process is writing its context")

// read reads the context at an address. It returns no content if the context is still the one
// published at time known. Errors other than errWriting mean that there is no valid context.
func read(from reader, addr, known uint64) (published uint64, is content, err error) {
	head := make([]byte, headerSize)
	for range attempts {
		if err := from.Read(head, addr); err != nil {
			return 0, is, err
		}
		h, err := parseHeader(head)
		switch {
		case err != nil:
			return 0, is, err
		case h.published == 0:
			continue
		case h.published == known:
			return known, is, nil
		case h.size > maxPayload:
			return 0, is, fmt.Errorf("process context has %d bytes, more than %d", h.size, maxPayload)
		}
		payload, again := make([]byte, h.size), make([]byte, headerSize)
		readErr := from.Read(payload, h.payload)
		if err := from.Read(again, addr); err != nil {
			return 0, is, err
		}
		if !bytes.Equal(head, again) {
			continue // it changed during the read
		}
		if readErr != nil {
			return 0, is, readErr
		}
		is, err = parseContext(payload)
		return h.published, is, err
	}
	return 0, is, errWriting
}

// Fields of the message ProcessContext, and of Resource, KeyValue and AnyValue of
// opentelemetry-proto.
const (
	contextResource    protowire.Number = 1
	contextAttributes  protowire.Number = 2
	resourceAttributes protowire.Number = 1
	keyValueKey        protowire.Number = 1
	keyValueValue      protowire.Number = 2
	anyString          protowire.Number = 1
	anyBool            protowire.Number = 2
	anyInt             protowire.Number = 3
	anyArray           protowire.Number = 5
	arrayValues        protowire.Number = 1
)

// keyMap is the key of the extra attribute that holds the keys of attributes of threads.
const keyMap = "threadlocal.attribute_key_map"

// parseContext parses a message ProcessContext. It returns at most [maxAttributes] attributes of
// the resource. It leaves out reserved attributes, and values other than strings, integers and
// booleans.
func parseContext(b []byte) (is content, err error) {
	err = fields(b, func(f protowire.Number, value []byte, _ uint64) error {
		switch {
		case f == contextResource && value != nil:
			return is.parseResource(value)
		case f == contextAttributes && value != nil:
			return is.parseExtra(value)
		}
		return nil
	})
	return is, err
}

// parseResource adds the attributes of a message Resource.
func (c *content) parseResource(b []byte) error {
	return fields(b, func(f protowire.Number, value []byte, _ uint64) error {
		if f != resourceAttributes || value == nil || len(c.attributes) == maxAttributes {
			return nil
		}
		a, err := parseKeyValue(value)
		if err == nil && a.Value != nil && allowed(a.Key) {
			c.attributes = append(c.attributes, a)
		}
		return err
	})
}

// parseExtra parses the message KeyValue of an extra attribute, which is not part of the resource.
func (c *content) parseExtra(b []byte) error {
	var key string
	var keys []string
	err := fields(b, func(f protowire.Number, value []byte, _ uint64) error {
		switch {
		case f == keyValueKey && value != nil:
			key = string(value)
		case f == keyValueValue && value != nil:
			return fields(value, func(f protowire.Number, array []byte, _ uint64) (err error) {
				if f == anyArray && array != nil {
					keys, err = parseTexts(array)
				}
				return err
			})
		}
		return nil
	})
	if err == nil && key == keyMap {
		c.keys = keys
	}
	return err
}

// parseTexts parses a message ArrayValue, up to [maxKeys] values. Values that are not strings are
// empty.
func parseTexts(b []byte) (texts []string, err error) {
	err = fields(b, func(f protowire.Number, value []byte, _ uint64) error {
		if f != arrayValues || value == nil || len(texts) == maxKeys {
			return nil
		}
		texts = append(texts, "")
		return fields(value, func(f protowire.Number, text []byte, _ uint64) error {
			if f == anyString && text != nil && utf8.Valid(text) {
				texts[len(texts)-1] = string(text)
			}
			return nil
		})
	})
	return texts, err
}

// parseKeyValue parses a message KeyValue. The value is nil if its type is not supported.
func parseKeyValue(b []byte) (a Attribute, err error) {
	err = fields(b, func(f protowire.Number, value []byte, _ uint64) error {
		switch {
		case f == keyValueKey && value != nil:
			a.Key = string(value)
		case f == keyValueValue && value != nil:
			return fields(value, func(f protowire.Number, value []byte, n uint64) error {
				switch {
				case f == anyString && value != nil && utf8.Valid(value):
					a.Value = string(value)
				case f == anyBool && value == nil:
					a.Value = n != 0
				case f == anyInt && value == nil:
					a.Value = int64(n)
				}
				return nil
			})
		}
		return nil
	})
	return a, err
}

// fields calls f for each field of a message, with its bytes, or with nil and a number.
func fields(b []byte, f func(field protowire.Number, value []byte, n uint64) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		var value []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			value, n = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, n = protowire.ConsumeVarint(b)
		default:
			n = protowire.ConsumeFieldValue(field, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind == protowire.BytesType || kind == protowire.VarintType {
			if err := f(field, value, number); err != nil {
				return err
			}
		}
	}
	return nil
}

// reserved lists the prefixes of attributes that a process may not set: fulgur determines
// them itself, or they describe the profiler or the machine.
var reserved = []string{"process.", "container.", "k8s.", "host.", "os.", "fulgur.", "profile.", "thread."}

// allowed reports whether a process may set an attribute.
func allowed(key string) bool {
	if key == "" || !utf8.ValidString(key) {
		return false
	}
	for _, prefix := range reserved {
		if strings.HasPrefix(key, prefix) {
			return false
		}
	}
	return true
}
