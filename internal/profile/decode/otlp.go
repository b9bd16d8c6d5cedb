package decode

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	common "go.opentelemetry.io/proto/slim/otlp/common/v1"
	pb "go.opentelemetry.io/proto/slim/otlp/profiles/v1development"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"fulgur/internal/files/unpack"
	"fulgur/internal/profile"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/profile/runinfo"
	"fulgur/internal/unwind/stackend"
)

// errOTLP is the error of indexes outside of their table.
var errOTLP = errors.New("an index is outside of its table")

// isOTLP reports whether binary data begins with OpenTelemetry's ProfilesData rather than
// with pprof's profile. Its field 1 is a resource, whose fields are messages; pprof's is a
// type of value, whose fields are numbers. Its field 2 is the dictionary, whose first field
// is an empty row; pprof's is a sample, without empty fields.
func isOTLP(head []byte) bool {
	for len(head) > 1 {
		key := head[0]
		size, n := uvarint(head[1:])
		if key&7 != 2 || n == 0 {
			return false
		}
		head = head[1+n:]
		switch {
		case key>>3 == otelprofiles.DataResource && size == 0:
			continue
		case key>>3 == otelprofiles.DataResource:
			return len(head) > 0 && head[0]&7 == 2 && head[0]>>3 <= otelprofiles.ResourceProfilesSchema
		default:
			return key>>3 == otelprofiles.DataDictionary && size > 1 && len(head) > 1 && head[0]&7 == 2 && head[1] == 0
		}
	}
	return false
}

// otlpReader converts a profile from OpenTelemetry's model.
type otlpReader struct {
	*collector
	ctx context.Context
	otlpTables
	run    string         // the run's description
	meta   profile.Meta   // of the message being read
	losses profile.Losses // likewise
	left   int            // number of frames that may still be read
	read   int            // size of the messages that were read, in bytes
	row    pb.Sample      // the sample that is being read, whose lists are used again
	path   pb.Stack       // the stack that is being read, likewise
	err    error

	// Of the messages so far.
	messages  int
	all       profile.Meta
	lost      profile.Losses
	described bool // a message has a description of fulgur's run
}

// otlpTables are the tables of a message, and what became of their rows.
type otlpTables struct {
	strings                                 []string
	mappingRows, locationRows, functionRows [][]byte
	attributeRows, stackRows, linkRows      [][]byte
	mappings                                map[int32]otlpMapped
	attributes                              map[int32]attribute
	values                                  map[otlpValueType]int
	locations                               map[int32][]profile.FrameID
	stacks                                  map[int32]profile.StackID
	functions                               map[int32]profile.FunctionID
	links                                   map[int32][]profile.Label
}

// readOTLP reads OpenTelemetry's ProfilesData, or several of them in a row. Profiles written by
// fulgur are restored, except for data that the format cannot represent.
func readOTLP(ctx context.Context, r *bufio.Reader) (*profile.Profile, error) {
	c := newOTLPReader(ctx)
	if head, _ := r.Peek(sniffed); !isOTLP(head) && isOTLPMessages(head) {
		return c.readMessages(r)
	}
	data, err := readAll(ctx, r)
	if err != nil {
		return nil, err
	}
	parts, err := splitOTLP(data)
	if err != nil {
		return nil, err
	}
	for _, part := range parts {
		if err := c.message(part); err != nil {
			return nil, err
		}
	}
	return c.whole()
}

// splitOTLP splits ProfilesData in a row, of which each has a dictionary of its own, as its last
// field or its first one.
func splitOTLP(data []byte) (parts [][]byte, err error) {
	begin, read, dictionaries := 0, 0, 0
	dictionaryFirst := len(data) > 0 && data[0]>>3 == otelprofiles.DataDictionary
	malformed := scanFields(data, func(f protoField) bool {
		at := read
		read = len(data) - f.rest
		if f.number != otelprofiles.DataDictionary {
			return true
		}
		if dictionaries++; dictionaryFirst && dictionaries > 1 {
			parts, begin = append(parts, data[begin:at]), at
		} else if !dictionaryFirst {
			parts, begin = append(parts, data[begin:read]), read
		}
		return true
	})
	if malformed {
		return nil, fmt.Errorf("at byte %d: truncated or damaged", read)
	}
	if begin < len(data) || len(parts) == 0 {
		parts = append(parts, data[begin:])
	}
	return parts, nil
}

