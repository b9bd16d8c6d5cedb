package decode

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/folded"
	"fulgur/internal/profile/runinfo"
)

// Limits of a page's data, beyond the limits of profiles. No browser shows a page with more.
const (
	maxPageHeader = 64 << 20 // bytes
	maxPageNames  = 1 << 22  // strings, frames or tasks of the header
	maxPageRows   = 1 << 24  // of a table after the header
	maxPageValues = 1 << 26  // numbers in all columns
)

// errNoPage is the error of other pages.
var errNoPage = errors.New("not a flame graph page of fulgur: " + giveFolded)

// pageScript begins the page's data, see page.html of package flame.
const pageScript = `<script id="data" type="application/octet-stream">`

// readPage reads a flame graph page of fulgur. Its frames are boxes: they have the start of
// their function, but neither the exact address nor the line. Of a comparison it reads the
// new profile.
func readPage(ctx context.Context, r *bufio.Reader, withTimes bool) (d Decoded, err error) {
	d.Format = Page
	text, err := readAll(ctx, r)
	if err != nil {
		return d, err
	}
	_, data, found := bytes.Cut(text, []byte(pageScript))
	data, rest, closed := bytes.Cut(data, []byte("</script>"))
	switch {
	case !found || !closed:
		return d, errNoPage
	case bytes.Contains(rest, []byte(pageScript)):
		return d, errors.New("several pages in one file: split it, and read each")
	}
	packed, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(data)))
	if err != nil {
		return d, fmt.Errorf("its data: %w", err)
	}
	p := pageReader{ctx: ctx, r: bufio.NewReaderSize(&limited{ctx, packed, profile.MaxUnpacked, profile.ErrUnpacked}, sniffed)}
	if d.Profile, err = p.profile(withTimes); err == nil && p.times != nil {
		d.Times = p.times
	}
	return d, err
}

// pageReader reads a page's data, whose tables are described at writeData of package
// flame.
type pageReader struct {
	*collector
	ctx    context.Context
	r      *bufio.Reader
	header pageHeader
	frames []profile.FrameID // by the page's frames; 0 for those that are not code
	cpus   []int             // likewise; -1 for those that are not a CPU
	tasks  []profile.TaskID
	times  *pageTimes // nil without times
}

// profile reads the profile, with the times if these are wanted.
func (c *pageReader) profile(withTimes bool) (*profile.Profile, error) {
	if err := c.readHeader(); err != nil {
		return nil, err
	}
	h := &c.header
	types := make([]profile.ValueType, len(h.Values))
	for i, v := range h.Values {
		types[i] = profile.ValueType{Type: v.Type, Unit: v.Unit}
	}
	c.collector = newCollector(types...)
	if err := c.makeFrames(); err != nil {
		return nil, err
	}
	if err := c.makeTasks(); err != nil {
		return nil, err
	}
	ends, err := c.readTree()
	if err != nil {
		return nil, err
	}
	if withTimes && h.Times.Steps > 0 && len(h.Scales) == len(types) {
		c.times = &pageTimes{header: &h.Times, types: types}
	}
	if err := c.readSamples(ends); err != nil {
		return nil, err
	}
	if c.times != nil {
		if err := c.readTimes(); err != nil {
			return nil, fmt.Errorf("its times: %w", err)
		}
		if !c.times.understand() {
			c.times = nil
		}
	}
	m := profile.Meta{}
	if h.Value >= 0 && h.Value < len(types) {
		m.Value = types[h.Value].Type
	}
	p, err := c.collector.profile(m)
	if err == nil {
		restore(p, h.Run)
	}
	return p, err
}

func (c *pageReader) readHeader() error {
	var size [4]byte
	if _, err := io.ReadFull(c.r, size[:]); err != nil {
		return err
	}
	length := binary.LittleEndian.Uint32(size[:])
	if length > maxPageHeader {
		return fmt.Errorf("its header has %d bytes, the maximum is %d", length, maxPageHeader)
	}
	if err := c.header.read(io.LimitReader(c.r, int64(length))); err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	h := &c.header
	for _, n := range []int{h.Nodes, h.Chains, h.Samples} {
		if n < 0 || n > maxPageRows {
			return fmt.Errorf("a table of %d rows, the maximum is %d", n, maxPageRows)
		}
	}
	if columns := len(h.Scales); columns < len(h.Values) || columns*h.Samples > maxPageValues {
		return fmt.Errorf("%d columns for %d types of values and %d samples", columns, len(h.Values), h.Samples)
	}
	return nil
}

// text returns the header's string i.
func (c *pageReader) text(i int32) (string, error) { return at(c.header.Strings, i, "strings") }

