package decode

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// TestOTLPJSON reads what other programs may write: numbers or texts, unknown members, null,
// and members in any order.
func TestOTLPJSON(t *testing.T) {
	text := ` {"dictionary" : {"stringTable":["","cpu","ns","f\u00fc"], "functionTable":[{},{"nameStrindex":3}],
		"locationTable":[{},{"lines":[{"functionIndex":"1","line":"7"}]}], "stackTable":[{},{"locationIndices":[1]}],
		"mappingTable":[{}], "linkTable":[{"traceId":"5b8aa5a2d2c872e8321cf37308d69df2"}], "attributeTable":[{"value":{"boolValue":true,"doubleValue":0.5}}]},
		"resourceProfiles":[{"resource":null,"later":[{"a":[1]}],"scopeProfiles":[{"profiles":[{
			"profileId":"00112233445566778899aabbccddeeff","timeUnixNano":"1700000000000000000","sampleType":{"typeStrindex":1,"unitStrindex":2},
			"samples":[{"stackIndex":1,"values":["40",2]},{"stackIndex":1,"values":["-1e0"]}]}]}]}]}`
	if p, _, err := Read(t.Context(), strings.NewReader(text), "x"); err == nil {
		t.Errorf("got %v, want an error for -1e0", p.Total(0))
	}
	text = strings.Replace(text, `"-1e0"`, `5`, 1)
	p := decoded(t, []byte(text), OTLPJSON)
	if p.Total(0) != 47 || p.ValueTypes[0].Type != "cpu" || p.Meta.Start.Unix() != 1700000000 {
		t.Errorf("got total %d of %v, start %v; want 47 of cpu at 1700000000", p.Total(0), p.ValueTypes[0], p.Meta.Start)
	}
	if got := fmt.Sprint(fold(t, p, 0)); !strings.Contains(got, "fü") {
		t.Errorf("got %s, want a function fü", got)
	}
}

// TestHostileOTLPJSON checks that texts that would take much time or memory are errors.
func TestHostileOTLPJSON(t *testing.T) {
	deep := `{"dictionary":{"attributeTable":[{"value":` + strings.Repeat(`{"arrayValue":{"values":[`, 1<<16)
	for text, want := range map[string]string{
		deep:                            "nested more than",
		`{"dictionary":{"stringTable":`: "ends within",
		`{"dictionary":[]}`:             "where '{' was expected",
		`{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"timeUnixNano":1.5}]}]}]}`:               "not an integer",
		`{"resourceProfiles":[{"scopeProfiles":[{"profiles":[{"samples":[{"values":["9e999"]}]}]}]}]}`: "not an integer",
		`{"dictionary":{"attributeTable":[{"value":{"boolValue":1}}]}}`:                                "true or false",
		`{"dictionary":{"attributeTable":[{"value":{"doubleValue":"x"}}]}}`:                            "not a number",
	} {
		if _, format, err := Read(t.Context(), strings.NewReader(text), "x"); format != OTLPJSON || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.80s: got format %s, error %v; want %q", text, format, err, want)
		}
	}
}

func TestInteger(t *testing.T) {
	for _, test := range []struct {
		text   string
		number float64
		want   uint64
		fails  bool
	}{
		{"", 7, 7, false}, {"", -7, math.MaxUint64 - 6, false}, {"", 1 << 63, 1 << 63, false}, {"", 0.5, 0, true}, {"", 1e300, 0, true}, {"", math.NaN(), 0, true},
		{"18446744073709551615", 0, math.MaxUint64, false}, {"-1", 0, math.MaxUint64, false}, {"18446744073709551616", 0, 0, true}, {"1.5", 0, 0, true},
	} {
		if got, err := integer(test.text, test.number); err == nil == test.fails || !test.fails && got != test.want {
			t.Errorf("%q, %v: got %d, %v, want %d", test.text, test.number, got, err, test.want)
		}
	}
}
