package samples

import (
	"bufio"
	"fmt"
	"io"

	"fulgur/internal/message/plain"
	"fulgur/internal/profile"
	"fulgur/internal/unwind/stackend"
)

// WriteText writes the samples of b for people, in the style of libbpf-bootstrap's
// profile (github.com/libbpf/libbpf-bootstrap, examples/c/profile.c): a line about the
// sample, the kernel stack and the user stack, each leaf first, and an empty line. Each
// instruction has a number and its address in its file. Inlined functions are above the
// function that contains them. Names are escaped; see [plain.Terminal].
func WriteText(w io.Writer, b Batch) error {
	out := bufio.NewWriter(w)
	if b.Dropped > 0 {
		fmt.Fprintf(out, "[%d samples dropped: the reader is too slow]\n\n", b.Dropped)
	}
	var frames []profile.FrameID
	for _, s := range b.Samples {
		task := b.Profile.Tasks[s.Task]
		fmt.Fprintf(out, "COMM: %s (pid=%d, tid=%d) @ CPU %d, %s\n",
			plain.Terminal(task.Comm), task.PID, task.TID, s.CPU, s.Time.Format("15:04:05.000000"))
		frames = b.Profile.AppendFrames(frames[:0], s.Stack)
		kernel, user := halves(b.Profile, frames)
		writeHalf(out, b.Profile, "Kernel", kernel)
		writeHalf(out, b.Profile, "Userspace", user)
		if s.End.Cut() && (!isMarked(b.Profile, frames) || s.End == stackend.NotReady) {
			fmt.Fprintf(out, "     [truncated: %s]\n", s.End)
		}
		fmt.Fprintln(out)
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write samples: %w", err)
	}
	return nil
}

// isMarked reports whether the root of a stack, given leaf first, is a marker with the
// reason for its end.
func isMarked(p *profile.Profile, frames []profile.FrameID) bool {
	return len(frames) > 0 && p.Frames[frames[len(frames)-1]].Kind == profile.KindMarker
}

func writeHalf(out *bufio.Writer, p *profile.Profile, name string, half []activation) {
	if len(half) == 0 {
		fmt.Fprintf(out, "No %s Stack\n", name)
		return
	}
	fmt.Fprintf(out, "%s:\n", name)
	for i, at := range half {
		for j, f := range at {
			switch {
			case p.Frames[f].Kind == profile.KindMarker:
				fmt.Fprintf(out, "     ")
			case j == 0:
				fmt.Fprintf(out, "%4d [<%016x>] ", i, p.Frames[f].Address)
			default:
				fmt.Fprintf(out, "%4s   %16s   ", "", "")
			}
			fmt.Fprintln(out, function(p, f))
		}
	}
}

// function describes a frame: "parse+0x12 /src/http.c:52 (httpd)".
func function(p *profile.Profile, id profile.FrameID) string {
	f := p.Frames[id]
	fn := p.Functions[f.Function]
	text := plain.Terminal(p.FrameName(id))
	if f.Function != 0 && !f.Inlined && f.Kind != profile.KindMarker {
		text += fmt.Sprintf("+%#x", f.Offset)
	}
	if fn.File != "" && f.Line != 0 {
		text += fmt.Sprintf(" %s:%d", plain.Terminal(fn.File), f.Line)
	}
	switch {
	case f.Inlined:
		text += " (inlined)"
	case f.Function != 0 && f.Mapping != 0 && p.Mappings[f.Mapping].Path != profile.KernelPath:
		text += " (" + plain.Terminal(p.ModuleName(f.Mapping)) + ")"
	}
	return text
}
