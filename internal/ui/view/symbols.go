package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/code"
	"fulgur/internal/profile/encode/firefox"
	"fulgur/internal/symbols/disasm"
	"fulgur/internal/symbols/symbolize"
)

// symbolServer implements the symbol server API of the Firefox Profiler, as
// described in https://github.com/mstange/samply/blob/main/API.md. Addresses in
// requests are relative to the lowest address of the file.
type symbolServer struct {
	library *code.Library
	files   map[module]profile.Mapping
}

// module identifies a file for the Firefox Profiler: by its name and its Breakpad
// ID.
type module struct{ name, id string }

// newSymbolServer returns a symbol server for the files of p, and no others.
func newSymbolServer(p *profile.Profile, library *code.Library) *symbolServer {
	s := &symbolServer{library: library, files: map[module]profile.Mapping{}}
	for id, m := range p.Mappings {
		if id == 0 {
			continue
		}
		key := module{p.ModuleName(profile.MappingID(id)), firefox.BreakpadID(m.BuildID)}
		if _, ok := s.files[key]; !ok {
			s.files[key] = m
		}
	}
	return s
}

func (s *symbolServer) register(mux *http.ServeMux) {
	mux.Handle("POST /symbolicate/v5", answer(s.symbolicate))
	mux.Handle("POST /source/v1", answer(s.source))
	mux.Handle("POST /asm/v1", answer(s.assembly))
}

// failure is the error response of any request.
type failure struct {
	Error string `json:"error"`
}

// answer returns a handler for JSON requests and responses.
func answer[Request, Response any](handle func(context.Context, Request) (Response, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var asked Request
		if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
			status := http.StatusBadRequest
			if errors.As(err, new(*http.MaxBytesError)) {
				status = http.StatusRequestEntityTooLarge
			}
			writeJSON(w, status, failure{err.Error()})
			return
		}
		response, err := handle(r.Context(), asked)
		if err != nil {
			// The front end shows the message only for responses with
			// status OK.
			writeJSON(w, http.StatusOK, failure{plain.Error(err)})
			return
		}
		writeJSON(w, http.StatusOK, response)
	})
}

// writeJSON writes a response.
func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client may have disconnected
}

// hexNumber is a number encoded as "0x12".
type hexNumber uint64

