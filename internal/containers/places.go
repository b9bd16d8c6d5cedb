package containers

import (
	"bytes"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/files/safeopen"
	"fulgur/internal/linux/capability"
	"fulgur/internal/linux/procfs"
)

// places finds the directories in which runtimes keep their files. It is safe for
// concurrent use.
type places struct {
	// root replaces "/" in tests.
	root string
	// mounts returns the mount points, and daemons the running daemons of docker and
	// containerd.
	mounts  func() ([]*procfs.Mount, error)
	daemons func() []daemon
	// home returns the home directory of a user, "" if unknown.
	home func(uid int) string

	mu    sync.Mutex
	at    time.Time // of the last search
	found directories
}

// directories holds the directories of runtimes of the whole system.
type directories struct{ docker, containerd, storage []string }

// searchEvery is the minimum time between two searches, because each lookup of an unknown
// container requests one.
const searchEvery = 5 * time.Second

func newPlaces() *places {
	return &places{root: "/", mounts: procfs.Mounts, daemons: newDaemonSearch().running, home: homeOf}
}

// system returns the directories of the whole system, searching again if the last search
// is old.
func (p *places) system() directories {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at.IsZero() || time.Since(p.at) > searchEvery {
		p.found, p.at = p.search(), time.Now()
	}
	return p.found
}

// docker returns the data roots of docker that may have a container.
func (p *places) docker(c candidate) []string {
	if c.uid != 0 {
		return p.inHome(c.uid, ".local/share/docker")
	}
	list := slices.Clip(p.system().docker) // shared
	// Docker runs its containers by containerd, and mounts files of its data root into
	// them.
	for _, root := range p.containerd() {
		var spec specification
		path := filepath.Join(root, shims, "moby", c.id, "config.json")
		if err := (state{}).readJSON(path, maxConfig, &spec); err == nil {
			list = addNew(list, spec.dockerRoot(c.id))
		}
	}
	return list
}

// containerd returns the state directories of containerd.
func (p *places) containerd() []string { return p.system().containerd }

// storage returns the directories of github.com/containers/storage that may have a
// container.
func (p *places) storage(c candidate) []string {
	if c.uid != 0 {
		return append(p.inHome(c.uid, ".local/share/containers/storage"), filepath.Join(p.root, "run", "user", strconv.Itoa(c.uid), "containers"))
	}
	return p.system().storage
}

// inHome returns a path in the home directory of a user, or nothing if it is unknown.
func (p *places) inHome(uid int, path string) []string {
	home := clean(p.home(uid))
	if home == "" {
		return nil
	}
	return []string{filepath.Join(p.root, home, path)}
}

// homeOf returns the home directory of a user, "" if unknown.
func homeOf(uid int) string {
	u, err := user.LookupId(strconv.Itoa(uid))
	if err != nil {
		return ""
	}
	return u.HomeDir
}

// search finds the directories: the defaults, and those in configuration files, in the
// arguments of daemons and in mount points.
func (p *places) search() directories {
	d := directories{
		docker:     []string{p.below("/var/lib/docker"), p.below("/var/snap/docker/common/var-lib-docker")},
		containerd: []string{p.below("/run/containerd"), p.below("/run/k3s/containerd"), p.below("/run/docker/containerd/daemon")},
		storage:    []string{p.below("/var/lib/containers/storage"), p.below("/run/containers/storage")},
	}
	d.docker = addNew(d.docker, p.dockerConfig("/etc/docker/daemon.json"))
	d.containerd = addNew(d.containerd, p.options("/etc/containerd/config.toml", stateOption)...)
	for _, daemon := range p.daemons() {
		args := daemon.args
		if daemon.name == "containerd" {
			d.containerd = addNew(d.containerd, clean(flag(args, "--state")))
			d.containerd = addNew(d.containerd, p.options(flag(args, "-c", "--config"), stateOption)...)
			continue
		}
		d.docker = addNew(d.docker, clean(flag(args, "--data-root", "-g", "--graph")), p.dockerConfig(flag(args, "--config-file")))
		if exec := clean(flag(args, "--exec-root")); exec != "" {
			d.containerd = addNew(d.containerd, filepath.Join(exec, "containerd", "daemon"))
		}
	}
	for _, path := range []string{"/usr/share/containers/storage.conf", "/etc/containers/storage.conf"} {
		d.storage = addNew(d.storage, p.options(path, storageOption)...)
	}
	mounts, err := p.mounts()
	if err != nil {
		return d
	}
	var fromMounts directories
	for _, m := range mounts {
		fromMounts.add(m.Mountpoint)
	}
	for _, found := range []struct{ to, from *[]string }{
		{&d.docker, &fromMounts.docker}, {&d.containerd, &fromMounts.containerd}, {&d.storage, &fromMounts.storage},
	} {
		for _, path := range *found.from {
			if rootControls(path) {
				*found.to = addNew(*found.to, path)
			}
		}
	}
	return d
}

