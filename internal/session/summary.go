package session

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"fulgur/internal/capture/naming"
	"fulgur/internal/capture/source"
	"fulgur/internal/doctor"
	"fulgur/internal/linux/procfs"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/process"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
	"fulgur/internal/profile/encode/histogram"
	"fulgur/internal/profile/encode/text"
	"fulgur/internal/profile/report"
)

// hottestFunctions is the number of functions in the summary.
const hottestFunctions = 10

// listsReasons are the commands whose [source.Subject.Notes] have a table of the notes at the
// ends of stacks: events, locks, files.
var listsReasons = []doctor.Command{doctor.Count, doctor.Latency, doctor.Locks, doctor.Faults}

// summary returns the closing summary of a whole run: samples, or why there are
// none, hottest functions and losses.
func (r *run) summary(w Window) (string, error) {
	var b strings.Builder
	p := w.Profile
	command := r.subject.Command()
	sentences, table := answers(p, w.Value, r.options.Native)
	if numbers, ok := r.subject.(source.Answerer); ok {
		sentences = append(numbers.Answers(), sentences...)
	}
	if err := text.Summary(&b, p, text.SummaryOptions{
		Functions: hottestFunctions, Value: w.Value, Columns: r.options.Columns, Native: r.options.Native,
		Stopped: r.whyStopped(), All: command == doctor.Record, NoReasons: slices.Contains(listsReasons, command),
		Answers: sentences, Table: table, Verbose: r.options.Verbose,
	}); err != nil {
		return "", err
	}
	b.WriteString(r.nothing(p.Total(0), p.Losses))
	if p.Total(0) > 0 && p.Total(w.Value) == 0 && !r.options.allValues() {
		fmt.Fprintf(&b, "  the output is empty: the profile has no %s", p.ValueTypes[w.Value].Type)
		if r.subject.Command() == doctor.Record {
			fmt.Fprintf(&b, "; choose another value with %s", usage.Value)
		}
		b.WriteByte('\n')
	}
	if hint := describe.LabelHint(p); hint != "" {
		fmt.Fprintf(&b, "  %s\n", hint)
	}
	return b.String(), nil
}

// answers returns what a report says first about a profile, with remedies, and the profile of its tables.
func answers(p *profile.Profile, value int, native bool) (sentences []string, table *profile.Profile) {
	if p.Magnitude(value) == 0 {
		return nil, p
	}
	findings, table := report.Answers(p, value, native)
	for _, f := range findings {
		sentence := f.Text
		if f.Remedy != "" {
			sentence = strings.TrimSuffix(sentence, ".") + ": " + f.Remedy
		}
		sentences = append(sentences, sentence)
	}
	return sentences, table
}

// totals has the sums over the parts of a run whose samples are written before it ends.
type totals struct {
	samples, dropped uint64
	lost             profile.Losses
	missing          naming.Lacking
	gaps             naming.Gaps
}

func newTotals() totals { return totals{missing: naming.Lacking{}, gaps: naming.NewGaps()} }

// add adds the samples and losses of a part.
func (t *totals) add(samples uint64, losses profile.Losses) {
	t.samples += samples
	t.lost = t.lost.Plus(losses)
	t.lost[profile.LossUnresolvedFrames] = 0 // parts share functions, so there is no sum
}

// concludeParts prints the closing summary of a run whose samples were written before it
// ended: the headline, losses or why there are no samples, and hints.
func (r *run) concludeParts(headline string, t totals, written string) error {
	var b strings.Builder
	fmt.Fprintln(&b, headline)
	b.WriteString(text.Stopped(r.whyStopped()))
	if t.dropped > 0 {
		fmt.Fprintf(&b, "  %s dropped: the reader of the output, or symbolization, was too slow\n", r.noun().Count(t.dropped))
	}
	if r.options.Verbose {
		b.WriteString(text.Losses(t.lost, r.noun(), t.samples))
	}
	b.WriteString(r.nothing(int64(t.samples+t.dropped), t.lost))
	if problem := r.unwinder.Problem(); problem != nil {
		fmt.Fprintln(&b, "fulgur: unwind tables:", plain.Error(problem))
	}
	lack := describe.Lack{
		Losses: t.lost, Of: r.noun(), Samples: t.samples, Unmeasured: r.unmeasured(true), Stripped: t.missing.Stripped(r.finder),
	}
	return r.conclude(b.String(), nil, lack, t, written)
}

// lackingLines describes files without symbols, why their debug files were not used, and what
// else is missing in stacks.
func (r *run) lackingLines(s profile.StrippedFiles, t totals) []string {
	return slices.Concat(text.Stripped(s, r.noun()), t.missing.Problems(), t.gaps.Lines(r.noun(), r.showsFunctions))
}

// noun returns the noun for the samples of the run.
func (r *run) noun() describe.Noun {
	var meta profile.Meta
	r.subject.Describe(&meta)
	return describe.NounOf(source.Types(r.subject.Values(nil)), meta.Period)
}

const hintIndent = "  "

