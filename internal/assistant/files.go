package assistant

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxFiles limits the listed files, and maxSeen those that are looked at.
const (
	maxFiles = 200
	maxSeen  = 10_000
)

// file describes a file of the folder.
type file struct {
	Name     string    `json:"name"`
	Bytes    int64     `json:"bytes"`
	Modified time.Time `json:"modified"`
}

// files lists the files of the folder and of the folders in it, newest first.
func (s *server) files(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
	list, seen := []file{}, 0
	err := fs.WalkDir(s.folder.FS(), ".", func(path string, entry fs.DirEntry, err error) error {
		if seen++; seen > maxSeen {
			return fs.SkipAll
		}
		if err != nil || !entry.Type().IsRegular() {
			return nil //nolint:nilerr // the other files are listed
		}
		if info, err := entry.Info(); err == nil {
			list = append(list, file{path, info.Size(), info.ModTime()})
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(list, func(a, b file) int { return cmp.Or(b.Modified.Compare(a.Modified), cmp.Compare(a.Name, b.Name)) })
	more := max(len(list)-maxFiles, 0)
	encoded, err := json.Marshal(struct {
		Files []file `json:"files"`
		More  int    `json:"more"`
	}{list[:len(list)-more], more})
	if err != nil {
		return nil, nil, err
	}
	return text(string(encoded))
}

// open opens a profile of the folder. It refuses what is not a regular file, and names that leave the folder, also
// by symbolic links.
func (s *server) open(name string) (*os.File, error) {
	info, err := s.folder.Stat(name)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return s.folder.Open(name)
}

// newFile returns the path of a new file of the folder.
func (s *server) newFile(name string) (string, error) {
	if !newName.MatchString(name) {
		return "", fmt.Errorf("%q is no name for a file: use up to 100 letters, digits, dots, hyphens and underscores", name)
	}
	if _, err := s.folder.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		return "", cmp.Or(err, fmt.Errorf("%s exists: choose another name", name))
	}
	return filepath.Join(s.Dir, name), nil
}

var newName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)
