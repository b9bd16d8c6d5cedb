package remote

import (
	"crypto/sha256"
	"debug/elf"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"

	"fulgur/internal/message/plain"
)

// hostScript prepares a host.
//
//go:embed host.sh
var hostScript string

// installer prepares a host: fulgur runs there afterwards.
type installer struct {
	*setup
	*link
	mark string // of lines from the host
}

// script returns the script for the host.
func (i *installer) script() string {
	keep := 0
	if i.keep {
		keep = 1
	}
	return fmt.Sprintf("mark=%s keep=%d\n%s", i.mark, keep, hostScript)
}

// machines maps the names of uname -m to those of Go.
var machines = map[string]string{"x86_64": "amd64", "aarch64": "arm64"}

// install runs the script, and so starts fulgur.
func (i *installer) install(script string) error {
	if _, err := io.WriteString(i.w, script); err != nil {
		return err
	}
	_, system, err := i.read("system")
	if err != nil {
		return err
	}
	i.connected() // nothing asks for a password any more
	name, machine, _ := strings.Cut(system, " ")
	arch := machines[machine]
	if name != "Linux" || arch == "" {
		return fmt.Errorf("fulgur does not run there: %s on %s instead of Linux on x86_64 or aarch64", plain.Terminal(name), plain.Terminal(machine))
	}
	p, missing := i.programs.of(arch)
	if missing != nil && !errors.Is(missing, fs.ErrNotExist) {
		return missing
	}
	version := strings.Replace(i.version, "linux/"+runtime.GOARCH, "linux/"+arch, 1)
	if strings.Contains(version, "dirty") || strings.Contains(version, "(devel)") {
		version = "" // it is that of many programs
	}
	if p == nil {
		p = &program{sum: "-"}
	}
	if _, err := fmt.Fprintf(i.w, "%d %s %s\n", p.size, p.sum, version); err != nil {
		return err
	}
	word, rest, err := i.read("send", "run")
	if err == nil && word == "send" {
		if err = i.copy(p); err == nil {
			_, rest, err = i.read("run")
		}
	}
	if errors.Is(err, errMissing) {
		return fmt.Errorf("its architecture is %s: %w, and this version is not installed there: take fulgur from fulgur-VERSION-linux-%[1]s.tar.gz of this release", arch, missing)
	}
	if err != nil {
		return err
	}
	as, path, _ := strings.Cut(rest, " ")
	if as == "user" {
		i.note("without root there: sudo is missing, asks for a password or does not allow it")
	}
	if i.keep && word == "send" {
		i.note("kept there: %s", plain.Terminal(path))
	}
	return nil
}

// hostError is what the script on a host says before it ends.
type hostError string

func (e hostError) Error() string { return string(e) }

// errMissing is the error if there is no program for a host.
const errMissing hostError = "missing"

// read returns the next line of the script, which must begin with one of words, without that word.
func (i *installer) read(words ...string) (word, rest string, err error) {
	line, err := readLine(i.r, i.mark)
	if err != nil {
		return "", "", err
	}
	i.heard()
	word, rest, _ = strings.Cut(line, " ")
	if word == "failed" {
		return "", "", hostError(plain.Terminal(rest))
	}
	for _, w := range words {
		if w == word {
			return word, rest, nil
		}
	}
	return "", "", errGarbled
}

// copy sends the program. If the host no longer takes it, the next line says why.
func (i *installer) copy(p *program) error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read-only
	for buffer := make([]byte, chunk); ; {
		n, err := f.Read(buffer)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := i.w.Write(buffer[:n]); err != nil {
			return nil // the host's own message is better
		}
		i.heard()
	}
}

// program is fulgur for an architecture.
type program struct {
	path string
	size int64
	sum  string // SHA-256, in hexadecimal
}

// programs finds programs.
type programs struct {
	mu    sync.Mutex
	found map[string]*program // by architecture
}

// of returns the program for an architecture: this one, or the file fulgur-linux-ARCH beside it. The error
// is [fs.ErrNotExist] if there is none.
func (p *programs) of(arch string) (*program, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known := p.found[arch]; known != nil {
		return known, nil
	}
	path := "/proc/self/exe"
	if arch != runtime.GOARCH {
		own, err := os.Executable()
		if err != nil {
			return nil, err
		}
		path = filepath.Join(filepath.Dir(own), "fulgur-linux-"+arch)
	}
	found, err := readProgram(path, arch)
	if err != nil {
		return nil, err
	}
	p.found[arch] = found
	return found, nil
}

// readProgram checks whether a file can run on hosts of an architecture.
func readProgram(path, arch string) (*program, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // read-only
	image, err := elf.NewFile(f)
	if err != nil {
		return nil, fmt.Errorf("%s is not a program of Linux: %w", path, err)
	}
	if want := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[arch]; image.Machine != want {
		return nil, fmt.Errorf("%s is for %v, not for %s", path, image.Machine, arch)
	}
	for _, p := range image.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, fmt.Errorf("%s is linked dynamically, so it may not run on other hosts: build it with CGO_ENABLED=0", path)
		}
	}
	sum := sha256.New()
	size, err := io.Copy(sum, io.NewSectionReader(f, 0, 1<<40))
	if err != nil {
		return nil, err
	}
	return &program{path, size, fmt.Sprintf("%x", sum.Sum(nil))}, nil
}
