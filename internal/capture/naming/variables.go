package naming

import (
	"context"
	"errors"
	"log/slog"
	"os"

	"fulgur/internal/capture/stacks"
	"fulgur/internal/process"
	"fulgur/internal/symbols/symbolize"
)

// Variable is an address in the variables of a mapped file: at a distance, in bytes, from the beginning of a mapping
// that begins at a file offset. The generation of the file's inode is not known.
type Variable struct {
	File             process.FileKey
	Offset, Distance uint64
}

// Variables returns the names of variables, as far as they can be found: in files that also have code of the store's
// stacks.
func (p *StackBuilder) Variables(wanted []Variable) map[Variable]string {
	if p.names.Later {
		return nil
	}
	byFile := map[process.FileKey][]Variable{}
	for _, v := range wanted {
		byFile[v.File] = append(byFile[v.File], v)
	}
	found := map[Variable]string{}
	for key, file := range p.files() {
		if len(byFile[key]) == 0 || file == nil {
			continue
		}
		if err := p.names.findVariables(file, byFile[key], found); err != nil {
			slog.Debug("variables", "file", file.Path, "addresses", len(byFile[key]), "error", err)
		}
	}
	return found
}

// files returns the files of the store's code by their keys without the generation, nil for a key of several files.
func (p *StackBuilder) files() map[process.FileKey]*process.File {
	files := map[process.FileKey]*process.File{}
	for _, c := range p.Store.Codes {
		if c.Kind != stacks.CodeFile {
			continue
		}
		key := c.File.Key
		key.Gen = 0
		if other, ok := files[key]; ok && other != c.File {
			files[key] = nil
			continue
		}
		files[key] = c.File
	}
	return files
}

// findVariables adds the names of variables of a file to found.
func (n *Names) findVariables(file *process.File, wanted []Variable, found map[Variable]string) (err error) {
	elf, _ := n.Cache.table(file)
	if elf == nil {
		if elf, err = n.openELF(file); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, elf.Close()) }()
		elf.Search(n.lookups(), n.finder, file.Root(), file.Path)
	}
	return variablesIn(elf, wanted, found)
}

func variablesIn(elf *symbolize.ELF, wanted []Variable, found map[Variable]string) error {
	var at []Variable
	var addrs []uint64
	for _, v := range wanted {
		if addr, ok := elf.File().DataAddress(v.Offset, v.Distance, uint64(os.Getpagesize())); ok {
			at, addrs = append(at, v), append(addrs, addr)
		}
	}
	names, err := elf.Variables(addrs)
	for i, name := range names {
		if name != "" {
			found[at[i]] = name
		}
	}
	return err
}

// lookups returns the context of [Names.Symbolize], whose end also ends later lookups.
func (n *Names) lookups() context.Context {
	if n.ctx == nil {
		return context.Background()
	}
	return n.ctx
}