// makeFrames interns the frames.
func (c *pageReader) makeFrames() error {
	f := &c.header.Frames
	count := len(f.Name)
	for _, n := range []int{len(f.Module), len(f.File), len(f.Line), len(f.Kind), len(f.Inlined), len(f.Address)} {
		if n != count {
			return fmt.Errorf("columns of frames with %d and %d rows", count, n)
		}
	}
	c.frames, c.cpus = make([]profile.FrameID, count), make([]int, count)
	for i := range count {
		if i%(1<<12) == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		if err := c.makeFrame(i); err != nil {
			return fmt.Errorf("frame %d: %w", i, err)
		}
	}
	return nil
}

// makeFrame interns a frame.
func (c *pageReader) makeFrame(i int) error {
	t := &c.header.Frames
	var texts [3]string
	for k, index := range []int32{t.Name[i], t.Module[i], t.File[i]} {
		var err error
		if texts[k], err = c.text(index); err != nil {
			return err
		}
	}
	name, module, file := texts[0], texts[1], texts[2]
	kind, err := at(c.header.Kinds, t.Kind[i], "kinds")
	if err != nil {
		return err
	}
	address := t.Address[i]
	c.cpus[i] = -1
	f := profile.Frame{Address: address, Inlined: t.Inlined[i] != 0}
	switch kind {
	case "root", "group", "process":
		return nil
	case "cpu":
		c.cpus[i], _ = folded.CPU(name)
		return nil
	case "kernel":
		f.Kind = profile.KindKernel
	case "jit":
		f.Kind = profile.KindJIT
	case "marker":
		f.Kind = profile.KindMarker
	case "unresolved":
		f.Kind = kindOfUnresolved(module, address)
	}
	if module != "" {
		f.Mapping = c.Mapping(profile.Mapping{Path: module, BuildID: c.header.Builds[module]})
	}
	if kind != "unresolved" || !strings.HasPrefix(name, "[") {
		f.AtFunction = address != 0
		f.Function = c.Function(profile.Function{Name: name, SystemName: name, File: file, StartLine: max(int(t.Line[i]), 0)})
	}
	c.frames[i] = c.Frame(f)
	return nil
}

// kindOfUnresolved returns the kind of code without a name.
func kindOfUnresolved(module string, address uint64) profile.Kind {
	switch {
	case isKernelFile(module), address >= 1<<63:
		return profile.KindKernel
	case !profile.IsFile(module) && module != "[vdso]" && module != "[vsyscall]": // code of the kernel for processes
		return profile.KindJIT
	}
	return profile.KindUser
}

// makeTasks interns the tasks.
func (c *pageReader) makeTasks() error {
	t := &c.header.Tasks
	if len(t.PID) != len(t.Comm) || len(t.TID) != len(t.Comm) {
		return fmt.Errorf("columns of tasks with %d, %d and %d rows", len(t.Comm), len(t.PID), len(t.TID))
	}
	if n := len(t.Group); n != 0 && n != len(t.Comm) {
		return fmt.Errorf("groups of %d tasks of %d", n, len(t.Comm))
	}
	grouping, key := c.grouping()
	for i, comm := range t.Comm {
		if i%(1<<12) == 0 && c.ctx.Err() != nil {
			return c.ctx.Err()
		}
		name, err := c.text(comm)
		if err != nil {
			return fmt.Errorf("task %d: %w", i, err)
		}
		if name == plain.Terminal("") {
			name = "" // a task without a name
		}
		task := profile.Task{Comm: name, PID: id(int64(t.PID[i])), TID: id(int64(t.TID[i]))}
		if len(t.Group) > 0 {
			group, err := c.text(t.Group[i])
			if err != nil {
				return fmt.Errorf("task %d: %w", i, err)
			}
			if grouping == profile.GroupLabel {
				task.Labels = c.Labels(profile.LabelsNamed(key, group))
			} else {
				task.Owner = c.Owner(profile.OwnerNamed(grouping, group))
			}
		}
		c.tasks = append(c.tasks, c.Task(task))
	}
	return nil
}

// grouping returns the kind of the groups of tasks, and the key of labels.
func (c *pageReader) grouping() (profile.Grouping, string) {
	m, _, err := runinfo.Parse(c.header.Run)
	if err != nil {
		return profile.GroupNone, "" // as if there were none
	}
	return m.Grouping, m.GroupLabel
}

// uint reads a number of up to limit.
func (c *pageReader) uint(limit uint64) (uint32, error) {
	n, err := binary.ReadUvarint(c.r)
	if err == nil && n > limit {
		err = fmt.Errorf("number %d where the maximum is %d", n, limit)
	}
	return uint32(n), noEOF(err)
}

