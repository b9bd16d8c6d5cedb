package remote

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/internal/files/atomicfile"
	"fulgur/internal/message/plain"
)

// Form is what an output is.
type Form int

// The forms of an output.
const (
	File   Form = iota
	Series      // numbered files: name-0001.pb.gz
	Folder      // of files
)

// maxFiles bounds the files that a host sends.
const maxFiles = 10_000

// maxBytes bounds what a host sends in a run, in bytes: its output and files.
const maxBytes = 4 << 30

// Output is where files are written, on this machine.
type Output struct {
	Path string // "" for none
	Form Form
	// Stem and Ending are the parts of Path before and behind what tells several hosts apart, or the files
	// of a series.
	Stem, Ending string
}

// of returns the output of one of several hosts.
func (o Output) of(label string) Output {
	if o.Path == "" {
		return o
	}
	o.Stem += "-" + label
	o.Path = o.Stem + o.Ending
	return o
}

// name returns the name that the other side uses.
func (o Output) name() string {
	if o.Path == "" {
		return ""
	}
	return filepath.Base(o.Path)
}

// place returns the path of the file that the other side calls name, false if the output has none of
// this name.
func (o Output) place(name string) (string, bool) {
	if o.Path == "" {
		return "", false
	}
	switch o.Form {
	case File:
		return o.Path, name == o.name()
	case Series:
		number, ok := strings.CutPrefix(name, filepath.Base(o.Stem)+"-")
		number, end := strings.CutSuffix(number, o.Ending)
		_, err := strconv.ParseUint(number, 10, 32)
		return o.Stem + "-" + number + o.Ending, ok && end && err == nil
	default:
		folder, file := filepath.Split(name)
		// What is printable is safe in a terminal, and a hidden file might configure something.
		ok := folder == o.name()+"/" && file != "" && !strings.HasPrefix(file, ".") && plain.Terminal(file) == file
		return filepath.Join(o.Path, file), ok
	}
}

// check fails if the output cannot be written, before anything is measured.
func (o Output) check(ctx context.Context) error {
	if o.Path == "" || o.Form == Folder {
		return nil
	}
	path := o.Path
	if o.Form == Series {
		path, _ = o.place(filepath.Base(o.Stem) + "-0001" + o.Ending)
	}
	f, err := atomicfile.Create(ctx, path)
	if err != nil {
		return err
	}
	return f.Abort()
}

// receiver writes the files that the other side sends.
type receiver struct {
	outputs []Output
	limit   int64 // bytes that the other side may still send

	file  *atomicfile.File
	left  int64 // bytes of the file that are to come
	files int
}

// spend takes bytes of the limit.
func (r *receiver) spend(n int) error {
	if r.limit -= int64(n); r.limit < 0 {
		return fmt.Errorf("more than %d GiB came back: the rest was not taken", maxBytes>>30)
	}
	return nil
}

// begin begins a file.
func (r *receiver) begin(ctx context.Context, body []byte) error {
	var info fileInfo
	if err := json.Unmarshal(body, &info); err != nil || r.file != nil || info.Size < 0 {
		return errGarbled
	}
	for _, o := range r.outputs {
		path, ok := o.place(info.Name)
		if !ok {
			continue
		}
		if r.files++; r.files > maxFiles {
			return errors.New("too many files came back: the rest was not taken")
		}
		if o.Form == Folder {
			if err := os.MkdirAll(o.Path, 0o755); err != nil {
				return err
			}
		}
		var err error
		r.file, err = atomicfile.Create(ctx, path)
		r.left = info.Size
		return err
	}
	return fmt.Errorf("the other side sends a file that was not asked for, %s", plain.Terminal(info.Name))
}

// data writes a part of a file.
func (r *receiver) data(body []byte) error {
	if r.left -= int64(len(body)); r.file == nil || r.left < 0 {
		return errGarbled
	}
	_, err := r.file.Write(body)
	return err
}

// finish gives a file its name.
func (r *receiver) finish() error {
	if r.file == nil || r.left != 0 {
		return errGarbled
	}
	f := r.file
	r.file = nil
	return f.Commit()
}

// abort discards a file that is not whole.
func (r *receiver) abort() error {
	if r.file == nil {
		return nil
	}
	return r.file.Abort()
}