// otlpLength is the size of the length before a message, see readMessages.
const otlpLength = 4

// isOTLPMessages reports whether data begins like the Collector's files of messages.
func isOTLPMessages(head []byte) bool {
	if len(head) <= otlpLength {
		return false
	}
	n, content := binary.BigEndian.Uint32(head), head[otlpLength:]
	if n == 0 || n > profile.MaxHeld {
		return false
	}
	content = content[:min(len(content), int(n))]
	return unpack.Of(content) != nil || isOTLP(content) || bytes.HasPrefix(content, []byte(`{"resourceProfiles"`))
}

// readMessages reads what the Collector's file exporter writes as "proto", or compressed: messages,
// each after its length in 4 bytes, big-endian.
func (c *otlpReader) readMessages(r *bufio.Reader) (*profile.Profile, error) {
	for {
		var length [otlpLength]byte
		if _, err := io.ReadFull(r, length[:]); errors.Is(err, io.EOF) {
			return c.whole()
		} else if err != nil {
			return nil, fmt.Errorf("after %d messages: %w", c.messages, unpack.Truncated(err))
		}
		n := int64(binary.BigEndian.Uint32(length[:]))
		if n > profile.MaxHeld {
			return nil, fmt.Errorf("message %d has %d bytes, the maximum is %d", c.messages+1, n, profile.MaxHeld)
		}
		if err := c.oneMessage(&io.LimitedReader{R: r, N: n}, n); err != nil {
			return nil, fmt.Errorf("message %d: %w", c.messages+1, err)
		}
	}
}

// oneMessage reads a message of n bytes, which may be compressed and may be JSON.
func (c *otlpReader) oneMessage(r *io.LimitedReader, n int64) error {
	in := bufio.NewReaderSize(r, sniffed)
	if method := unpack.Peek(in); method != nil {
		z, err := method.Reader(in)
		if err != nil {
			return err
		}
		in = bufio.NewReaderSize(z, sniffed)
	}
	begin, err := in.Peek(1)
	if err != nil {
		return fmt.Errorf("of %d bytes: %w", n, unpack.Truncated(err))
	}
	if begin[0] == '{' {
		json := otlpTranscoder{jsonReader: jsonReader{r: in}, ctx: c.ctx}
		return json.each(c.message)
	}
	data, err := readAll(c.ctx, in)
	if err != nil {
		return err
	}
	if r.N > 0 {
		return unpack.ErrTruncated
	}
	parts, err := splitOTLP(data)
	if err == nil && len(parts) != 1 {
		err = errOTLP
	}
	if err != nil {
		return err
	}
	return c.message(data)
}

func newOTLPReader(ctx context.Context) *otlpReader {
	return &otlpReader{collector: newCollector(), ctx: ctx, left: profile.MaxFrames, otlpTables: newOTLPTables()}
}

func newOTLPTables() otlpTables {
	return otlpTables{
		mappings: map[int32]otlpMapped{}, attributes: map[int32]attribute{}, values: map[otlpValueType]int{},
		locations: map[int32][]profile.FrameID{}, stacks: map[int32]profile.StackID{},
		functions: map[int32]profile.FunctionID{}, links: map[int32][]profile.Label{},
	}
}

// message adds a message ProfilesData.
func (c *otlpReader) message(data []byte) error {
	c.messages++
	c.meta, c.losses, c.run = profile.Meta{}, profile.Losses{}, ""
	c.otlpTables = newOTLPTables()
	for part := range c.parts(data, otelprofiles.DataDictionary) {
		c.dictionary(part)
	}
	for part := range c.parts(data, otelprofiles.DataResource) {
		c.resource(part)
	}
	if c.err != nil {
		return c.err
	}
	if m, _, err := runinfo.Parse(c.run); err == nil { // otherwise not fulgur's
		c.meta, c.described = m, true
	}
	if c.messages == 1 {
		c.all = c.meta
	} else {
		c.all = joined(c.all, c.meta)
	}
	c.lost = c.lost.Plus(c.losses)
	c.otlpTables = otlpTables{} // they may be large
	return nil
}

