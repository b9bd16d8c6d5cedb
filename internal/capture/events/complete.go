package events

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"fulgur/internal/symbols/symbolize"
)

// maxComplete is the maximum number of completions. If there are more, they end after the
// next word of a name, such as "kprobe:vfs_".
const maxComplete = 500

// CompletesFile reports whether the completions of a word come from files that it names.
func CompletesFile(word string) bool {
	kind, _, found := strings.Cut(word, ":")
	i := slices.Index(kinds[:], kind)
	return found && i >= 0 && !Kind(i).InKernel()
}

// Complete returns completions of the beginning of an event's name, sorted, for a shell. Names
// that end with ":", "/" or "_" are not complete. Names with characters that have a meaning
// to shells are left out.
func Complete(word string) []string {
	c := completer{word: word, seen: map[string]bool{}}
	kind, rest, found := strings.Cut(word, ":")
	i := slices.Index(kinds[:], kind)
	switch {
	case !found:
		for _, name := range kinds {
			c.add(name + ":")
		}
		if word != "" {
			c.tracepoints("", word)
		}
	case i < 0:
		c.tracepoints("", word)
	case Kind(i) == Tracepoint:
		c.tracepoints(kind+":", rest)
	case Kind(i).InKernel():
		c.functions(kind + ":")
	default:
		c.inFile(Kind(i), rest)
	}
	return c.list()
}

// completer collects completions.
type completer struct {
	word string
	seen map[string]bool
}

// isPlain reports whether no character of s has a meaning to a shell, or ends a word in
// bash's line editor.
func isPlain(s string) bool {
	return strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.,:/+-") == ""
}

// maxCollected limits the memory for completions.
const maxCollected = 1 << 18

func (c *completer) add(s string) {
	if strings.HasPrefix(s, c.word) && isPlain(s) && len(c.seen) < maxCollected {
		c.seen[s] = true
	}
}

// list returns the completions.
func (c *completer) list() []string {
	found := c.seen
	if len(found) > maxComplete {
		found = map[string]bool{}
		for s := range c.seen {
			if end := strings.IndexByte(s[len(c.word):], '_'); end >= 0 {
				s = s[:len(c.word)+end+1]
			}
			found[s] = true
		}
	}
	if len(found) > maxComplete {
		return nil // a part of them would look like all
	}
	list := make([]string, 0, len(found))
	for s := range found {
		list = append(list, s)
	}
	slices.Sort(list)
	return list
}

// tracepoints adds groups, or the tracepoints of a group. before is what precedes a group.
func (c *completer) tracepoints(before, rest string) {
	r := Resolver{}
	tracing, err := r.tracefs()
	if err != nil {
		return
	}
	defer func() { _ = r.Close() }()
	names, err := tracing.Tracepoints()
	if err != nil {
		return
	}
	for _, name := range names {
		if group, _, _ := strings.Cut(name, ":"); !strings.Contains(rest, ":") {
			name = group + ":"
		}
		c.add(before + name)
	}
}

// functions adds functions of the kernel.
func (c *completer) functions(before string) {
	r := Resolver{}
	traceable, err := r.traceable()
	if err == nil {
		defer func() { _ = r.Close() }()
	}
	for name := range traceable {
		c.add(before + name)
	}
	if traceable == nil {
		_ = symbolize.KernelFunctions(func(name []byte, _ uint64) bool {
			c.add(before + string(name))
			return true
		}) // what was read so far is offered
	}
}

// inFile adds files, or the functions and probes in a file.
func (c *completer) inFile(kind Kind, rest string) {
	path, name, found := strings.Cut(rest, ":")
	if !found {
		c.files(kind, path)
		return
	}
	e := Event{Kind: kind, Path: path, Name: name + "*"}
	if kind == USDT {
		group, own, complete := strings.Cut(name, ":")
		e.Group, e.Name = group, own+"*"
		if !complete {
			e.Group, e.Name = group+"*", "*"
		}
	}
	r := Resolver{MaxProbes: maxCollected}
	p := &Probe{Event: e}
	defer func() { _ = p.Close() }()
	if err := r.inFiles(p, Query{}); err != nil {
		return
	}
	before := kind.String() + ":" + path + ":"
	for _, point := range p.Points {
		c.add(before + point.Name)
	}
}

// maxFiles is the maximum number of files of a directory to look at.
const maxFiles = 10_000

// files adds the files of a directory.
func (c *completer) files(kind Kind, path string) {
	dir, _ := filepath.Split(path)
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return
	}
	defer func() { _ = f.Close() }()
	entries, _ := f.ReadDir(maxFiles) // what was read so far is offered
	for _, entry := range entries {
		name := kind.String() + ":" + dir + entry.Name()
		mode := entry.Type()
		if mode&os.ModeSymlink != 0 && strings.HasPrefix(name, c.word) {
			if info, err := os.Stat(filepath.Join(f.Name(), entry.Name())); err == nil {
				mode = info.Mode()
			}
		}
		switch {
		case mode.IsDir():
			c.add(name + "/")
		case mode.IsRegular():
			c.add(name + ":")
		}
	}
}
