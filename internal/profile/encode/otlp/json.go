package otlp

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"

	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fulgur/internal/profile"
)

// WriteJSON is like [Write], in OTLP's mapping to JSON, which is the mapping of protocol buffers
// except that IDs are hexadecimal and enumerations are numbers; see
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding.
func WriteJSON(w io.Writer, p *profile.Profile, o Options) error {
	if hasTooMany(p) {
		return errTooMany
	}
	message, _ := Message(p, o)
	text, err := appendObject(nil, message, new(pb.ProfilesData).ProtoReflect().Descriptor())
	if err == nil {
		_, err = w.Write(append(text, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write OTLP profile: %w", err)
	}
	return nil
}

// errWire is the error of a message that the encoder did not write.
var errWire = errors.New("malformed message")

// appendObject appends an encoded message as JSON.
func appendObject(b, message []byte, d protoreflect.MessageDescriptor) (_ []byte, err error) {
	var order []protowire.Number
	values := map[protowire.Number][][]byte{}
	for len(message) > 0 {
		number, kind, size := protowire.ConsumeTag(message)
		if size < 0 {
			return b, errWire
		}
		message = message[size:]
		if size = protowire.ConsumeFieldValue(number, kind, message); size < 0 {
			return b, errWire
		}
		value := message[:size]
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if values[number] == nil {
			order = append(order, number)
		}
		values[number] = append(values[number], value)
		message = message[size:]
	}
	b = append(b, '{')
	for i, number := range order {
		f := d.Fields().ByNumber(number)
		if f == nil {
			return b, errWire
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(strconv.AppendQuote(b, f.JSONName()), ':')
		if b, err = appendField(b, values[number], f); err != nil {
			return b, err
		}
	}
	return append(b, '}'), nil
}

// appendField appends the values of a field.
func appendField(b []byte, values [][]byte, f protoreflect.FieldDescriptor) (_ []byte, err error) {
	if !f.IsList() {
		return appendValue(b, values[len(values)-1], f)
	}
	if f.IsPacked() {
		values = unpack(slices.Concat(values...), f)
	}
	b = append(b, '[')
	for i, value := range values {
		if i > 0 {
			b = append(b, ',')
		}
		if b, err = appendValue(b, value, f); err != nil {
			return b, err
		}
	}
	return append(b, ']'), nil
}

// unpack splits the values of a packed field.
func unpack(packed []byte, f protoreflect.FieldDescriptor) (values [][]byte) {
	kind := protowire.VarintType
	if f.Kind() == protoreflect.Fixed64Kind || f.Kind() == protoreflect.DoubleKind {
		kind = protowire.Fixed64Type
	}
	for len(packed) > 0 {
		size := protowire.ConsumeFieldValue(1, kind, packed)
		if size < 0 {
			size = len(packed) // appendValue fails
		}
		values = append(values, packed[:size])
		packed = packed[size:]
	}
	return values
}

// appendValue appends a value. JSON has no 64-bit integers: they are texts.
func appendValue(b, value []byte, f protoreflect.FieldDescriptor) ([]byte, error) {
	n, size := protowire.ConsumeVarint(value)
	fixed, fixedSize := protowire.ConsumeFixed64(value)
	switch kind := f.Kind(); kind {
	case protoreflect.MessageKind:
		return appendObject(b, value, f.Message())
	case protoreflect.StringKind:
		text, err := json.Marshal(string(value))
		return append(b, text...), err
	case protoreflect.BytesKind:
		text := base64.StdEncoding.EncodeToString(value)
		switch f.Name() {
		case "profile_id", "trace_id", "span_id":
			text = hex.EncodeToString(value)
		}
		return strconv.AppendQuote(b, text), nil
	case protoreflect.Fixed64Kind, protoreflect.DoubleKind:
		if fixedSize < 0 {
			return b, errWire
		}
		if kind == protoreflect.Fixed64Kind {
			return strconv.AppendQuote(b, strconv.FormatUint(fixed, 10)), nil
		}
		text, err := json.Marshal(math.Float64frombits(fixed))
		return append(b, text...), err
	}
	if size < 0 {
		return b, errWire
	}
	switch f.Kind() {
	case protoreflect.Int64Kind:
		return strconv.AppendQuote(b, strconv.FormatInt(int64(n), 10)), nil
	case protoreflect.Uint64Kind:
		return strconv.AppendQuote(b, strconv.FormatUint(n, 10)), nil
	case protoreflect.BoolKind:
		return strconv.AppendBool(b, n != 0), nil
	case protoreflect.Uint32Kind:
		return strconv.AppendUint(b, uint64(uint32(n)), 10), nil
	case protoreflect.Int32Kind, protoreflect.EnumKind:
		return strconv.AppendInt(b, int64(int32(n)), 10), nil
	}
	return b, errWire
}