// joined returns the metadata of two parts of a run: a's, with the time from the first start to the
// last end.
func joined(a, b profile.Meta) profile.Meta {
	if a.Start.IsZero() || b.Start.IsZero() {
		a.Duration += b.Duration
		return a
	}
	begin, end := a.Start, a.Start.Add(a.Duration)
	if b.Start.Before(begin) {
		begin = b.Start
	}
	if last := b.Start.Add(b.Duration); last.After(end) {
		end = last
	}
	a.Start, a.Duration = begin, end.Sub(begin)
	return a
}

// whole returns the profile of all messages.
func (c *otlpReader) whole() (*profile.Profile, error) {
	p, err := c.profile(c.all)
	if err == nil {
		p.Meta.Converted = !c.described || c.all.Converted
		p.Losses = p.Losses.Plus(c.lost)
	}
	return p, err
}

// rowSize is the memory of a row of the dictionary, in bytes, including growing slices.
const rowSize = 64

// dictionary finds the rows of the tables.
func (c *otlpReader) dictionary(data []byte) {
	size := 0
	c.scan(data, func(f protoField) {
		if !f.packed {
			return // no row
		}
		if size += rowSize; size > profile.MaxTables {
			c.fail(fmt.Errorf("more than %d rows in the dictionary", profile.MaxTables/rowSize))
		}
		switch f.number {
		case otelprofiles.DictionaryMapping:
			c.mappingRows = append(c.mappingRows, f.data)
		case otelprofiles.DictionaryLocation:
			c.locationRows = append(c.locationRows, f.data)
		case otelprofiles.DictionaryFunction:
			c.functionRows = append(c.functionRows, f.data)
		case otelprofiles.DictionaryString:
			c.strings = append(c.strings, string(f.data))
		case otelprofiles.DictionaryAttribute:
			c.attributeRows = append(c.attributeRows, f.data)
		case otelprofiles.DictionaryStack:
			c.stackRows = append(c.stackRows, f.data)
		case otelprofiles.DictionaryLink:
			c.linkRows = append(c.linkRows, f.data)
		}
	})
}

// scan calls yield with the fields of a message, up to the first error.
func (c *otlpReader) scan(data []byte, yield func(protoField)) {
	if scanFields(data, func(f protoField) bool {
		yield(f)
		return c.goOn(0)
	}) {
		c.fail(errMalformed)
	}
}

// errMalformed is the error of a message that other readers refuse, too. Its length may be that of other
// data.
var errMalformed = errors.New("damaged: a message has a field that is malformed")

// parts returns the messages in a field of a message, which may be too many to have them all in
// memory as objects.
func (c *otlpReader) parts(data []byte, number uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if scanFields(data, func(f protoField) bool {
			return c.goOn(0) && (f.number != number || !f.packed || yield(f.data))
		}) {
			c.fail(errMalformed)
		}
	}
}

// goOn reports whether to go on after n bytes.
func (c *otlpReader) goOn(n int) bool {
	const often = 1 << 16 // at least for each message that is not small
	if after := c.read + n + 1; after/often > c.read/often {
		c.fail(c.ctx.Err())
	}
	if c.err == nil {
		c.read += n + 1
	}
	return c.err == nil
}

const (
	// maxOTLPObjects is the maximum memory of a message's objects, in bytes. Only lists of numbers and
	// texts are long.
	maxOTLPObjects = 256 << 20
	// smallOTLP is the size of messages, in bytes, that take less memory, whatever they contain.
	smallOTLP = 1 << 16
)

// decode reads a message into m, and adds its lists to those of m.
func (c *otlpReader) decode(data []byte, m proto.Message) {
	if !c.goOn(len(data)) {
		return
	}
	if of := m.ProtoReflect().Descriptor(); len(data) > smallOTLP && otlpObjects(data, of, 0) > maxOTLPObjects {
		c.fail(fmt.Errorf("a message %s takes more than %d MiB in memory, or nests deeper than %d", of.Name(), maxOTLPObjects>>20, maxOTLPDepth))
		return
	}
	c.fail(proto.UnmarshalOptions{Merge: true, DiscardUnknown: true, RecursionLimit: maxOTLPDepth}.Unmarshal(data, m))
}

