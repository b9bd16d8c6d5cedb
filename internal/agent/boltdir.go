package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/branches"
	"fulgur/internal/message/usage"
)

// boltDir is a directory of branch profiles: one of each build of a program and day, named
// NAME.DATE.BUILDID.preagg, with the date in UTC.
type boltDir struct {
	path  string
	limit int64 // of all files, in bytes
}

// boltFile matches the names of profiles, with the date. A build ID can have any length.
var boltFile = regexp.MustCompile(`\.(\d{4}-\d\d-\d\d)\.[0-9a-f]+\.preagg$`)

// The profile of a window has this name until it is merged. A profile that cannot be read
// gets another ending.
const boltWindow, corruptEnding = ".window.preagg", ".corrupt"

// errFull means that a window was dropped because its day's profile would be too large.
var errFull = errors.New("the profile would exceed the limit of the directory")

// open creates the directory if needed, and checks that nobody else can write to it.
func (d boltDir) open() error {
	if err := os.MkdirAll(d.path, 0o755); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(d.path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: d.path, Err: err}
	}
	switch {
	case st.Uid != uint32(os.Geteuid()):
		return usage.Errorf("%s belongs to user %d: it must belong to user %d, who runs fulgur", d.path, st.Uid, os.Geteuid())
	case st.Mode&0o022 != 0:
		return usage.Errorf("%s has mode %#o: remove the permissions %#o with chmod, so that others cannot change profiles", d.path, st.Mode&0o777, st.Mode&0o022)
	}
	return nil
}

// window returns the path for the profile of a window.
func (d boltDir) window() string { return filepath.Join(d.path, boltWindow) }

// add adds the profile of a window to the profile of its build and day, which it replaces
// atomically. It returns the path, whether it is a new one, and how many old files it
// removed to make room.
func (d boltDir) add(ctx context.Context, c branches.Collected, now time.Time) (path string, fresh bool, removed int, err error) {
	defer func() { err = errors.Join(err, removeIfThere(c.Profile)) }()
	if c.BuildID == "" {
		return "", false, 0, fmt.Errorf("%s has no build ID: link it with -Wl,--build-id", c.Name)
	}
	name := strings.TrimPrefix(filepath.Base(c.Name), ".")
	path = filepath.Join(d.path, fmt.Sprintf("%s.%s.%s.preagg", name, now.UTC().Format(time.DateOnly), c.BuildID))
	inputs := []string{c.Profile}
	switch _, err := os.Lstat(path); {
	case err == nil:
		inputs = append(inputs, path)
	case errors.Is(err, fs.ErrNotExist):
		fresh = true
	default:
		return "", false, 0, err
	}
	merged := path + ".new"
	defer func() { err = errors.Join(err, removeIfThere(merged)) }()
	if err := merge(ctx, inputs, merged); err != nil {
		if fresh || ctx.Err() != nil {
			return "", false, 0, err
		}
		// A profile that was damaged must not prevent new ones.
		if err := errors.Join(os.Rename(path, path+corruptEnding), merge(ctx, inputs[:1], merged)); err != nil {
			return "", false, 0, err
		}
		fresh = true
	}
	info, err := os.Stat(merged)
	if err != nil {
		return "", false, 0, err
	}
	if info.Size() > d.limit {
		return "", false, 0, errFull
	}
	if err := os.Rename(merged, path); err != nil {
		return "", false, 0, err
	}
	removed, err = d.makeRoom(path)
	return path, fresh, removed, err
}

func merge(ctx context.Context, inputs []string, output string) error {
	_, err := branches.Merge(ctx, branches.MergeOptions{Inputs: inputs, Output: output, Stdout: io.Discard, Stderr: io.Discard, Quiet: true})
	return err
}

// files returns the profiles, the oldest first, and the sum of their sizes in bytes.
func (d boltDir) files() (names []string, size int64, err error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, 0, err
	}
	for _, e := range entries {
		corrupt := strings.HasSuffix(e.Name(), corruptEnding)
		if !boltFile.MatchString(strings.TrimSuffix(e.Name(), corruptEnding)) || !e.Type().IsRegular() {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // someone has moved it away
		}
		if err != nil {
			return nil, 0, err
		}
		size += info.Size()
		if corrupt {
			names = slices.Insert(names, 0, e.Name())
			continue
		}
		names = append(names, e.Name())
	}
	slices.SortStableFunc(names, func(a, b string) int { return strings.Compare(date(a), date(b)) })
	return names, size, nil
}

// date returns the date in the name of a profile, "" for a damaged one.
func date(name string) string {
	if m := boltFile.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return ""
}

// makeRoom removes the oldest files but not keep, until the rest is within the limit.
func (d boltDir) makeRoom(keep string) (removed int, err error) {
	names, size, err := d.files()
	if err != nil {
		return 0, err
	}
	for _, name := range names {
		if size <= d.limit {
			break
		}
		path := filepath.Join(d.path, name)
		if path == keep {
			continue
		}
		info, err := os.Lstat(path)
		if err == nil {
			err = os.Remove(path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return removed, err
		}
		size -= info.Size()
		removed++
	}
	return removed, nil
}

// clear removes what an earlier run left behind when it was killed.
func (d boltDir) clear() error {
	left, err := filepath.Glob(filepath.Join(d.path, "*.preagg.new"))
	if err != nil {
		return err
	}
	for _, path := range append(left, d.window()) {
		err = errors.Join(err, removeIfThere(path))
	}
	return err
}

func removeIfThere(path string) error {
	if path == "" {
		return nil
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