// conclude prints the end of the summary: text, the lines of the measurement itself, and what is missing:
// with the option, all of it and the run's cost, or else what matters most. It ends with the written file
// unless that is empty or "-".
func (r *run) conclude(text string, notes []string, lack describe.Lack, t totals, written string) error {
	var b strings.Builder
	b.WriteString(text)
	hints := slices.Concat(lack.Unmeasured, r.stormHints(), r.lackingLines(lack.Stripped, t), r.unwinder.Runtimes.Notes())
	if r.unkept != nil {
		hints = append(hints, unkeptLines(*r.unkept)...)
	}
	if r.options.Verbose {
		r.writeHints(&b, slices.Concat(notes, hints))
		cost, err := cost(r.mapMemory() + r.unwinder.Memory())
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "\n%s\n", cost)
	} else {
		r.writeHints(&b, slices.Concat(notes, mainHint(lack, hints)))
	}
	if written != "" && written != "-" {
		fmt.Fprintf(&b, "written: %s\n", plain.Terminal(written))
	}
	if _, err := fmt.Fprint(r.options.Stderr, plain.Wrap(b.String(), r.options.Columns)); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// mainHint returns the line about what matters most of what is missing, and a hint at the rest. hints are
// the lines that a longer summary has besides those about losses.
func mainHint(lack describe.Lack, hints []string) []string {
	others := len(hints)
	line, losses := lack.Main()
	switch {
	case line != "":
		others += losses
		if len(lack.Unmeasured) > 0 && line == lack.Unmeasured[0] {
			others-- // it is among the hints
		}
	case others > 0:
		line, others = hints[0], others-1
	default:
		return nil
	}
	return []string{line + describe.More(others)}
}

// writeHints writes indented lines after an empty one.
func (r *run) writeHints(b *strings.Builder, hints []string) {
	for len(hints) > 0 && hints[len(hints)-1] == "" {
		hints = hints[:len(hints)-1] // the end of a table
	}
	if len(hints) > 0 {
		b.WriteByte('\n')
	}
	for _, line := range hints {
		if r.options.Columns > 0 {
			line = histogram.Fit(line, r.options.Columns-len(hintIndent))
		}
		fmt.Fprintf(b, "%s\n", strings.TrimRight(hintIndent+line, " "))
	}
}

// stormHints returns [stormLines] of the run.
func (r *run) stormHints() []string {
	if r.tracker.Processes == nil {
		return nil
	}
	return stormLines(r.tracker.Processes.Storms())
}

// unkeptLines reports functions of language runtimes that had no room.
func unkeptLines(n uint64) []string {
	if n == 0 {
		return nil
	}
	return []string{"language runtimes: no room for " + plain.Count(n, "function") + ", shown without a name; profile fewer processes"}
}

// maxStorms limits the processes in the summary that mapped code too often.
const maxStorms = 3

// stormLines names the processes that mapped code faster than fulgur could
// follow.
func stormLines(storms []process.Storm) (lines []string) {
	for _, s := range storms[:min(len(storms), maxStorms)] {
		lines = append(lines, s.String()+"; its stacks may lack names")
	}
	if more := len(storms) - maxStorms; more > 0 {
		lines = append(lines, fmt.Sprintf("other processes that did the same: %d", more))
	}
	return lines
}

// enough reports whether a source ends the run early.
func (r *run) enough() bool { return r.whyStopped() != "" }

// whyStopped returns why a source ended the run early, "" if none did.
func (r *run) whyStopped() string {
	for _, s := range r.sources {
		if s, ok := s.(source.Limited); ok && s.Enough() != "" {
			return s.Enough()
		}
	}
	return ""
}

// nothing returns a line that says why there are no samples, "" if there are some, or if losses or the
// end of the run say it already.
func (r *run) nothing(samples int64, lost profile.Losses) string {
	if samples != 0 || lost.Uncounted() > 0 || r.whyStopped() != "" {
		return ""
	}
	return fmt.Sprintf("  %s: %s\n", r.noun().Nothing(), r.whyNothing())
}

// whyNothing returns the likely causes of a run without samples.
func (r *run) whyNothing() string {
	if r.loop.Missed {
		return "the target exited during the delay"
	}
	if r.loop.Interrupted && r.loop.Duration < 100*time.Millisecond {
		return fmt.Sprintf("interrupted after %v", r.loop.Duration.Round(time.Millisecond))
	}
	return r.subject.WhyNothing() + r.children.hint()
}

func (r *run) mapMemory() (sum uint64) {
	for _, s := range r.sources {
		sum += s.MapMemory()
	}
	return sum
}

// cost describes the run's cost: peak resident memory, memory of BPF maps
// (given in bytes), and CPU time.
func cost(maps uint64) (string, error) {
	// getrusage(2) does not work here: its maximum includes the program
	// that executed fulgur.
	status, err := procfs.Self.Status()
	if err != nil {
		return "", fmt.Errorf("fulgur's own cost: %w", err)
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return "", fmt.Errorf("fulgur's own cost: %w", err)
	}
	cpu := time.Duration(used.Utime.Nano() + used.Stime.Nano())
	return fmt.Sprintf("fulgur itself: %.1f MB resident, %.1f MB of BPF maps, %.2f s CPU",
		float64(status.PeakResident)/1e6, float64(maps)/1e6, cpu.Seconds()), nil
}