// otlpObjects returns the memory that a message's objects take at most, in bytes, including what
// growing lists leave behind. Deeper than maxOTLPDepth, it is too much.
func otlpObjects(data []byte, d protoreflect.MessageDescriptor, depth int) (size int64) {
	if depth > maxOTLPDepth {
		return maxOTLPObjects + 1
	}
	const object, number = 256, 40
	scanFields(data, func(f protoField) bool {
		switch of := d.Fields().ByNumber(protowire.Number(f.number)); {
		case of == nil:
		case of.Message() != nil:
			size += object + otlpObjects(f.data, of.Message(), depth+1)
		case of.IsList() && f.packed:
			size += 8 * f.numbers()
		default:
			size += number + int64(len(f.data))
		}
		return size <= maxOTLPObjects
	})
	return size
}

// otlpMessage returns a message, the empty one if it cannot be read.
func otlpMessage[T any, M interface {
	*T
	proto.Message
}](c *otlpReader, data []byte) M {
	m := M(new(T))
	c.decode(data, m)
	return m
}

// maxReferences is the maximum number of attributes to which a list refers: all labels that a
// sample may have, and a few others.
const maxReferences = 4 * maxLabels

// referred returns the attributes to which a list refers.
func (c *otlpReader) referred(list []int32) (all []attribute) {
	if len(list) > maxReferences {
		c.fail(fmt.Errorf("a list of more than %d attributes", maxReferences))
		return nil
	}
	for _, i := range list {
		all = append(all, c.attributeAt(i))
	}
	return all
}

// fail keeps the first error.
func (c *otlpReader) fail(err error) { c.err = cmp.Or(c.err, err) }

// row returns a row of a table.
func row[T any](c *otlpReader, table []T, i int32) (r T) {
	if i < 0 || int(i) >= len(table) {
		if i != 0 { // 0 is none, even without a table
			c.fail(errOTLP)
		}
		return r
	}
	return table[i]
}

// attribute is an attribute's value: a text or a number.
type attribute struct {
	key    string
	text   string
	number int64
	// numeric is set for numbers, which may have a unit. list has the texts and numbers of a list.
	numeric bool
	unit    string
	list    []attribute
}

// labels returns the labels, without their keys, that an attribute of a sample stands for.
func (a attribute) labels() (list []profile.Label) {
	for _, part := range append(a.list, a) {
		switch {
		case part.numeric:
			list = append(list, profile.NumberLabel("", part.number, a.unit))
		case part.text != "":
			list = append(list, profile.Label{Value: part.text})
		}
	}
	return list
}

// of adds a value. A list of values may be in it, but no deeper one.
func (a *attribute) of(c *otlpReader, value *common.AnyValue) {
	switch v := value.GetValue().(type) {
	case *common.AnyValue_StringValue:
		a.text = v.StringValue
	case *common.AnyValue_BoolValue:
		a.text = strconv.FormatBool(v.BoolValue)
	case *common.AnyValue_IntValue:
		a.number, a.numeric = v.IntValue, true
	case *common.AnyValue_ArrayValue:
		for _, value := range v.ArrayValue.GetValues() {
			if _, isList := value.GetValue().(*common.AnyValue_ArrayValue); !isList && len(a.list) < maxLabels {
				var part attribute
				part.of(c, value)
				a.list = append(a.list, part)
			}
		}
	case *common.AnyValue_StringValueStrindex:
		a.text = row(c, c.strings, v.StringValueStrindex)
	}
	a.text = a.text[:min(len(a.text), profile.MaxName)]
}

// keyValue reads an attribute of a resource or scope.
func (c *otlpReader) keyValue(data []byte) (a attribute) {
	in := otlpMessage[common.KeyValue](c, data)
	a.key = cmp.Or(in.Key, row(c, c.strings, in.KeyStrindex))
	a.of(c, in.Value)
	return a
}

// attributeAt returns an attribute of the dictionary.
func (c *otlpReader) attributeAt(i int32) attribute {
	a, ok := c.attributes[i]
	if !ok {
		in := otlpMessage[pb.KeyValueAndUnit](c, row(c, c.attributeRows, i))
		a.key = row(c, c.strings, in.KeyStrindex)
		a.key = a.key[:min(len(a.key), profile.MaxName+1)] // recognized as too long
		a.of(c, in.Value)
		a.unit = row(c, c.strings, in.UnitStrindex)
		a.unit = a.unit[:min(len(a.unit), profile.MaxName)]
		c.attributes[i] = a
	}
	return a
}

