package offline

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"

	"fulgur/internal/message/plain"
	"fulgur/internal/perfdata"
	"fulgur/internal/profile/code"
	"fulgur/internal/symbols/debugfile"
	"fulgur/internal/symbols/symbolize"
	"fulgur/internal/unwind"
	"fulgur/internal/unwind/unwindmap"
)

// perfTables makes the tables to unwind the stacks in perf.data, from the files of this
// machine.
type perfTables struct {
	ctx      context.Context
	finder   *debugfile.Finder
	bytes    int // of all tables
	refused  int // number of files without a table, as there was no room
	problems []error
}

// maxPerfTables bounds the memory of all tables, in bytes. All libraries of a large desktop
// take less. A perf.data file can name every file of the machine.
const maxPerfTables = 512 << 20

// warn calls warn for each problem.
func (t *perfTables) warn(warn func(error)) {
	for _, problem := range t.problems {
		warn(problem)
	}
	if t.refused > 0 {
		warn(fmt.Errorf("no unwind tables for %s: the tables of other files take %d MiB", plain.Count(uint64(t.refused), "file"), t.bytes>>20))
	}
}

// code returns the code of a mapped file, or nothing if the file is missing or of another build, which [naming.Resolver]
// reports.
func (t *perfTables) code(m perfdata.Mapped, machine elf.Machine) unwind.Code {
	if t.bytes > maxPerfTables {
		t.refused++
		return unwind.Code{}
	}
	known, err := t.compile(m, machine)
	if err != nil && !errors.Is(err, unwind.ErrNoTable) {
		t.problems = append(t.problems, fmt.Errorf("no unwind table: %w", err))
	}
	if known.Table != nil {
		t.bytes += known.Table.Bytes()
	}
	return known
}

// compile makes the table of a file that is here, for the machine.
func (t *perfTables) compile(m perfdata.Mapped, machine elf.Machine) (known unwind.Code, err error) {
	file, err := code.Open(t.ctx, t.finder.Local(), m.Path, m.BuildID, symbolize.Options{})
	if err != nil {
		return unwind.Code{}, nil // the Resolver reports it
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	binary, ok := file.ELF()
	if !ok || binary.Machine() != machine {
		return unwind.Code{}, nil
	}
	finder := t.finder.Local()
	if m.Path == code.VDSO {
		finder = nil
	}
	binary.SetContext(t.ctx)
	table, err := unwindmap.Compile(t.ctx, binary, finder, unwind.Options{})
	return unwind.CodeOf(binary.File, table), err
}
