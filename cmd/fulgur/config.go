package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"unicode"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
)

// configFile has the values of flags, by name. It implements [kong.Resolver].
type configFile struct {
	path   string
	values map[string]configValue
}

// configValue is the text of a value, which means the same as on the command line, or a list of texts,
// each of which means the same as the flag given once.
type configValue struct {
	text string
	list []any // of strings; nil if there is one text
	line int
}

// maxConfig limits the size of a configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads a configuration file: a YAML mapping of the names of flags to values.
func readConfig(path string) (*configFile, error) {
	text, err := readTrusted(path, 0o022)
	if err != nil {
		return nil, err
	}
	values, err := parseConfig(text)
	if err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return &configFile{path: path, values: values}, nil
}

// parseConfig returns the values in the text of a configuration file. It fails for all of YAML that it
// would not fully honor.
func parseConfig(text []byte) (map[string]configValue, error) {
	// The parser also reads UTF-16, and converts it.
	if i := bytes.IndexByte(text, 0); i >= 0 || bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		return nil, lineErrorf(1+bytes.Count(text[:max(i, 0)], []byte("\n")), "not text in UTF-8: save the file in that encoding")
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var document yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil // comments at most
	} else if err != nil {
		return nil, err
	}
	var next yaml.Node
	if err := decoder.Decode(&next); err == nil {
		return nil, lineErrorf(next.Line, "a second document begins here: put all values into the first")
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return configValues(document.Content[0])
}

// configValues returns the values of a document.
func configValues(top *yaml.Node) (map[string]configValue, error) {
	if top.Kind == yaml.ScalarNode && top.Value == "" && plainNode(top) == nil {
		return nil, nil // an empty document
	}
	if top.Kind != yaml.MappingNode {
		return nil, lineErrorf(top.Line, "not lines of the form NAME: VALUE")
	}
	if err := plainNode(top); err != nil {
		return nil, err
	}
	values := map[string]configValue{}
	for i := 0; i+1 < len(top.Content); i += 2 {
		key, value := top.Content[i], top.Content[i+1]
		if key.Tag == "!!merge" {
			return nil, lineErrorf(key.Line, "<<: fulgur does not merge mappings: write each flag on a line of its own")
		}
		if err := plainNode(key); err != nil {
			return nil, err
		}
		if key.Kind != yaml.ScalarNode {
			return nil, lineErrorf(key.Line, "the name of a flag is not a single value")
		}
		if before, ok := values[key.Value]; ok {
			return nil, lineErrorf(key.Line, "%s is also on line %d: remove one of them", plain.Terminal(key.Value), before.line)
		}
		read, err := configText(value)
		if err != nil {
			return nil, lineErrorf(value.Line, "%s: %w", plain.Terminal(key.Value), err)
		}
		read.line = key.Line
		values[key.Value] = read
	}
	return values, nil
}

// The reasons why a value is refused.
var (
	errNotSingle = errors.New("not a single value")
	errNoValue   = errors.New("a value is missing")
	errControl   = errors.New("the value has a line break or another control character")
)

// configText returns the text of a value, or the texts of a list.
func configText(n *yaml.Node) (v configValue, err error) {
	if n.Kind != yaml.SequenceNode {
		v.text, err = scalarText(n)
		return v, err
	}
	if err := notPlain(n); err != nil {
		return v, err
	}
	v.list = []any{}
	for _, element := range n.Content {
		text, err := scalarText(element)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, text)
	}
	return v, nil
}

// scalarText returns the text of a value.
func scalarText(n *yaml.Node) (string, error) {
	if err := notPlain(n); err != nil {
		return "", err
	}
	switch {
	case n.Kind != yaml.ScalarNode:
		return "", errNotSingle
	case n.Tag == "!!null":
		return "", errNoValue
	case strings.ContainsFunc(n.Value, unicode.IsControl):
		return "", errControl
	}
	return n.Value, nil
}

// plainNode returns an error with the line if a node has parts that fulgur does not honor.
func plainNode(n *yaml.Node) error {
	if err := notPlain(n); err != nil {
		return lineErrorf(n.Line, "%w", err)
	}
	return nil
}

// notPlain returns an error if a node has parts that fulgur does not honor.
func notPlain(n *yaml.Node) error {
	switch {
	case n.Kind == yaml.AliasNode:
		return fmt.Errorf("*%s: fulgur does not use aliases: write the value itself", plain.Terminal(n.Value))
	case n.Anchor != "":
		return fmt.Errorf("&%s: fulgur does not use anchors: remove it", plain.Terminal(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		return fmt.Errorf("%s: fulgur does not use tags: remove it", plain.Terminal(n.Tag))
	}
	return nil
}

// lineErrorf returns an error with the number of a line, in the form of the parser's own errors.
func lineErrorf(line int, format string, args ...any) error {
	return fmt.Errorf("yaml: line %d: %w", line, fmt.Errorf(format, args...))
}

// readTrusted reads a file that root or the user controls. denied are the permissions that
// others must not have.
func readTrusted(path string, denied uint32) (text []byte, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if errors.Is(err, unix.ELOOP) {
		return nil, usage.Errorf("%s is a symbolic link: name the file itself", path)
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, usage.Errorf("%s is not a regular file", path)
	case st.Uid != 0 && st.Uid != uint32(os.Geteuid()):
		return nil, usage.Errorf("%s belongs to user %d: it must belong to root, or the user that runs fulgur", path, st.Uid)
	case st.Mode&denied != 0:
		return nil, usage.Errorf("%s has mode %#o: remove the permissions %#o with chmod", path, st.Mode&0o777, st.Mode&denied)
	case st.Size > maxConfig:
		return nil, usage.Errorf("%s is larger than %d bytes", path, maxConfig)
	}
	if text, err = io.ReadAll(io.LimitReader(f, maxConfig+1)); len(text) > maxConfig { // it grows
		return nil, usage.Errorf("%s is larger than %d bytes", path, maxConfig)
	}
	return text, err
}

// readHeaders reads a file with secret headers.
func readHeaders(path string) (map[string]string, error) {
	text, err := readTrusted(path, 0o077)
	if err != nil {
		return nil, err
	}
	headers, err := otlpclient.ParseHeaders(strings.Split(string(text), "\n"))
	if err != nil {
		return nil, usage.Errorf("%s: %v", path, err)
	}
	return headers, nil
}

// notInFile lists the flags that a configuration file cannot set.
var notInFile = []string{"help", "config", "log"}

// Validate implements [kong.Resolver]: it fails for names that are no flags.
func (c *configFile) Validate(app *kong.Application) error {
	known := map[string]bool{}
	for _, command := range app.Children {
		if command.Name != "agent" {
			continue
		}
		for _, f := range command.Flags {
			known[f.Name] = !slices.Contains(notInFile, f.Name)
		}
	}
	names := slices.SortedFunc(maps.Keys(c.values), func(a, b string) int { return c.values[a].line - c.values[b].line })
	for _, name := range names {
		if !known[name] {
			return fmt.Errorf("%s: %w", c.path, lineErrorf(c.values[name].line, "%q is not a flag that a file can set", name))
		}
	}
	return nil
}

// Resolve implements [kong.Resolver]: it returns the value of a flag that is not on the
// command line.
func (c *configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	value, ok := c.values[flag.Name]
	if !ok || slices.Contains(notInFile, flag.Name) {
		return nil, nil
	}
	if value.list == nil {
		return value.text, nil
	}
	if !flag.IsSlice() {
		return nil, fmt.Errorf("%s: %w", c.path, lineErrorf(value.line, "%s: %w", flag.Name, errNotSingle))
	}
	return value.list, nil
}