// resource reads the profiles of a resource.
func (c *otlpReader) resource(data []byte) {
	var task profile.Task
	var owner profile.Owner
	for part := range c.parts(data, otelprofiles.ResourceProfilesResource) {
		for data := range c.parts(part, otelprofiles.ResourceAttributes) {
			switch a := c.keyValue(data); a.key {
			case otelprofiles.PID:
				task.PID = id(a.number)
			case otelprofiles.HostName:
				c.meta.Host = a.text
			case otelprofiles.HostArch:
				c.meta.Arch = a.text
			case otelprofiles.OSVersion:
				c.meta.Kernel = a.text
			case otelprofiles.Executable:
				task.Comm, task.Guessed = a.text, a.text != ""
			case otelprofiles.ContainerID:
				owner.ContainerID = a.text
			case otelprofiles.ContainerName, otelprofiles.PodContainer:
				owner.Container = a.text
			case otelprofiles.ContainerImage:
				owner.Image = a.text
			case otelprofiles.ContainerRuntime:
				owner.Runtime = a.text
			case otelprofiles.PodName:
				owner.Pod = a.text
			case otelprofiles.PodUID:
				owner.PodUID = a.text
			case otelprofiles.PodNamespace:
				owner.Namespace = a.text
			case otelprofiles.Unit:
				owner.Unit = a.text
			}
		}
	}
	task.Owner = c.Owner(owner)
	for part := range c.parts(data, otelprofiles.ResourceProfilesScope) {
		c.scope(part, task)
	}
}

// id converts a number that identifies a process, thread or CPU.
func id(n int64) int {
	if n < 0 || n > math.MaxInt32 {
		return 0
	}
	return int(n)
}

// scope reads the profiles of a scope of a process.
func (c *otlpReader) scope(data []byte, task profile.Task) {
	losses := c.losses
	for part := range c.parts(data, otelprofiles.ScopeProfilesScope) {
		for attribute := range c.parts(part, otelprofiles.ScopeAttributes) {
			c.describe(c.keyValue(attribute), &losses)
		}
	}
	for part := range c.parts(data, otelprofiles.ScopeProfilesProfile) {
		c.profileOf(part, task, &losses)
	}
	c.losses = losses
}

// describe reads an attribute of the run. Profiles have these attributes; in older files, scopes have
// them. They are the same in all profiles and scopes of a file.
func (c *otlpReader) describe(a attribute, losses *profile.Losses) {
	switch a.key {
	case otelprofiles.Command:
		c.meta.Command = a.text
	case otelprofiles.Event:
		c.meta.Event = a.text
	case otelprofiles.Target:
		c.meta.Scope = a.text
	case otelprofiles.Run:
		c.run = a.text // parsed once: any number of attributes may refer to one long text
	}
	if name, ok := strings.CutPrefix(a.key, otelprofiles.LossPrefix); ok {
		for cause := range losses {
			if profile.Loss(cause).String() == name && a.number > 0 {
				losses[cause] = uint64(a.number)
			}
		}
	}
}

// profileOf reads a profile of a process.
func (c *otlpReader) profileOf(data []byte, task profile.Task, losses *profile.Losses) {
	var rest []byte // without samples
	c.scan(data, func(f protoField) {
		if f.number != otelprofiles.ProfileSample {
			rest = append(rest, f.raw...)
		}
	})
	in := otlpMessage[pb.Profile](c, rest)
	if c.meta.Start.IsZero() && in.TimeUnixNano != 0 {
		c.meta.Start = time.Unix(0, int64(in.TimeUnixNano))
	}
	c.meta.Duration = max(c.meta.Duration, time.Duration(in.DurationNano))
	for _, a := range c.referred(in.AttributeIndices) {
		c.describe(a, losses)
	}
	if of := c.valueType(valueTypeOf(in.PeriodType)); of != (profile.ValueType{}) && c.meta.Every == (profile.Interval{}) {
		c.meta.Every = profile.Interval{Of: of, Amount: in.Period}
		c.meta.Frequency = c.meta.Every.Frequency()
	}
	if c.err != nil {
		return
	}
	v := c.value(valueTypeOf(in.SampleType))
	for part := range c.parts(data, otelprofiles.ProfileSample) {
		c.sample(part, task, v)
	}
}