// noEOF returns the error of data that ends early.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// column reads a column of n numbers of up to limit.
func (c *pageReader) column(n int, limit uint64) ([]uint32, error) {
	var list []uint32 // grows with what is there
	for i := range n {
		if i%(1<<16) == 0 && c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
		v, err := c.uint(limit)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, nil
}

// pageEnd is the last node of a chain, and the number of samples that end there.
type pageEnd struct {
	stack   profile.StackID
	cpu     int
	samples uint32
}

// readTree reads the nodes, and returns the ends of the chains.
func (c *pageReader) readTree() ([]pageEnd, error) {
	callees, err := c.readCalls()
	if err != nil {
		return nil, err
	}
	h := &c.header
	var columns [3][]uint32
	for i, limit := range []int{h.Nodes, h.Chains, h.Samples} {
		if columns[i], err = c.column(h.Chains, uint64(limit)); err != nil {
			return nil, err
		}
	}
	lengths, ups, samples := columns[0], columns[1], columns[2]
	// node is a node on the path from the root to the current one.
	type node struct {
		frame uint32
		stack profile.StackID
		cpu   int
	}
	var ends []pageEnd
	var ancestors []node // the last nodes of the chains on the path
	left := h.Nodes
	for k := range h.Chains {
		if k%(1<<12) == 0 && c.ctx.Err() != nil {
			return nil, c.ctx.Err()
		}
		if left -= int(lengths[k]); left < 0 || int(ups[k]) > len(ancestors) || (k > 0) != (int(ups[k]) < len(ancestors)) {
			return nil, fmt.Errorf("chain %d of %d nodes is misplaced", k, lengths[k])
		}
		ancestors = ancestors[:len(ancestors)-int(ups[k])]
		at := node{cpu: -1}
		if k > 0 {
			at = ancestors[len(ancestors)-1]
		}
		for i := range lengths[k] {
			if at.frame, err = c.call(callees, at.frame, k == 0 && i == 0); err != nil {
				return nil, err
			}
			if f := c.frames[at.frame]; f != 0 {
				at.stack = c.Push(at.stack, f)
			} else if cpu := c.cpus[at.frame]; cpu >= 0 {
				at.cpu = cpu
			}
		}
		ancestors = append(ancestors, at)
		ends = append(ends, pageEnd{at.stack, at.cpu, samples[k]})
	}
	return ends, nil
}

// readCalls returns the callees of each frame.
func (c *pageReader) readCalls() ([][]uint32, error) {
	counts, err := c.column(len(c.frames), maxPageRows)
	if err != nil {
		return nil, err
	}
	callees := make([][]uint32, len(counts))
	left := maxPageRows
	for i, n := range counts {
		if left -= int(n); left < 0 {
			return nil, fmt.Errorf("more than %d calls", maxPageRows)
		}
		if callees[i], err = c.column(int(n), uint64(len(c.frames)-1)); err != nil {
			return nil, err
		}
	}
	return callees, nil
}

// call reads the frame of a node, which is given as a number among the callees of its
// caller's.
func (c *pageReader) call(callees [][]uint32, caller uint32, root bool) (uint32, error) {
	if root {
		if len(c.frames) == 0 {
			return 0, errors.New("nodes without frames")
		}
		return c.uint(uint64(len(c.frames) - 1))
	}
	n, err := c.uint(maxPageRows)
	if err != nil {
		return 0, err
	}
	return at(callees[caller], int32(n), "callees")
}

// readSamples reads the samples, which are in the order of the chains that they end.
func (c *pageReader) readSamples(ends []pageEnd) error {
	h := &c.header
	if len(c.tasks) == 0 && h.Samples > 0 {
		return errors.New("samples without tasks")
	}
	tasks, err := c.column(h.Samples, uint64(max(len(c.tasks)-1, 0)))
	if err != nil {
		return err
	}
	if c.times != nil {
		c.times.rows = make([]pageRow, h.Samples)
		values := make([]int64, h.Samples*len(h.Values))
		for row := range c.times.rows {
			t := tasks[row]
			c.times.rows[row] = pageRow{comm: h.Tasks.Comm[t], values: values[row*len(h.Values):][:len(h.Values)]}
		}
	}
	for v := range h.Values {
		chain, rest := -1, uint32(0)
		for row := range h.Samples {
			if row%(1<<16) == 0 && c.ctx.Err() != nil {
				return c.ctx.Err()
			}
			for rest == 0 {
				if chain++; chain == len(ends) {
					return fmt.Errorf("only %d of %d samples have a stack", row, h.Samples)
				}
				rest = ends[chain].samples
			}
			rest--
			n, err := binary.ReadVarint(c.r)
			if err != nil {
				return noEOF(err)
			}
			value := n * h.Scales[v]
			if n != 0 && value/n != h.Scales[v] {
				return fmt.Errorf("sample %d is %d times %d", row, n, h.Scales[v])
			}
			end := ends[chain]
			c.Count(profile.Sample{Stack: end.stack, Task: c.tasks[tasks[row]], CPU: end.cpu}, v, value)
			if c.times != nil {
				c.times.rows[row].stack, c.times.rows[row].values[v] = end.stack, value
			}
		}
	}
	return nil
}