// MarshalText implements [encoding.TextMarshaler].
func (n hexNumber) MarshalText() ([]byte, error) { return fmt.Appendf(nil, "%#x", uint64(n)), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (n *hexNumber) UnmarshalText(text []byte) error {
	digits, ok := strings.CutPrefix(string(text), "0x")
	v, err := strconv.ParseUint(digits, 16, 64)
	if !ok || err != nil {
		return fmt.Errorf("%q is not a number like 0x1f", text)
	}
	*n = hexNumber(v)
	return nil
}

// file returns a file of the profile.
func (s *symbolServer) file(name, id string) (*code.File, error) {
	m, ok := s.files[module{name, id}]
	if !ok {
		return nil, fmt.Errorf("%s with ID %s is not in the profile", name, id)
	}
	return s.library.File(m.Path, m.BuildID)
}

// ---- /symbolicate/v5

type symbolicateRequest struct {
	Jobs []symbolicateJob `json:"jobs"`
	symbolicateJob
}

type symbolicateJob struct {
	// MemoryMap holds pairs of name and ID, Stacks pairs of an index into it and
	// an address.
	MemoryMap [][2]string   `json:"memoryMap"`
	Stacks    [][][2]uint64 `json:"stacks"`
}

type symbolicateResponse struct {
	Results []symbolicateResult `json:"results"`
}

type symbolicateResult struct {
	FoundModules map[string]bool       `json:"found_modules"`
	Stacks       [][]symbolicatedFrame `json:"stacks"`
}

type symbolicatedFrame struct {
	Frame          int             `json:"frame"`
	Module         string          `json:"module"`
	ModuleOffset   hexNumber       `json:"module_offset"`
	Function       string          `json:"function,omitempty"`
	FunctionOffset *hexNumber      `json:"function_offset,omitempty"`
	File           string          `json:"file,omitempty"`
	Line           int             `json:"line,omitempty"`
	Inlines        []inlinedNaming `json:"inlines,omitempty"` // innermost first
}

type inlinedNaming struct {
	Function string `json:"function,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
}

func (s *symbolServer) symbolicate(_ context.Context, asked symbolicateRequest) (response symbolicateResponse, err error) {
	jobs := asked.Jobs
	if jobs == nil {
		jobs = []symbolicateJob{asked.symbolicateJob}
	}
	response.Results = []symbolicateResult{}
	for _, job := range jobs {
		result, err := s.symbolicateJob(job)
		if err != nil {
			return response, err
		}
		response.Results = append(response.Results, result)
	}
	return response, nil
}

func (s *symbolServer) symbolicateJob(job symbolicateJob) (symbolicateResult, error) {
	r := symbolicateResult{FoundModules: map[string]bool{}, Stacks: [][]symbolicatedFrame{}}
	batches := make([][]uint64, len(job.MemoryMap))
	for _, stack := range job.Stacks {
		for _, at := range stack {
			if at[0] >= uint64(len(batches)) {
				return r, fmt.Errorf("module %d of %d", at[0], len(batches))
			}
			batches[at[0]] = append(batches[at[0]], at[1])
		}
	}
	found := make([]map[uint64][]symbolize.Frame, len(batches))
	for i, m := range job.MemoryMap {
		file, err := s.file(m[0], m[1])
		r.FoundModules[m[0]+"/"+m[1]] = err == nil
		if err == nil {
			found[i] = lookup(file, batches[i])
		}
	}
	for _, stack := range job.Stacks {
		frames := []symbolicatedFrame{}
		for i, at := range stack {
			frames = append(frames, symbolicated(i, job.MemoryMap[at[0]][0], at[1], found[at[0]][at[1]]))
		}
		r.Stacks = append(r.Stacks, frames)
	}
	return r, nil
}

// lookup returns the functions at addresses of a file, as far as known.
func lookup(file *code.File, addresses []uint64) map[uint64][]symbolize.Frame {
	slices.Sort(addresses)
	addresses = slices.Compact(addresses)
	linked := make([]uint64, len(addresses))
	for i, a := range addresses {
		linked[i] = a + file.Base()
	}
	frames, _ := file.LookupBatch(linked) // unreadable parts have no names
	found := make(map[uint64][]symbolize.Frame, len(addresses))
	for i, f := range frames {
		found[addresses[i]] = f
	}
	return found
}

func symbolicated(index int, module string, address uint64, found []symbolize.Frame) symbolicatedFrame {
	f := symbolicatedFrame{Frame: index, Module: module, ModuleOffset: hexNumber(address)}
	if len(found) == 0 {
		return f
	}
	outer := found[len(found)-1]
	offset := hexNumber(outer.Offset)
	f.Function, f.FunctionOffset, f.File, f.Line = outer.Name, &offset, outer.File, outer.Line
	for _, in := range found[:len(found)-1] {
		f.Inlines = append(f.Inlines, inlinedNaming{in.Name, in.File, in.Line})
	}
	return f
}

// ---- /source/v1

type sourceRequest struct {
	DebugName    string    `json:"debugName"`
	DebugID      string    `json:"debugId"`
	ModuleOffset hexNumber `json:"moduleOffset"`
	File         string    `json:"file"`
}

type sourceResponse struct {
	SymbolsLastModified *string `json:"symbolsLastModified"`
	SourceLastModified  *string `json:"sourceLastModified"`
	File                string  `json:"file"`
	Source              string  `json:"source"`
}

func (s *symbolServer) source(_ context.Context, asked sourceRequest) (sourceResponse, error) {
	file, err := s.file(asked.DebugName, asked.DebugID)
	if err != nil {
		return sourceResponse{}, err
	}
	source, err := file.Source(asked.File, file.Base()+uint64(asked.ModuleOffset))
	return sourceResponse{File: asked.File, Source: source.Text}, err
}

// ---- /asm/v1

type assemblyRequest struct {
	Name         string    `json:"name"`
	CodeID       string    `json:"codeId"`
	DebugName    string    `json:"debugName"`
	DebugID      string    `json:"debugId"`
	StartAddress hexNumber `json:"startAddress"`
	Size         hexNumber `json:"size"`
	// ContinueUntilFunctionEnd requests the rest of the function, too.
	ContinueUntilFunctionEnd bool `json:"continueUntilFunctionEnd"`
}

type assemblyResponse struct {
	StartAddress hexNumber `json:"startAddress"`
	Size         hexNumber `json:"size"`
	Arch         string    `json:"arch"`
	Syntax       []string  `json:"syntax"`
	Instructions [][2]any  `json:"instructions"` // offset from the start, and text
}

func (s *symbolServer) assembly(ctx context.Context, asked assemblyRequest) (assemblyResponse, error) {
	file, err := s.file(asked.DebugName, asked.DebugID)
	if err != nil {
		return assemblyResponse{}, err
	}
	start, size := file.Base()+uint64(asked.StartAddress), min(uint64(asked.Size), code.MaxCode)
	if asked.ContinueUntilFunctionEnd {
		if fn, err := file.Function(start); err == nil {
			size = max(size, min(fn.Start+fn.Size-start, code.MaxCode))
		}
	}
	list, err := file.Disassemble(ctx, start, size)
	if err != nil {
		return assemblyResponse{}, err
	}
	r := assemblyResponse{StartAddress: asked.StartAddress, Size: hexNumber(size), Arch: file.Arch(), Syntax: []string{disasm.Syntax}, Instructions: [][2]any{}}
	for _, i := range list {
		r.Instructions = append(r.Instructions, [2]any{i.Address - start, i.Text})
	}
	return r, nil
}