// otlpValueType is a type of value, as indexes of strings.
type otlpValueType struct{ name, unit int32 }

func valueTypeOf(in *pb.ValueType) otlpValueType {
	return otlpValueType{in.GetTypeStrindex(), in.GetUnitStrindex()}
}

// valueType returns a type of value.
func (c *otlpReader) valueType(v otlpValueType) profile.ValueType {
	return profile.ValueType{Type: profile.ShortName(row(c, c.strings, v.name)), Unit: profile.ShortName(row(c, c.strings, v.unit))}
}

// value returns the index of a type of value.
func (c *otlpReader) value(v otlpValueType) int {
	i, ok := c.values[v]
	if !ok {
		of := c.valueType(v)
		if of.Type == otelprofiles.OffCPU {
			of.Type = "off-cpu"
		}
		i = c.Value(of)
		c.values[v] = i
	}
	return i
}

// sample reads a sample. Without values, each of its times counts 1.
func (c *otlpReader) sample(data []byte, task profile.Task, value int) {
	in := &c.row
	*in = pb.Sample{AttributeIndices: in.AttributeIndices[:0], Values: in.Values[:0], TimestampsUnixNano: in.TimestampsUnixNano[:0]}
	c.decode(data, in)
	at := profile.Sample{CPU: -1}
	links := c.link(in.LinkIndex)
	for _, l := range links {
		c.fail(c.label(l))
	}
	for _, a := range c.referred(in.AttributeIndices) {
		key := otelprofiles.AttributeLabel(a.key)
		if c.apply(a, &at, &task) || key == "" || slices.ContainsFunc(links, func(l profile.Label) bool { return l.Key == key }) {
			continue
		}
		for _, l := range a.labels() {
			l.Key = key
			c.fail(c.label(l))
		}
	}
	sum := int64(0)
	for _, n := range in.Values {
		if next := sum + n; next >= sum != (n >= 0) {
			c.fail(errors.New("the values of a sample add up to too much"))
		}
		sum += n
	}
	if len(in.Values) == 0 {
		sum = int64(len(in.TimestampsUnixNano))
	}
	task.Labels = c.labelSet()
	at.Task = c.Task(task)
	at.Stack = c.stack(in.StackIndex)
	if c.err == nil {
		c.Count(at, value, sum)
	}
}

// link returns the labels that a link to a span stands for.
func (c *otlpReader) link(i int32) []profile.Label {
	labels, ok := c.links[i]
	if ok {
		return labels
	}
	in := otlpMessage[pb.Link](c, row(c, c.linkRows, i))
	for _, l := range []struct {
		key string
		id  []byte
	}{{profile.TraceID, in.TraceId}, {profile.SpanID, in.SpanId}} {
		if value := hex.EncodeToString(l.id[:min(len(l.id), 16)]); strings.Trim(value, "0") != "" {
			labels = append(labels, profile.Label{Key: l.key, Value: value})
		}
	}
	c.links[i] = labels
	return labels
}

// apply applies an attribute of a sample, and reports false if it is none of fulgur's.
func (c *otlpReader) apply(a attribute, at *profile.Sample, task *profile.Task) bool {
	switch a.key {
	case otelprofiles.PID:
		task.PID = id(a.number)
	case otelprofiles.ThreadID:
		task.TID = id(a.number)
	case otelprofiles.ThreadName:
		task.Comm, task.Guessed = a.text, false
	case otelprofiles.CPU:
		at.CPU = id(a.number)
	case otelprofiles.StackEnd:
		at.End = stackend.Parse(a.text)
	default:
		return false
	}
	return true
}

// maxLocations is the maximum number of locations of a stack. Stacks of fewer are cut as
// usual.
const maxLocations = 1 << 20

// stack interns a stack.
func (c *otlpReader) stack(i int32) (s profile.StackID) {
	if s, ok := c.stacks[i]; ok {
		return s
	}
	c.path.LocationIndices = c.path.LocationIndices[:0]
	c.decode(row(c, c.stackRows, i), &c.path)
	path := c.path.LocationIndices
	if len(path) > maxLocations {
		c.fail(fmt.Errorf("a stack has more than %d locations", maxLocations))
	}
	for i := len(path) - 1; i >= 0 && !c.IsCut(s) && c.err == nil; i-- {
		frames := c.frames(path[i])
		// A location may have any number of frames, and take a single byte in any number
		// of stacks.
		if c.left -= len(frames); c.left < 0 {
			s = c.Cut()
		}
		for _, f := range frames {
			if s = c.Push(s, f); c.IsCut(s) {
				break
			}
		}
	}
	c.stacks[i] = s
	return s
}

