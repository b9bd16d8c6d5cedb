package decode

import (
	"bufio"
	"errors"
	"io"
	"math"
	"strconv"

	"fulgur/internal/profile"
	"fulgur/internal/profile/runinfo"
)

// maxPageKinds limits the kinds of frames.
const maxPageKinds = 1 << 8

// pageHeader is the part of a page's header that is read, see package flame.
type pageHeader struct {
	Run    string // the description as JSON
	Builds map[string]string
	Values []profile.ValueType
	Value  int
	Kinds  []string
	// Strings are the names to which the other tables refer.
	Strings []string
	Frames  struct {
		Name, Module, File, Line, Kind, Inlined []int32
		Address                                 []uint64
	}
	Tasks                  struct{ Comm, PID, TID, Group []int32 }
	Nodes, Chains, Samples int
	Scales                 []int64
	Times                  pageTimesHeader
}

// pageTimesHeader describes the table of times.
type pageTimesHeader struct {
	Step, Scale    int64 // in nanoseconds
	Steps, Entries int
	Names          []string // of threads
	PID, TID       []int32
}

// read reads the header. Three bytes of text can stand for a row of a table, which takes
// more memory, so each table is bounded while it is read.
func (h *pageHeader) read(r io.Reader) error {
	j := &jsonReader{r: bufio.NewReaderSize(r, sniffed)}
	if err := j.object(func(key string) error { return h.member(j, key) }); err != nil {
		return err
	}
	switch c, err := j.token(); {
	case err == nil:
		return j.errorf("%q after the end", c)
	case !errors.Is(err, errJSONEnd):
		return err
	}
	return nil
}

// member reads a member of the header.
func (h *pageHeader) member(j *jsonReader, key string) (err error) {
	switch key {
	case "run":
		h.Run, err = j.text(runinfo.MaxText)
	case "builds":
		h.Builds = map[string]string{}
		return j.object(func(module string) error {
			if len(h.Builds) == maxPageNames/4 {
				return j.errorf("more than %d builds", maxPageNames/4)
			}
			h.Builds[module], err = j.string()
			return err
		})
	case "values":
		h.Values, err = rows(j, profile.MaxValues, func() (v profile.ValueType, err error) {
			return v, j.object(func(key string) (err error) {
				switch key {
				case "type":
					v.Type, err = j.string()
				case "unit":
					v.Unit, err = j.string()
				default:
					err = j.skip()
				}
				return err
			})
		})
	case "kinds":
		h.Kinds, err = rows(j, maxPageKinds, j.string)
	case "strings":
		h.Strings, err = rows(j, maxPageNames, j.string)
	case "frames":
		f := &h.Frames
		return j.columns(map[string]*[]int32{
			"name": &f.Name, "module": &f.Module, "file": &f.File, "line": &f.Line, "kind": &f.Kind, "inlined": &f.Inlined,
		}, func(key string) (err error) {
			if key != "address" {
				return j.skip()
			}
			f.Address, err = rows(j, maxPageNames, j.address)
			return err
		})
	case "tasks":
		t := &h.Tasks
		return j.columns(map[string]*[]int32{"comm": &t.Comm, "pid": &t.PID, "tid": &t.TID, "group": &t.Group},
			func(string) error { return j.skip() })
	case "scales":
		h.Scales, err = rows(j, 2*profile.MaxValues, j.integer) // a comparison has two columns for each value
	case "times":
		return h.Times.read(j)
	case "value", "nodes", "chains", "samples":
		var n int64
		n, err = j.integer()
		*map[string]*int{"value": &h.Value, "nodes": &h.Nodes, "chains": &h.Chains, "samples": &h.Samples}[key] = int(n)
	default:
		return j.skip()
	}
	return err
}

// rows reads an array of at most limit elements.
func rows[T any](j *jsonReader, limit int, element func() (T, error)) (list []T, err error) {
	err = j.array(func() error {
		if len(list) == limit {
			return j.errorf("more than %d elements", limit)
		}
		v, err := element()
		list = append(list, v)
		return err
	})
	return list, err
}

// columns reads an object whose members are columns of indexes or other small numbers.
// other reads the members with other names.
func (j *jsonReader) columns(known map[string]*[]int32, other func(key string) error) error {
	return j.object(func(key string) (err error) {
		column := known[key]
		if column == nil {
			return other(key)
		}
		*column, err = rows(j, maxPageNames, func() (int32, error) {
			n, err := j.integer()
			return int32(max(-1, min(n, math.MaxInt32))), err // too large indexes stay invalid
		})
		return err
	})
}

// integer reads an integer, 0 for null.
func (j *jsonReader) integer() (int64, error) {
	v, _, err := j.number()
	switch {
	case err != nil:
		return 0, err
	case v == math.Trunc(v) && math.Abs(v) < 1<<53:
		return int64(v), nil
	}
	n, err := strconv.ParseInt(string(j.buf), 10, 64) // what number read
	if err != nil {
		return 0, j.errorf("%.40q is not an integer", j.buf)
	}
	return n, nil
}

// address reads an address in hexadecimal digits.
func (j *jsonReader) address() (uint64, error) {
	text, err := j.string()
	if err != nil {
		return 0, err
	}
	address, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		return 0, j.errorf("%.40q is not an address", text)
	}
	return address, nil
}
