package otlp

import (
	"fmt"
	"strings"

	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/proto"
	"fulgur/internal/profile/otelprofiles"
)

// table is a table of the dictionary. Rows are distinct, and row 0 is the zero value.
type table struct {
	field int // in the dictionary
	rows  proto.Message
	ids   map[string]int32 // by encoded row
	n     int32            // number of rows
}

func newTable(field int) *table {
	t := &table{field: field, ids: map[string]int32{}}
	t.id(nil)
	return t
}

// id returns the index of a row, adding it if it is new.
func (t *table) id(row proto.Message) int32 {
	id, ok := t.ids[string(row)]
	if !ok {
		id = t.n
		t.ids[string(row)] = id
		t.n++
		t.rows.Message(t.field, row)
	}
	return id
}

// dictionary holds the tables to which all messages refer.
type dictionary struct {
	mappings, locations, functions, links, strings, attributes, stacks *table
	row                                                                proto.Message // reused
}

func newDictionary() *dictionary {
	return &dictionary{
		mappings: newTable(otelprofiles.DictionaryMapping), locations: newTable(otelprofiles.DictionaryLocation),
		functions: newTable(otelprofiles.DictionaryFunction), links: newTable(otelprofiles.DictionaryLink),
		strings: newTable(otelprofiles.DictionaryString), attributes: newTable(otelprofiles.DictionaryAttribute),
		stacks: newTable(otelprofiles.DictionaryStack),
	}
}

// tables returns the encoded tables.
func (d *dictionary) tables() (all []proto.Message) {
	for _, t := range []*table{d.mappings, d.locations, d.functions, d.links, d.strings, d.attributes, d.stacks} {
		all = append(all, t.rows)
	}
	return all
}

// text returns the index of a string, with invalid UTF-8 replaced.
func (d *dictionary) text(s string) int64 {
	return int64(d.strings.id(proto.Message(valid(s))))
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// attribute returns the index of an attribute.
func (d *dictionary) attribute(key string, value proto.Message) int32 {
	return d.measured(key, value, "")
}

// measured returns the index of an attribute with a unit, "" for none.
func (d *dictionary) measured(key string, value proto.Message, unit string) int32 {
	d.row = d.row[:0]
	d.row.Int(otelprofiles.AttributeKey, d.text(key))
	d.row.Message(otelprofiles.AttributeValue, value)
	d.row.Int(otelprofiles.AttributeUnit, d.text(unit))
	return d.attributes.id(d.row)
}

// label returns the index of the attribute for labels with the same key.
func (d *dictionary) label(key string, same []profile.Label) int32 {
	values := make([]proto.Message, len(same))
	for i, l := range same {
		if values[i] = anyText(l.Value); l.Numeric {
			values[i] = anyNumber(l.Number())
		}
	}
	if len(same) == 1 {
		return d.measured(key, values[0], same[0].Unit)
	}
	var list, array proto.Message
	for _, v := range values {
		list.Message(otelprofiles.ArrayValues, v)
	}
	array.Message(otelprofiles.AnyArray, list)
	return d.measured(key, array, same[len(same)-1].Unit)
}

// anyText returns a value of type string.
func anyText(s string) (v proto.Message) {
	v.String(otelprofiles.AnyString, valid(s))
	return v
}

// anyNumber returns a value of type int.
func anyNumber(n int64) (v proto.Message) {
	v.Member(otelprofiles.AnyInt, n)
	return v
}

// anyFlag returns a value of type bool.
func anyFlag(b bool) (v proto.Message) {
	n := int64(0)
	if b {
		n = 1
	}
	v.Member(otelprofiles.AnyBool, n)
	return v
}

// anyValue returns the value of a [profile.Attribute].
func anyValue(value any) proto.Message {
	switch v := value.(type) {
	case int64:
		return anyNumber(v)
	case bool:
		return anyFlag(v)
	}
	return anyText(fmt.Sprint(value))
}

// link returns the index of a link to a span.
func (d *dictionary) link(trace [16]byte, span [8]byte) int32 {
	d.row = d.row[:0]
	d.row.Message(otelprofiles.LinkTraceID, trace[:])
	d.row.Message(otelprofiles.LinkSpanID, span[:])
	return d.links.id(d.row)
}

// keyValue appends an attribute of a resource or scope.
func keyValue(m *proto.Message, field int, key string, value proto.Message) {
	var pair proto.Message
	pair.String(otelprofiles.KeyValueKey, key)
	pair.Message(otelprofiles.KeyValueValue, value)
	m.Message(field, pair)
}