func (p *places) below(path string) string { return filepath.Join(p.root, path) }

// dockerConfig returns the data root in a configuration file of docker, or "".
func (p *places) dockerConfig(path string) string {
	if clean(path) == "" {
		return ""
	}
	var config struct {
		DataRoot string `json:"data-root"`
		Graph    string `json:"graph"` // before version 17.05
	}
	if err := (state{}).readJSON(p.below(path), maxConfig, &config); err != nil {
		return ""
	}
	return clean(firstOf(config.DataRoot, config.Graph))
}

func firstOf(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// flag returns the value of one of the flags in args, or "".
func flag(args []string, names ...string) string {
	for i, arg := range args {
		for _, name := range names {
			if value, ok := strings.CutPrefix(arg, name+"="); ok {
				return value
			}
			if arg == name && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}

// Directories in configuration files in TOML: see containers-storage.conf(5) and
// containerd-config.toml(5).
var (
	storageOption = regexp.MustCompile(`^\s*(?:graphroot|runroot)\s*=\s*["']([^"'\\]*)["']\s*(?:#.*)?$`)
	stateOption   = regexp.MustCompile(`^\s*state\s*=\s*["']([^"'\\]*)["']\s*(?:#.*)?$`)
)

// options returns the directories in the matching lines of a configuration file, or none if
// it cannot be read.
func (p *places) options(path string, line *regexp.Regexp) []string {
	if clean(path) == "" {
		return nil
	}
	text, err := (state{}).read(p.below(path), maxConfig)
	if err != nil {
		return nil
	}
	return parseOptions(text, line)
}

// parseOptions returns the directories in the lines that match.
func parseOptions(text []byte, line *regexp.Regexp) (list []string) {
	for text := range bytes.Lines(text) {
		if m := line.FindSubmatch(bytes.TrimRight(text, "\r\n")); m != nil {
			list = addNew(list, clean(string(m[1])))
		}
	}
	return list
}

// mountPoints matches mount points of containers, and captures the directory of their
// runtime.
var mountPoints = []struct {
	pattern *regexp.Regexp
	add     func(*directories, string)
}{
	{regexp.MustCompile(`^(/.+)/containers/[0-9a-f]{64}/mounts/shm$`), (*directories).addDocker},
	{regexp.MustCompile(`^(/.+)/overlay2/[0-9a-f]{64}/merged$`), (*directories).addDocker},
	{regexp.MustCompile(`^(/.+)/` + regexp.QuoteMeta(shims) + `/[^/]+/[^/]+/rootfs$`), (*directories).addContainerd},
	{regexp.MustCompile(`^(/.+)/[a-z0-9]+-containers/[0-9a-f]{64}/userdata/shm$`), (*directories).addStorage},
	{regexp.MustCompile(`^(/.+)/overlay/[0-9a-f]{64}/merged$`), (*directories).addStorage},
}

func (d *directories) addDocker(path string)     { d.docker = addNew(d.docker, path) }
func (d *directories) addContainerd(path string) { d.containerd = addNew(d.containerd, path) }
func (d *directories) addStorage(path string)    { d.storage = addNew(d.storage, path) }

// maxDirectories limits the directories found in mount points.
const maxDirectories = 32

// add adds the directory of a runtime that has a container's mount point at path.
func (d *directories) add(path string) {
	if len(path) > maxPath || len(d.docker)+len(d.containerd)+len(d.storage) >= maxDirectories {
		return
	}
	for _, p := range mountPoints {
		if m := p.pattern.FindStringSubmatch(path); m != nil {
			p.add(d, m[1])
		}
	}
}

// rootControls reports whether a directory and its ancestors belong to root, and no other
// user can rename their entries. It stops at the first directory of another user: below it
// may be a file system that the user mounted, which may show any owner, or hang.
func rootControls(path string) bool { return rootControlsBy(path, safeopen.StatTrusted) }

func rootControlsBy(path string, stat func(string, capability.Set) (os.FileInfo, error)) bool {
	way := []string{}
	for at := filepath.Clean(path); ; at = filepath.Dir(at) {
		way = append(way, at)
		if at == "/" || at == "." {
			break
		}
	}
	for _, at := range slices.Backward(way) {
		info, err := stat(at, capability.SetOf(capability.DACReadSearch))
		if err != nil || !info.IsDir() {
			return false
		}
		st, ok := info.Sys().(*syscall.Stat_t)
		if !ok || st.Uid != 0 || st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
			return false
		}
	}
	return true
}
