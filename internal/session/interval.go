package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"fulgur/internal/files/atomicfile"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/output"
)

// Files returns a [Sink] that writes each window to a file of its own:
// "name-0001.pb.gz" and so on for the output "name.pb.gz". Numbers continue after
// existing files and skip files that appear meanwhile. If keep is not 0, only
// the newest keep files remain: the sink removes older ones that it wrote
// itself, and no others. It reports each file on o.Stderr. If o names no file
// or an unknown format, Files fails with a [usage.Err].
func Files(o *Options, keep int) (Sink, error) {
	if output.IsStream(o.Output) {
		return nil, usage.Errorf("each window is written to a file: name them with %s, for example %[1]s name.pb.gz", usage.Output)
	}
	f, err := o.format()
	if err != nil {
		return nil, err
	}
	files := &numbered{options: o, format: f, keep: keep}
	files.stem, files.ending = output.SplitEnding(o.Output)
	if files.last, err = files.highest(); err != nil {
		return nil, err
	}
	return SinkFunc(files.write), nil
}

// numbered writes the files of windows.
type numbered struct {
	options      *Options
	format       output.Format
	stem, ending string
	keep         int
	last         int // number of the last file
	written      []writtenFile
}

// writtenFile describes a file just after it was written.
type writtenFile struct {
	path string
	info fs.FileInfo
}

func (n *numbered) path(number int) string { return fmt.Sprintf("%s-%04d%s", n.stem, number, n.ending) }

// highest returns the highest number of an existing file, 0 if there is none.
func (n *numbered) highest() (int, error) {
	entries, err := os.ReadDir(filepath.Dir(n.stem))
	if err != nil {
		return 0, fmt.Errorf("look for earlier windows: %w", err)
	}
	highest := 0
	for _, e := range entries {
		digits, isOurs := strings.CutPrefix(e.Name(), filepath.Base(n.stem)+"-")
		digits, ends := strings.CutSuffix(digits, n.ending)
		// Ignore names that are not generated from a number.
		if number, err := strconv.ParseInt(digits, 10, 32); err == nil && isOurs && ends {
			highest = max(highest, int(number))
		}
	}
	return highest, nil
}

// write writes a window and removes surplus files.
func (n *numbered) write(_ context.Context, w Window) error {
	n.last++
	path := n.path(n.last)
	err := n.create(path, w)
	for errors.Is(err, fs.ErrExist) { // another run may be counting, too
		n.last++
		path = n.path(n.last)
		err = n.create(path, w)
	}
	if err != nil {
		return err
	}
	switch info, err := os.Lstat(path); {
	case err == nil:
		n.written = append(n.written, writtenFile{path, info})
	case !errors.Is(err, fs.ErrNotExist): // the reader may have removed it already
		return fmt.Errorf("check the earlier files: %w", err)
	}
	n.report(w, path)
	return n.remove()
}

// create writes a new file. It fails with [fs.ErrExist] if the file exists.
func (n *numbered) create(path string, w Window) error {
	out, err := atomicfile.CreateNew(path)
	if err != nil {
		return err
	}
	if err := n.format.Write(out, w.Profile, nil, n.options.output(), w.Value); err != nil {
		return errors.Join(err, out.Abort())
	}
	return out.Commit()
}

// remove removes the oldest files. It leaves a file that was removed or
// replaced meanwhile.
func (n *numbered) remove() error {
	for n.keep > 0 && len(n.written) > n.keep {
		oldest := n.written[0]
		n.written = n.written[1:]
		is, err := os.Lstat(oldest.path)
		if err != nil || !os.SameFile(is, oldest.info) || !is.ModTime().Equal(oldest.info.ModTime()) {
			continue
		}
		if err := os.Remove(oldest.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the oldest window: %w", err)
		}
	}
	if n.keep == 0 {
		n.written = nil
	}
	return nil
}

// report prints a line about a window.
func (n *numbered) report(w Window, path string) {
	if n.options.Quiet {
		return
	}
	p := w.Profile
	amount := describe.Headline(p, w.Value)
	lost := describe.Lost(p.Losses, describe.NounOfProfile(p), 0)
	begin := ""
	if n.options.Progress {
		begin = "\r\x1b[K" // overwrites the progress line
	}
	fmt.Fprintf(n.options.Stderr, "%s%s: %s in %.1f s, %s\n", begin, plain.Terminal(path), amount, p.Meta.Duration.Seconds(), lost)
}
