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

	"fulgur/internal/files/unpack"
	"fulgur/internal/profile"
	"fulgur/internal/profile/otelprofiles"
	"fulgur/internal/profile/runinfo"
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
	items  int            // number of fields and elements of lists that were read
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
	mappings                                map[uint64]otlpMapped
	attributes                              map[uint64]attribute
	values                                  map[otlpValueType]int
	locations                               map[uint64][]profile.FrameID
	stacks                                  map[uint64]profile.StackID
	functions                               map[uint64]profile.FunctionID
	links                                   map[uint64][]profile.Label
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
	scanFields(data, func(f protoField) bool {
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
	if read < len(data) {
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
		mappings: map[uint64]otlpMapped{}, attributes: map[uint64]attribute{}, values: map[otlpValueType]int{},
		locations: map[uint64][]profile.FrameID{}, stacks: map[uint64]profile.StackID{},
		functions: map[uint64]profile.FunctionID{}, links: map[uint64][]profile.Label{},
	}
}

// message adds a message ProfilesData.
func (c *otlpReader) message(data []byte) error {
	c.messages++
	c.meta, c.losses, c.run = profile.Meta{}, profile.Losses{}, ""
	c.otlpTables = newOTLPTables()
	c.each(data, func(f protoField) {
		if f.number == otelprofiles.DataDictionary && f.packed {
			c.dictionary(f.data)
		}
	})
	c.each(data, func(f protoField) {
		if f.number == otelprofiles.DataResource && f.packed {
			c.resource(f.data)
		}
	})
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
	c.each(data, func(f protoField) {
		if !f.packed {
			return // no row
		}
		if size += rowSize; size > profile.MaxTables {
			c.fail(fmt.Errorf("more than %d rows in the dictionary", profile.MaxTables/rowSize))
			return
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

// each calls yield with the fields of a message, up to the first malformed one or error.
func (c *otlpReader) each(data []byte, yield func(protoField)) {
	scanFields(data, func(f protoField) bool {
		if c.next() {
			yield(f)
		}
		return c.err == nil
	})
}

// list returns the numbers in a field of repeated numbers, up to the first error.
func (c *otlpReader) list(f protoField) iter.Seq[uint64] {
	return func(yield func(uint64) bool) {
		for n := range f.list() {
			if !c.next() || !yield(n) {
				return
			}
		}
	}
}

// next counts a field or an element of a list, and reports whether to go on.
func (c *otlpReader) next() bool {
	if c.items++; c.items%1024 == 0 {
		c.fail(c.ctx.Err())
	}
	return c.err == nil
}

// maxReferences is the maximum number of attributes to which a list refers: all labels that a
// sample may have, and a few others.
const maxReferences = 4 * maxLabels

// referred returns the attributes to which a field refers.
func (c *otlpReader) referred(f protoField) iter.Seq[attribute] {
	return func(yield func(attribute) bool) {
		n := 0
		for i := range c.list(f) {
			if n++; n > maxReferences {
				c.fail(fmt.Errorf("a list of more than %d attributes", maxReferences))
				return
			}
			if !yield(c.attributeAt(i)) {
				return
			}
		}
	}
}

// fail keeps the first error.
func (c *otlpReader) fail(err error) { c.err = cmp.Or(c.err, err) }

// row returns a row of a table.
func row[T any](c *otlpReader, table []T, i uint64) (r T) {
	if i >= uint64(len(table)) {
		if i > 0 { // 0 is none, even without a table
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

// keyValue reads a message KeyValue.
func (c *otlpReader) keyValue(data []byte) (a attribute) {
	c.each(data, func(f protoField) {
		switch f.number {
		case otelprofiles.KeyValueKey:
			a.key = string(f.data)
		case otelprofiles.KeyValueKeyIndex:
			a.key = row(c, c.strings, f.value)
		case otelprofiles.KeyValueValue:
			c.anyValue(f.data, &a)
		}
	})
	return a
}

// anyValue reads the value of an attribute.
func (c *otlpReader) anyValue(data []byte, a *attribute) { c.anyValueAt(data, a, 1) }

// anyValueAt reads a value that may contain lists of values up to the given depth.
func (c *otlpReader) anyValueAt(data []byte, a *attribute, depth int) {
	c.each(data, func(f protoField) {
		switch f.number {
		case otelprofiles.AnyString:
			a.text = string(f.data)
		case otelprofiles.AnyBool:
			a.text = strconv.FormatBool(f.value != 0)
		case otelprofiles.AnyInt:
			a.number, a.numeric = int64(f.value), true
		case otelprofiles.AnyArray:
			c.each(f.data, func(f protoField) {
				if f.number == otelprofiles.ArrayValues && len(a.list) < maxLabels && depth > 0 {
					var part attribute
					c.anyValueAt(f.data, &part, depth-1)
					a.list = append(a.list, part)
				}
			})
		case otelprofiles.AnyStringIndex:
			a.text = row(c, c.strings, f.value)
		}
	})
	a.text = a.text[:min(len(a.text), profile.MaxName)]
}

// attributeAt returns an attribute of the dictionary.
func (c *otlpReader) attributeAt(i uint64) attribute {
	a, ok := c.attributes[i]
	if !ok {
		c.each(row(c, c.attributeRows, i), func(f protoField) {
			switch f.number {
			case otelprofiles.AttributeKey:
				a.key = row(c, c.strings, f.value)
				a.key = a.key[:min(len(a.key), profile.MaxName+1)] // recognized as too long
			case otelprofiles.AttributeValue:
				c.anyValue(f.data, &a)
			case otelprofiles.AttributeUnit:
				a.unit = row(c, c.strings, f.value)
				a.unit = a.unit[:min(len(a.unit), profile.MaxName)]
			}
		})
		c.attributes[i] = a
	}
	return a
}

// resource reads the profiles of a resource.
func (c *otlpReader) resource(data []byte) {
	var task profile.Task
	var owner profile.Owner
	c.each(data, func(f protoField) {
		if f.number != otelprofiles.ResourceProfilesResource {
			return
		}
		c.each(f.data, func(f protoField) {
			if f.number != otelprofiles.ResourceAttributes {
				return
			}
			switch a := c.keyValue(f.data); a.key {
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
		})
	})
	task.Owner = c.Owner(owner)
	c.each(data, func(f protoField) {
		if f.number == otelprofiles.ResourceProfilesScope && f.packed {
			c.scope(f.data, task)
		}
	})
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
	c.each(data, func(f protoField) {
		switch f.number {
		case otelprofiles.ScopeProfilesScope:
			c.each(f.data, func(f protoField) {
				if f.number == otelprofiles.ScopeAttributes {
					c.describe(c.keyValue(f.data), &losses)
				}
			})
		case otelprofiles.ScopeProfilesProfile:
			c.profileOf(f.data, task, &losses)
		}
	})
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
	var value, period otlpValueType
	var every int64
	c.each(data, func(f protoField) {
		switch f.number {
		case otelprofiles.ProfileSampleType:
			value = c.readValueType(f, value)
		case otelprofiles.ProfileTime:
			if c.meta.Start.IsZero() && f.value != 0 {
				c.meta.Start = time.Unix(0, int64(f.value))
			}
		case otelprofiles.ProfileDuration:
			c.meta.Duration = max(c.meta.Duration, time.Duration(f.value))
		case otelprofiles.ProfilePeriodType:
			period = c.readValueType(f, period)
		case otelprofiles.ProfilePeriod:
			every = int64(f.value)
		case otelprofiles.ProfileAttributes:
			for a := range c.referred(f) {
				c.describe(a, losses)
			}
		}
	})
	if of := c.valueType(period); of != (profile.ValueType{}) && c.meta.Every == (profile.Interval{}) {
		c.meta.Every = profile.Interval{Of: of, Amount: every}
		c.meta.Frequency = c.meta.Every.Frequency()
	}
	if c.err != nil {
		return
	}
	v := c.value(value)
	c.each(data, func(f protoField) {
		if f.number == otelprofiles.ProfileSample && f.packed && c.err == nil {
			c.sample(f.data, task, v)
		}
	})
}

// otlpValueType is a type of value, as indexes of strings.
type otlpValueType struct{ name, unit uint64 }

func (c *otlpReader) readValueType(f protoField, v otlpValueType) otlpValueType {
	if !f.packed {
		return v // not a message, and so unknown to other readers
	}
	c.each(f.data, func(f protoField) {
		switch f.number {
		case otelprofiles.ValueTypeType:
			v.name = f.value
		case otelprofiles.ValueTypeUnit:
			v.unit = f.value
		}
	})
	return v
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
	at := profile.Sample{CPU: -1}
	var sum, times int64
	valued := false
	var stack uint64
	var linked []string // keys of labels
	c.each(data, func(f protoField) {
		switch f.number {
		case otelprofiles.SampleStack:
			stack = f.value
		case otelprofiles.SampleLink:
			for _, l := range c.link(f.value) {
				linked = append(linked, l.Key)
				c.fail(c.label(l))
			}
		case otelprofiles.SampleAttributes:
			for a := range c.referred(f) {
				key := otelprofiles.AttributeLabel(a.key)
				if c.apply(a, &at, &task) || key == "" || slices.Contains(linked, key) {
					continue
				}
				for _, l := range a.labels() {
					l.Key = key
					c.fail(c.label(l))
				}
			}
		case otelprofiles.SampleValues:
			for n := range c.list(f) {
				valued = true
				if next := sum + int64(n); next >= sum == (int64(n) >= 0) {
					sum = next
				} else {
					c.fail(errors.New("the values of a sample add up to too much"))
				}
			}
		case otelprofiles.SampleTimes:
			if times++; f.packed {
				times += int64(len(f.data))/8 - 1
			}
		}
	})
	if !valued {
		sum = times
	}
	task.Labels = c.labelSet()
	at.Task = c.Task(task)
	at.Stack = c.stack(stack)
	if c.err == nil {
		c.Count(at, value, sum)
	}
}

// link returns the labels that a link to a span stands for.
func (c *otlpReader) link(i uint64) []profile.Label {
	labels, ok := c.links[i]
	if ok {
		return labels
	}
	var trace, span string
	c.each(row(c, c.linkRows, i), func(f protoField) {
		id := hex.EncodeToString(f.data[:min(len(f.data), 16)])
		switch {
		case strings.Trim(id, "0") == "":
		case f.number == otelprofiles.LinkTraceID:
			trace = id
		case f.number == otelprofiles.LinkSpanID:
			span = id
		}
	})
	for _, l := range []profile.Label{{Key: profile.TraceID, Value: trace}, {Key: profile.SpanID, Value: span}} {
		if l.Value != "" {
			labels = append(labels, l)
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
		at.End = profile.ParseEnd(a.text)
	default:
		return false
	}
	return true
}

// maxLocations is the maximum number of locations of a stack. Stacks of fewer are cut as
// usual.
const maxLocations = 1 << 20

// stack interns a stack.
func (c *otlpReader) stack(i uint64) (s profile.StackID) {
	if s, ok := c.stacks[i]; ok {
		return s
	}
	var path []uint64
	c.each(row(c, c.stackRows, i), func(f protoField) {
		if f.number == otelprofiles.StackLocations {
			for at := range c.list(f) {
				if path = append(path, at); len(path) > maxLocations {
					c.fail(fmt.Errorf("a stack has more than %d locations", maxLocations))
				}
			}
		}
	})
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
func (c *otlpReader) frames(i uint64) []profile.FrameID {
	if ids, ok := c.locations[i]; ok {
		return ids
	}
	f := profile.Frame{}
	var lines [][]byte
	var kind string
	var mapping uint64
	c.each(row(c, c.locationRows, i), func(field protoField) {
		switch field.number {
		case otelprofiles.LocationMapping:
			mapping = field.value
		case otelprofiles.LocationAddress:
			f.Address = field.value
		case otelprofiles.LocationLine:
			if lines = append(lines, field.data); len(lines) > profile.MaxDepth {
				c.fail(fmt.Errorf("a location has more than %d lines", profile.MaxDepth))
			}
		case otelprofiles.LocationAttributes:
			for a := range c.referred(field) {
				if a.key == otelprofiles.FrameType {
					kind = a.text
				}
			}
		}
	})
	m := c.mapping(mapping)
	f.Mapping = m.id
	if profile.IsFile(m.Path) {
		f.Address = m.InFile(f.Address)
	}
	f.Kind = kindOfFrame(kind, m.Path, f.Address)
	var ids []profile.FrameID
	for i, line := range slices.Backward(lines) {
		f.Inlined = i < len(lines)-1
		c.line(line, &f)
		ids = append(ids, c.Frame(f))
	}
	if len(lines) == 0 {
		ids = append(ids, c.Frame(f))
	}
	c.locations[i] = ids
	return ids
}

// line adds the contents of a line to f.
func (c *otlpReader) line(data []byte, f *profile.Frame) {
	f.Function, f.Line, f.Column = 0, 0, 0
	c.each(data, func(field protoField) {
		switch {
		case field.number == otelprofiles.LineFunction && field.value > 0:
			f.Function = c.function(field.value)
		case field.number == otelprofiles.LineLine && field.value < math.MaxInt32:
			f.Line = int(field.value)
		case field.number == otelprofiles.LineColumn && field.value < math.MaxInt32:
			f.Column = int(field.value)
		}
	})
}

// function interns a function.
func (c *otlpReader) function(i uint64) profile.FunctionID {
	if id, ok := c.functions[i]; ok {
		return id
	}
	var fn profile.Function
	c.each(row(c, c.functionRows, i), func(f protoField) {
		switch f.number {
		case otelprofiles.FunctionName:
			fn.Name = row(c, c.strings, f.value)
		case otelprofiles.FunctionSystemName:
			fn.SystemName = row(c, c.strings, f.value)
		case otelprofiles.FunctionFilename:
			fn.File = row(c, c.strings, f.value)
		case otelprofiles.FunctionStartLine:
			if f.value < math.MaxInt32 {
				fn.StartLine = int(f.value)
			}
		}
	})
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
func (c *otlpReader) mapping(i uint64) otlpMapped {
	known, ok := c.mappings[i]
	if ok || i == 0 {
		return known
	}
	var m profile.Mapping
	c.each(row(c, c.mappingRows, i), func(f protoField) {
		switch f.number {
		case otelprofiles.MappingStart:
			m.Start = f.value
		case otelprofiles.MappingLimit:
			m.Limit = f.value
		case otelprofiles.MappingOffset:
			m.Offset = f.value
		case otelprofiles.MappingFilename:
			m.Path = row(c, c.strings, f.value)
		case otelprofiles.MappingAttributes:
			for a := range c.referred(f) {
				switch a.key {
				case otelprofiles.GNUBuildID:
					m.BuildID = a.text
				case otelprofiles.GoBuildID:
					m.GoBuildID = a.text
				case otelprofiles.FileHash:
					m.Hash = a.text
				}
			}
		}
	})
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