// frames interns the frames of a location, the outermost first.
func (c *otlpReader) frames(i int32) []profile.FrameID {
	if ids, ok := c.locations[i]; ok {
		return ids
	}
	in := otlpMessage[pb.Location](c, row(c, c.locationRows, i))
	if len(in.Lines) > profile.MaxDepth {
		c.fail(fmt.Errorf("a location has more than %d lines", profile.MaxDepth))
		return nil
	}
	f := profile.Frame{Address: in.Address}
	var kind string
	for _, a := range c.referred(in.AttributeIndices) {
		if a.key == otelprofiles.FrameType {
			kind = a.text
		}
	}
	m := c.mapping(in.MappingIndex)
	f.Mapping = m.id
	if profile.IsFile(m.Path) {
		f.Address = m.InFile(f.Address)
	}
	f.Kind = kindOfFrame(kind, m.Path, f.Address)
	var ids []profile.FrameID
	for i, line := range slices.Backward(in.Lines) {
		f.Inlined, f.Function = i < len(in.Lines)-1, 0
		if line.FunctionIndex != 0 {
			f.Function = c.function(line.FunctionIndex)
		}
		f.Line, f.Column = lineNumber(line.Line), lineNumber(line.Column)
		ids = append(ids, c.Frame(f))
	}
	if len(in.Lines) == 0 {
		ids = append(ids, c.Frame(f))
	}
	c.locations[i] = ids
	return ids
}

// lineNumber returns a number of a line or column, 0 if it is none.
func lineNumber(n int64) int {
	if n < 0 || n >= math.MaxInt32 {
		return 0
	}
	return int(n)
}

// function interns a function.
func (c *otlpReader) function(i int32) profile.FunctionID {
	if id, ok := c.functions[i]; ok {
		return id
	}
	in := otlpMessage[pb.Function](c, row(c, c.functionRows, i))
	fn := profile.Function{
		Name: row(c, c.strings, in.NameStrindex), SystemName: row(c, c.strings, in.SystemNameStrindex),
		File: row(c, c.strings, in.FilenameStrindex), StartLine: lineNumber(in.StartLine),
	}
	fn.SystemName = cmp.Or(fn.SystemName, fn.Name)
	id := c.Function(fn)
	c.functions[i] = id
	return id
}

// otlpMapped is a mapping of the input.
type otlpMapped struct {
	profile.Mapping
	id profile.MappingID
}

// mapping interns a mapping.
func (c *otlpReader) mapping(i int32) otlpMapped {
	known, ok := c.mappings[i]
	if ok || i == 0 {
		return known
	}
	in := otlpMessage[pb.Mapping](c, row(c, c.mappingRows, i))
	m := profile.Mapping{
		Start: in.MemoryStart, Limit: in.MemoryLimit, Offset: in.FileOffset,
		Path: row(c, c.strings, in.FilenameStrindex),
	}
	for _, a := range c.referred(in.AttributeIndices) {
		switch a.key {
		case otelprofiles.GNUBuildID:
			m.BuildID = a.text
		case otelprofiles.GoBuildID:
			m.GoBuildID = a.text
		case otelprofiles.FileHash:
			m.Hash = a.text
		}
	}
	m.Placed = profile.IsFile(m.Path)
	known = otlpMapped{m, c.Mapping(m)}
	c.mappings[i] = known
	return known
}

// kindOfFrame returns the kind of code of a frame with the given type.
func kindOfFrame(frameType, path string, address uint64) profile.Kind {
	switch {
	case frameType == otelprofiles.FrameKernel, isKernelFile(path), address >= 1<<63:
		return profile.KindKernel
	case frameType == otelprofiles.FrameNative, frameType == "go", frameType == "rust":
		return profile.KindUser
	case frameType != "", path != "" && !profile.IsFile(path):
		return profile.KindJIT
	case path == "":
		return profile.KindMarker
	}
	return profile.KindUser
}
