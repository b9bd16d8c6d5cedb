package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"

	"fulgur/internal/message/usage"
)

// utf16Text returns text in UTF-16.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return string(b)
}

// TestParseConfig reads what fulgur understands, and refuses everything else with its line.
func TestParseConfig(t *testing.T) {
	for name, test := range map[string]struct {
		text string
		want map[string]string // or:
		line string
		why  string
	}{
		"empty":         {text: ""},
		"comment":       {text: "# nothing\n"},
		"empty marked":  {text: "---\n...\n"},
		"values":        {text: "interval: 30 # seconds\noffcpu: true\nspool: \"/var/lib\"\n'max-cpu': 0.5\n", want: map[string]string{"interval": "30", "offcpu": "true", "spool": "/var/lib", "max-cpu": "0.5"}},
		"as written":    {text: "a: 010\nb: 0x10\nc: 2026-01-02\nd: 1e3\ne: off\n", want: map[string]string{"a": "010", "b": "0x10", "c": "2026-01-02", "d": "1e3", "e": "off"}},
		"marked":        {text: "%YAML 1.1\n---\ninterval: 30\n...\n# end\n", want: map[string]string{"interval": "30"}},
		"flow":          {text: "{interval: 30, offcpu: yes}", want: map[string]string{"interval": "30", "offcpu": "yes"}},
		"UTF-8 mark":    {text: "\ufeffinterval: 30\n", want: map[string]string{"interval": "30"}},
		"CRLF":          {text: "interval: 30\r\noffcpu: true\r\n", want: map[string]string{"interval": "30", "offcpu": "true"}},
		"explicit key":  {text: "? interval\n: 30\n", want: map[string]string{"interval": "30"}},
		"folded":        {text: "spool: >-\n  /var/lib\n", want: map[string]string{"spool": "/var/lib"}},
		"empty text":    {text: "spool: ''\n", want: map[string]string{"spool": ""}},
		"not ASCII":     {text: "spool: /var/lib/ä\n", want: map[string]string{"spool": "/var/lib/ä"}},
		"two documents": {text: "interval: 30\n---\noffcpu: true\n", line: "2", why: "second document"},
		"empty second":  {text: "interval: 30\n---\n---\n", line: "2", why: "second document"},
		"after the end": {text: "interval: 30\n...\noffcpu: true\n", line: "2", why: "document start"},
		"broken second": {text: "interval: 30\n---\n[", line: "3", why: "did not find"},
		"merge":         {text: "offcpu: true\n<<: {interval: 30}\n", line: "2", why: "merge"},
		"merge alias":   {text: "a: 1\n<<: *b\n", line: "", why: "unknown anchor"},
		"tagged value":  {text: "a: 1\ninterval: !!str 30\n", line: "2", why: "tags"},
		"own tag":       {text: "a: 1\ninterval: !foo 30\n", line: "2", why: "tags"},
		"text tag":      {text: "interval: ! 30\n", want: map[string]string{"interval": "30"}},
		"tagged key":    {text: "!!str interval: 30\n", line: "1", why: "tags"},
		"tagged top":    {text: "--- !!map\ninterval: 30\n", line: "1", why: "tags"},
		"binary":        {text: "spool: !!binary L3Zhcg==\n", line: "1", why: "tags"},
		"anchor":        {text: "a: 1\ninterval: &x 30\n", line: "2", why: "anchors"},
		"key anchor":    {text: "&x interval: 30\n", line: "1", why: "anchors"},
		"top anchor":    {text: "--- &x\ninterval: 30\n", line: "1", why: "anchors"},
		"alias":         {text: "a: &x 30\nb: *x\n", line: "1", why: "anchors"},
		"duplicate":     {text: "interval: 30\noffcpu: true\n\"interval\": 20\n", line: "3", why: "also on line 1"},
		"list":          {text: "a: 1\nbolt: [a, 'b,c']\n", want: map[string]string{"a": "1", "bolt": "[a b,c]"}},
		"block list":    {text: "bolt:\n- a\n- b\n", want: map[string]string{"bolt": "[a b]"}},
		"empty list":    {text: "bolt: []\n", want: map[string]string{"bolt": "[]"}},
		"nested list":   {text: "bolt:\n- [a]\n", line: "2", why: "single"},
		"null in list":  {text: "bolt:\n- a\n-\n", line: "2", why: "missing"},
		"list anchor":   {text: "bolt: &x [a]\n", line: "1", why: "anchors"},
		"list tag":      {text: "bolt: !!seq [a]\n", line: "1", why: "tags"},
		"mapping":       {text: "a: 1\nbolt: {a: b}\n", line: "2", why: "single"},
		"list as key":   {text: "[a]: 1\n", line: "1", why: "single"},
		"missing":       {text: "a: 1\ninterval:\noffcpu: true\n", line: "2", why: "missing"},
		"null":          {text: "interval: ~\n", line: "1", why: "missing"},
		"only a value":  {text: "30\n", line: "1", why: "NAME: VALUE"},
		"only a list":   {text: "- a\n- b\n", line: "1", why: "NAME: VALUE"},
		"only null":     {text: "null\n", line: "1", why: "NAME: VALUE"},
		"NUL byte":      {text: "a: 1\nspool: /var\x00/lib\n", line: "2", why: "UTF-8"},
		"escaped NUL":   {text: "spool: \"/var\\0\"\n", line: "1", why: "control"},
		"line break":    {text: "spool: |\n  /var\n", line: "1", why: "control"},
		"UTF-16LE":      {text: "\xff\xfe" + utf16Text(binary.LittleEndian, "interval: 30\n"), line: "1", why: "UTF-8"},
		"UTF-16BE":      {text: "\xfe\xff" + utf16Text(binary.BigEndian, "interval: 30\n"), line: "1", why: "UTF-8"},
		"UTF-16 no NUL": {text: "\xff\xfe\u2020", line: "1", why: "UTF-8"},
		"UTF-16 plain":  {text: utf16Text(binary.LittleEndian, "interval: 30\n"), line: "1", why: "UTF-8"},
		"Latin-1":       {text: "spool: /var/\xe4\n", why: "UTF-8"},
		"tab":           {text: "a: 1\n\tinterval: 30\n", why: "yaml: "},
		"deep":          {text: strings.Repeat("[", 100_000), why: "depth"},
		"deep block":    {text: strings.Repeat("- ", 100_000), why: "depth"},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := parseConfig([]byte(test.text))
			if test.why != "" {
				if err == nil || !strings.Contains(err.Error(), test.why) || !strings.Contains(err.Error(), "line "+test.line) && test.line != "" {
					t.Errorf("got %v and error %v, want %q on line %s", values, err, test.why, test.line)
				}
				return
			}
			got := map[string]string{}
			for name, value := range values {
				if got[name] = value.text; value.list != nil {
					got[name] = fmt.Sprint(value.list)
				}
			}
			if err != nil || !maps.Equal(got, test.want) {
				t.Errorf("got %q and error %v, want %q", got, err, test.want)
			}
		})
	}
}

// TestConfigFlags refuses names that are no flags of the agent, with their line.
func TestConfigFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "agent.yaml")
	for text, why := range map[string]string{
		"interval: 30\nINTERVAL: 20\n":            `line 2: "INTERVAL"`,
		"interval: 30\nzzz: 1\naaa: 1\n":          `line 2: "zzz"`,
		"config: a\n":                             `line 1: "config"`,
		"interval: [1]\n":                         "line 1: interval: not a single value",
		"interval: x\n":                           "--interval",
		"offcpu: perhaps\n":                       "--offcpu",
		strings.Repeat("#", maxConfig) + "\n":     "larger",
		"interval: 30\n---\nendpoint: http://a\n": "line 2: a second document",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadAgent(environment{args: []string{"agent", "--config", file}, stdout: t.Output(), stderr: t.Output()})
		if err == nil || !strings.Contains(err.Error(), why) || !errors.As(err, new(usageError)) && !errors.Is(err, usage.Err) {
			t.Errorf("%.40q: got error %v, want a usage error with %q", text, err, why)
		}
	}
}
