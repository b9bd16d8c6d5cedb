package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"fulgur/internal/export/otlpclient"
	"fulgur/internal/message/usage"
)

// configFile has the values of flags, by name. It implements [kong.Resolver].
type configFile struct {
	path   string
	values map[string]any
}

// maxConfig limits the size of a configuration file, in bytes.
const maxConfig = 1 << 20

// readConfig reads a configuration file: a YAML mapping of the names of flags to values.
func readConfig(path string) (*configFile, error) {
	text, err := readTrusted(path, 0o022)
	if err != nil {
		return nil, err
	}
	c := &configFile{path: path}
	if err := yaml.Unmarshal(text, &c.values); err != nil {
		return nil, usageError{fmt.Errorf("%s: %w", path, err)}
	}
	return c, nil
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
	return io.ReadAll(io.LimitReader(f, maxConfig))
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
	for name, value := range c.values {
		switch value.(type) {
		case string, int, float64, bool:
		default:
			return fmt.Errorf("%s: %s: not a single value", c.path, name)
		}
		if !known[name] {
			return fmt.Errorf("%s: %q is not a flag that a file can set", c.path, name)
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
	if _, isBool := value.(bool); isBool || flag.IsBool() {
		return value, nil
	}
	return fmt.Sprint(value), nil
}
