package debugfile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"fulgur/internal/files/atomicfile"
	"fulgur/internal/files/safeopen"
)

// cache is the download directory shared with elfutils' debuginfod client. BUILDID/debuginfo
// is a debug file; an empty one means that no server had the file at its modification time.
// Control files in the directory set the cache's intervals, in seconds.
//
// The directory is the user's choice, and may be on a file system that does not respond. The
// methods used by [downloads] wait for it only briefly, and return an error at once until it responds: the
// run goes on without the cache.
type cache struct{ dir string }

// The control files, and the defaults without them.
const (
	missFile, defaultMiss         = "cache_miss_s", 600
	cleanFile, defaultClean       = "cache_clean_interval_s", 86400
	maxUnusedFile, defaultMaxAge  = "max_unused_age_s", 604800
	debugInfoName, maxControlFile = "debuginfo", 64
)

// newCache returns the cache selected by the environment.
func newCache(getenv func(string) string) (*cache, error) {
	dir := getenv("DEBUGINFOD_CACHE_PATH")
	home := getenv("HOME")
	if old := filepath.Join(home, ".debuginfod_client_cache"); dir == "" && home != "" {
		info, err := safeopen.Attempt(home, func() (fs.FileInfo, error) { return os.Stat(old) })
		if err == nil && info.IsDir() {
			dir = old
		}
	}
	if base := getenv("XDG_CACHE_HOME"); dir == "" && base != "" {
		dir = filepath.Join(base, "debuginfod_client")
	}
	if dir == "" && home != "" {
		dir = filepath.Join(home, ".cache", "debuginfod_client")
	}
	if dir == "" {
		return nil, errors.New("debuginfod: no place for downloads; set DEBUGINFOD_CACHE_PATH, XDG_CACHE_HOME or HOME")
	}
	dir, err := filepath.Abs(dir)
	return &cache{dir}, err
}

// path returns the path of the debug file with the given build ID.
func (c *cache) path(id string) string { return filepath.Join(c.dir, id, debugInfoName) }

// lookup returns the path of the debug file with the given build ID, or "" if it is not
// cached. It returns an error if the file cannot be read, or if the cache records that no
// server has it.
func (c *cache) lookup(id string) (string, error) {
	return safeopen.Attempt(c.dir, func() (string, error) { return c.find(id) })
}

// find is [cache.lookup] without a time limit.
func (c *cache) find(id string) (string, error) {
	name := c.path(id)
	info, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	if info.Size() > 0 {
		// The cleaner keeps recently used files. A read-only cache is still usable.
		_ = os.Chtimes(name, time.Now(), info.ModTime())
		return name, nil
	}
	if time.Since(info.ModTime()) <= c.control(missFile, defaultMiss) {
		return "", fmt.Errorf("no server had the file at %s (cached in %s)", info.ModTime().Format(time.TimeOnly), name)
	}
	c.erase(name)
	return "", nil
}

// prepare creates the directory for the debug file with the given build ID.
func (c *cache) prepare(id string) (string, error) {
	name := c.path(id)
	return name, os.MkdirAll(filepath.Dir(name), 0o700)
}

// create creates the debug file with the given build ID. The file appears when it is
// committed.
func (c *cache) create(id string) (*atomicfile.File, error) {
	file, err := safeopen.Attempt(c.dir, func() (created, error) {
		name, err := c.prepare(id)
		if err != nil {
			return created{}, err
		}
		file, err := atomicfile.Create(context.Background(), name) // never a pipe
		return created{file}, err
	})
	return file.File, err
}

// created is a new file.
type created struct{ *atomicfile.File }

// Close aborts the file: it was created too late.
func (c created) Close() error { return c.Abort() }

// miss records that no server has the debug file with the given build ID.
func (c *cache) miss(id string) error {
	_, err := safeopen.Attempt(c.dir, func() (struct{}, error) { return struct{}{}, c.touch(id) })
	return err
}

// touch creates an empty file for the given build ID.
func (c *cache) touch(id string) error {
	name, err := c.prepare(id)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return file.Close()
}

// remove removes a file from the cache, and its directory if that is then empty. Files
// that cannot be removed are left for another time.
func (c *cache) remove(name string) {
	_, _ = safeopen.Attempt(c.dir, func() (struct{}, error) { c.erase(name); return struct{}{}, nil })
}

// erase is [cache.remove] without a time limit.
func (c *cache) erase(name string) {
	_ = os.Remove(name)
	_ = os.Remove(filepath.Dir(name))
}

// cleanBriefly cleans the cache, and waits for that only briefly: a large cache on a network
// file system takes long. The rest is cleaned in the background.
func (c *cache) cleanBriefly() {
	if safeopen.Answer(c.dir) != nil {
		return
	}
	_, _ = safeopen.Ask(nil, safeopen.Backend{Path: filepath.Join(c.dir, cleanFile)}, func(*safeopen.Request) (struct{}, error) {
		c.clean()
		return struct{}{}, nil
	})
}

// clean removes files that have not been used for long, at intervals. Errors cost disk
// space but no symbols.
func (c *cache) clean() {
	control := filepath.Join(c.dir, cleanFile)
	info, err := os.Stat(control)
	if err != nil {
		// The file's time is the time of the last cleaning.
		if os.MkdirAll(c.dir, 0o700) == nil {
			_ = os.WriteFile(control, fmt.Appendln(nil, defaultClean), 0o600)
		}
		return
	}
	if time.Since(info.ModTime()) < c.control(cleanFile, defaultClean) {
		return
	}
	_ = os.Chtimes(control, time.Now(), time.Now())
	maxAge := c.control(maxUnusedFile, defaultMaxAge)
	_ = filepath.WalkDir(c.dir, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && c.isArtifact(name) {
			if info, err := entry.Info(); err == nil && time.Since(lastUse(info)) > maxAge {
				c.erase(name)
			}
		}
		return nil // skip unreadable files
	})
}

// isArtifact reports whether name is a file downloaded by any client: a name that begins
// with a known kind, in a directory named by a build ID.
func (c *cache) isArtifact(name string) bool {
	rel, err := filepath.Rel(c.dir, name)
	if err != nil {
		return false
	}
	id, file, ok := strings.Cut(rel, string(filepath.Separator))
	if !ok || strings.Trim(id, "0123456789abcdef") != "" {
		return false
	}
	for _, kind := range []string{debugInfoName, "executable", "source", "section"} {
		if strings.HasPrefix(file, kind) {
			return true
		}
	}
	return false
}

// lastUse returns when a file was last read or written.
func lastUse(info fs.FileInfo) time.Time {
	used := info.ModTime()
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		if read := time.Unix(stat.Atim.Unix()); read.After(used) {
			used = read
		}
	}
	return used
}

// control returns the duration in a control file.
func (c *cache) control(name string, otherwise int64) time.Duration {
	b, err := os.ReadFile(filepath.Join(c.dir, name))
	if err != nil || len(b) > maxControlFile {
		return time.Duration(otherwise) * time.Second
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	if err != nil || n < 0 {
		n = otherwise
	}
	if n > int64(1<<63-1)/int64(time.Second) {
		return 1<<63 - 1
	}
	return time.Duration(n) * time.Second
}
