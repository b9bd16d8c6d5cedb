package view

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/annotate"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/encode/flame"
)

// Limits of a listing.
const (
	maxLines   = 4000 // per source file, around the lines with samples
	maxSources = 8    // files
	// contextLines is the number of lines shown before and after lines with
	// samples, if the source is longer than maxLines.
	contextLines = 100
)

// listings serves the source and the instructions of the page's functions.
type listings struct {
	page    *flamePage
	library *code.Library
}

// listing is a function's source and instructions, with the samples at each. It is
// encoded for the page.
type listing struct {
	Self     int64      `json:"self"`
	Total    int64      `json:"total"`
	Sources  []source   `json:"sources"`
	Assembly []assembly `json:"assembly"`
}

// source is a part of a source file.
type source struct {
	File string `json:"file"`
	// First is the line number of Lines[0].
	First  int        `json:"first"`
	Lines  []string   `json:"lines"`
	Counts [][3]int64 `json:"counts"` // line number, self, total
	// Newer is set if the file changed after the program was built.
	Newer bool `json:"newer"`
	// Problem says why Lines is empty.
	Problem string `json:"problem,omitempty"`
	total   int64
}

// assembly is the machine code of a function.
type assembly struct {
	Function     string        `json:"function"`
	Module       string        `json:"module"`
	Arch         string        `json:"arch"`
	Instructions []instruction `json:"instructions"`
	// Problem says why instructions are missing.
	Problem string `json:"problem,omitempty"`
}

// instruction is an instruction with its source location.
type instruction struct {
	Address hexNumber `json:"address"`
	Text    string    `json:"text"`
	Self    int64     `json:"self"`
	Total   int64     `json:"total"`
	File    string    `json:"file,omitempty"`
	Line    int       `json:"line,omitempty"`
	// Inlined is the innermost inlined function.
	Inlined string `json:"inlined,omitempty"`
}

// ServeHTTP answers with the listing of a function. The parameters are function and
// module, with the names on the page, value, an index, task, a choice as encoded by the
// page, and native, "1" for [annotate.Options.Native].
func (l *listings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := l.page.create(); err != nil {
		writeJSON(w, http.StatusInternalServerError, failure{plain.Error(err)})
		return
	}
	query := r.URL.Query()
	value, err := strconv.Atoi(query.Get("value"))
	if err != nil || value < 0 || value >= len(l.page.shown.ValueTypes) {
		writeJSON(w, http.StatusBadRequest, failure{fmt.Sprintf("no value %q", query.Get("value"))})
		return
	}
	name, module := query.Get("function"), query.Get("module")
	counts := annotate.Function(l.page.shown, func(id profile.FrameID) bool {
		n, m := flame.Name(l.page.shown, id)
		return n == name && m == module
	}, annotate.Options{Value: value, Task: l.tasks(query.Get("task")), Native: query.Get("native") == "1"})
	writeJSON(w, http.StatusOK, l.list(r.Context(), counts))
}

// tasks returns a predicate for the page's choice of tasks: "g." and a group, "c."
// and a name, "p." and a process ID, "t." and a thread ID, or "" for all.
func (l *listings) tasks(choice string) func(profile.TaskID) bool {
	kind, wanted, ok := strings.Cut(choice, ".")
	if !ok {
		return nil
	}
	return func(id profile.TaskID) bool {
		task := l.page.shown.Tasks[id]
		switch kind {
		case "g":
			return plain.Terminal(l.page.shown.Group(id)) == wanted
		case "c":
			return plain.Terminal(task.Comm) == wanted
		case "p":
			return strconv.Itoa(task.PID) == wanted
		case "t":
			return strconv.Itoa(task.TID) == wanted
		}
		return false
	}
}

// list creates a listing from counts.
func (l *listings) list(ctx context.Context, counts annotate.Counts) listing {
	r := listing{Self: counts.Self, Total: counts.Total, Sources: []source{}, Assembly: []assembly{}}
	for _, a := range l.library.Disassemble(ctx, l.page.shown, counts.Places) {
		r.Assembly = append(r.Assembly, l.assembly(a))
	}
	byFile := map[string]map[int]annotate.Weight{}
	for at, weight := range counts.Lines {
		if at.File == "" || at.Number == 0 {
			continue
		}
		if byFile[at.File] == nil {
			byFile[at.File] = map[int]annotate.Weight{}
		}
		byFile[at.File][at.Number] = weight
	}
	for _, file := range slices.Sorted(maps.Keys(byFile)) {
		r.Sources = append(r.Sources, l.source(file, byFile[file], counts.Places))
	}
	slices.SortStableFunc(r.Sources, func(a, b source) int { return cmp.Compare(b.total, a.total) })
	r.Sources = r.Sources[:min(len(r.Sources), maxSources)]
	return r
}

// assembly returns the disassembly of a function for the page.
func (l *listings) assembly(of code.Assembly) assembly {
	a := assembly{Module: plain.Terminal(l.page.shown.Mappings[of.Mapping].Path), Arch: of.Arch, Instructions: []instruction{}}
	if of.Function != "" {
		a.Function = plain.Terminal(of.Function)
	}
	for _, in := range of.Instructions {
		made := instruction{Address: hexNumber(in.Address), Text: in.Text, Self: in.Self, Total: in.Total, File: in.File, Line: in.Line}
		if in.Inlined != "" {
			made.Inlined = plain.Terminal(in.Inlined)
		}
		a.Instructions = append(a.Instructions, made)
	}
	if of.Problem != nil {
		a.Problem = plain.Error(of.Problem)
	}
	return a
}

// source returns the parts of a source file around lines with samples. The debug
// information of at least one of the places must name the file.
func (l *listings) source(file string, lines map[int]annotate.Weight, places map[annotate.Place]annotate.Weight) source {
	s := source{File: file, Lines: []string{}}
	for _, number := range slices.Sorted(maps.Keys(lines)) {
		w := lines[number]
		s.Counts = append(s.Counts, [3]int64{int64(number), w.Self, w.Total})
		s.total += w.Total
	}
	addresses := map[profile.MappingID][]uint64{}
	for at := range places {
		addresses[at.Mapping] = append(addresses[at.Mapping], at.Address)
	}
	var errs []error
	for mapping, at := range addresses {
		binary, err := l.library.Mapped(l.page.shown.Mappings[mapping])
		if err == nil {
			var found code.Source
			if found, err = binary.Source(file, at...); err == nil {
				built := binary.Modified()
				s.Newer = !built.IsZero() && found.Modified.After(built)
				s.cut(strings.Split(strings.TrimSuffix(found.Text, "\n"), "\n"))
				return s
			}
		}
		errs = append(errs, err)
	}
	if len(addresses) == 0 {
		errs = append(errs, errors.New("the profile has no code addresses to look up the source file"))
	}
	s.Problem = plain.Error(errors.Join(errs...))
	return s
}

// cut keeps only the lines around lines with samples.
func (s *source) cut(lines []string) {
	s.First = 1
	if len(lines) > maxLines {
		first := max(int(s.Counts[0][0])-contextLines, 1)
		s.First = min(first, len(lines))
		lines = lines[s.First-1:]
		last := max(int(s.Counts[len(s.Counts)-1][0])+contextLines-s.First, 1)
		lines = lines[:min(last, maxLines, len(lines))]
	}
	s.Lines = lines
}
