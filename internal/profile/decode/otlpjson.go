package decode

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strconv"

	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fulgur/internal/profile"
)

// readOTLPJSON reads OpenTelemetry's ProfilesData in OTLP's mapping to JSON, or several of them in a
// row: the Collector's file exporter writes one a line. It turns the text into protocol buffers value
// by value, which take less space.
func readOTLPJSON(ctx context.Context, r *bufio.Reader) (*profile.Profile, error) {
	in := otlpTranscoder{jsonReader: jsonReader{r: r}, ctx: ctx}
	c := newOTLPReader(ctx)
	if err := in.each(c.message); err != nil {
		return nil, err
	}
	return c.whole()
}

// each calls read with each of the objects up to the end of the text.
func (c *otlpTranscoder) each(read func(data []byte) error) error {
	for {
		if ends, err := c.ends(); ends || err != nil {
			return err
		}
		c.out = c.out[:0]
		if err := c.message(new(pb.ProfilesData).ProtoReflect().Descriptor()); err != nil {
			return err
		}
		if err := read(c.out); err != nil {
			return err
		}
	}
}

// otlpTranscoder reads JSON as protocol buffers.
type otlpTranscoder struct {
	jsonReader
	ctx   context.Context
	out   []byte
	depth int
}

// maxOTLPDepth limits the depth of messages. Only attributes nest deeper than ten.
const maxOTLPDepth = 64

// message reads an object as a message, without its length.
func (c *otlpTranscoder) message(d protoreflect.MessageDescriptor) error {
	if c.depth++; c.depth > maxOTLPDepth {
		return c.errorf("values nested more than %d deep", maxOTLPDepth)
	}
	defer func() { c.depth-- }()
	return c.object(func(key string) error {
		f := d.Fields().ByJSONName(key)
		switch {
		case c.ctx.Err() != nil:
			return c.ctx.Err()
		case len(c.out) > profile.MaxHeld:
			return fmt.Errorf("more than %d MiB unpacked", profile.MaxHeld>>20)
		case f == nil, f.Kind() == protoreflect.BytesKind && f.Name() != "trace_id" && f.Name() != "span_id": // newer, or of no use
			return c.skip()
		case f.IsPacked():
			return c.framed(f.Number(), func() error { return c.array(func() error { return c.scalar(f) }) })
		case f.IsList():
			return c.array(func() error { return c.value(f) })
		}
		return c.value(f)
	})
}

// framed appends a tag, and what write appends with its length before it.
func (c *otlpTranscoder) framed(n protowire.Number, write func() error) error {
	c.out = protowire.AppendTag(c.out, n, protowire.BytesType)
	begin := len(c.out)
	err := write()
	c.out = slices.Insert(c.out, begin, protowire.AppendVarint(nil, uint64(len(c.out)-begin))...)
	return err
}

// value reads a value with its tag.
func (c *otlpTranscoder) value(f protoreflect.FieldDescriptor) error {
	switch f.Kind() {
	case protoreflect.MessageKind:
		return c.framed(f.Number(), func() error { return c.message(f.Message()) })
	case protoreflect.StringKind:
		text, err := c.string()
		c.out = protowire.AppendString(protowire.AppendTag(c.out, f.Number(), protowire.BytesType), text)
		return err
	case protoreflect.BytesKind:
		text, err := c.string()
		if err != nil {
			return err
		}
		id, err := hex.DecodeString(text)
		if err != nil {
			return c.errorf("%s: %v", f.Name(), err)
		}
		c.out = protowire.AppendBytes(protowire.AppendTag(c.out, f.Number(), protowire.BytesType), id)
		return nil
	case protoreflect.Fixed64Kind, protoreflect.DoubleKind:
		c.out = protowire.AppendTag(c.out, f.Number(), protowire.Fixed64Type)
	default:
		c.out = protowire.AppendTag(c.out, f.Number(), protowire.VarintType)
	}
	return c.scalar(f)
}

// scalar reads a number or a truth value, without a tag. Integers may be texts.
func (c *otlpTranscoder) scalar(f protoreflect.FieldDescriptor) error {
	if len(c.out) > profile.MaxHeld {
		return fmt.Errorf("more than %d MiB unpacked", profile.MaxHeld>>20)
	}
	if f.Kind() == protoreflect.BoolKind {
		return c.truth()
	}
	text, number, err := c.textOrNumber()
	if err != nil {
		return err
	}
	if f.Kind() == protoreflect.DoubleKind {
		if text != "" {
			if number, err = strconv.ParseFloat(text, 64); err != nil {
				return c.errorf("%.40q is not a number", text)
			}
		}
		c.out = binary.LittleEndian.AppendUint64(c.out, math.Float64bits(number))
		return nil
	}
	n, err := integer(text, number)
	if err != nil {
		return c.errorf("%.40q is not an integer", text)
	}
	if f.Kind() == protoreflect.Fixed64Kind {
		c.out = binary.LittleEndian.AppendUint64(c.out, n)
		return nil
	}
	c.out = protowire.AppendVarint(c.out, n)
	return nil
}

// integer returns a signed or unsigned integer as protocol buffers keep it.
func integer(text string, number float64) (uint64, error) {
	switch {
	case text == "" && number != math.Trunc(number), text == "" && math.Abs(number) > 1<<63:
		return 0, strconv.ErrRange
	case text == "" && number < 0:
		return uint64(int64(number)), nil
	case text == "" && number < 1<<63:
		return uint64(number), nil
	case text == "":
		return 1 << 63, nil
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		return n, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return uint64(n), err
}

// truth reads true, false or null.
func (c *otlpTranscoder) truth() error {
	first, err := c.token()
	if err != nil {
		return err
	}
	c.out = protowire.AppendVarint(c.out, protowire.EncodeBool(first == 't'))
	for _, word := range []string{"true", "false", "null"} {
		if first == word[0] {
			return c.rest(word[1:])
		}
	}
	return c.errorf("%q where true or false was expected", first)
}
