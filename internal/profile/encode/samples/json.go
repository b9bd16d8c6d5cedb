package samples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"time"
	"unicode/utf16"

	"fulgur/internal/profile"
)

// line is a sample in the form of a JSON line.
type line struct {
	// Time is in RFC 3339, in UTC.
	Time string `json:"time"`
	Comm string `json:"comm"`
	PID  int    `json:"pid"`
	TID  int    `json:"tid"`
	CPU  int    `json:"cpu"`
	// Weight is what the sample represents, in units of the event.
	Weight int64 `json:"weight"`
	// Kernel and User are leaf first. Inlined functions come before the function that
	// contains them.
	Kernel []frame `json:"kernel"`
	User   []frame `json:"user"`
	// End is the reason why the user stack ends.
	End string `json:"end"`
}

// frame is a function in a stack.
type frame struct {
	// Address is the address in the module's file in hex, or the runtime address of
	// kernel and JIT code. It is a string because JavaScript numbers are too small.
	Address string `json:"address"`
	// Function is omitted if unknown. Offset is the address relative to the start of the
	// function's symbol.
	Function string `json:"function,omitempty"`
	Offset   uint64 `json:"offset,omitempty"`
	Module   string `json:"module,omitempty"`
	BuildID  string `json:"build_id,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Inlined  bool   `json:"inlined,omitempty"`
}

// dropped is the line in place of dropped samples.
type dropped struct {
	Dropped uint64 `json:"dropped"`
}

// WriteJSON writes each sample of b as a line of JSON, as described in docs/live.md.
// Dropped samples are a line {"dropped":N}. Characters that do not print are escaped, so
// a terminal can show the lines; invalid UTF-8 becomes U+FFFD.
func WriteJSON(w io.Writer, b Batch) error {
	out := bufio.NewWriter(w)
	lines := json.NewEncoder(printable{out})
	lines.SetEscapeHTML(false)
	if b.Dropped > 0 {
		if err := lines.Encode(dropped{b.Dropped}); err != nil {
			return fmt.Errorf("write samples: %w", err)
		}
	}
	var ids []profile.FrameID
	for _, s := range b.Samples {
		task := b.Profile.Tasks[s.Task]
		ids = b.Profile.AppendFrames(ids[:0], s.Stack)
		kernel, user := halves(b.Profile, ids)
		if err := lines.Encode(line{
			Time: s.Time.UTC().Format(time.RFC3339Nano), Comm: task.Comm, PID: task.PID, TID: task.TID, CPU: s.CPU,
			Weight: s.Weight, Kernel: jsonFrames(b.Profile, kernel), User: jsonFrames(b.Profile, user), End: s.End.String(),
		}); err != nil {
			return fmt.Errorf("write samples: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// printable escapes characters in JSON that do not print. They occur only in strings.
type printable struct{ w *bufio.Writer }

func (p printable) Write(text []byte) (int, error) {
	for _, r := range string(text) {
		switch {
		case strconv.IsPrint(r) || r == '\n':
			p.w.WriteRune(r)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(p.w, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(p.w, `\u%04x`, r)
		}
	}
	return len(text), nil
}

func jsonFrames(p *profile.Profile, half []activation) []frame {
	frames := []frame{} // an empty array rather than null
	for _, at := range half {
		for _, id := range at {
			f := p.Frames[id]
			fn := p.Functions[f.Function]
			made := frame{
				Address: fmt.Sprintf("%#x", f.Address), Function: fn.Name,
				Module: p.Mappings[f.Mapping].Path, BuildID: p.Mappings[f.Mapping].BuildID,
				File: fn.File, Line: f.Line, Inlined: f.Inlined,
			}
			if !f.Inlined {
				made.Offset = f.Offset
			}
			frames = append(frames, made)
		}
	}
	return frames
}
