package branches

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"fulgur/internal/bolt"
	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
	"fulgur/internal/profile/encode/describe"
)

// report is the summary of profiles for BOLT: the counts, what does not count and why,
// whether the profile is sufficient, and the next commands. Shares are from 0 to 1.
type report struct {
	// Samples is the number of samples of processes that had mapped one of the
	// binaries, Records the number of their branch records.
	Samples uint64 `json:"samples"`
	Records uint64 `json:"records"`
	// Lost counts missing samples and records, LeftOut existing ones that do not
	// count; by cause.
	Lost    []cause `json:"lost"`
	LeftOut []cause `json:"left_out"`
	// InsideShare is the share of records (of samples, without branches) in one
	// of the binaries, MispredictedShare the share of mispredicted branches
	// among these.
	InsideShare       float64 `json:"inside_share"`
	MispredictedShare float64 `json:"mispredicted_share"`
	// Stepping describes the stepping. Refused lists the processes and threads
	// that could not be stepped, with the reason. They are absent with hardware.
	Stepping *steppingReport `json:"stepping,omitempty"`
	// Counting describes the counting of jumps. With it, Records and the counts of
	// binaries are estimates.
	Counting *countingReport `json:"counting,omitempty"`
	Refused  []string        `json:"refused,omitempty"`
	// Binaries lists the profiled binaries, by descending number of branches.
	Binaries []binaryReport `json:"binaries"`
	Warnings []string       `json:"warnings"`

	basic   bool
	located bool   // some of what InsideShare counts was found in a file or elsewhere
	nothing string // why there are no samples, if known
}

// cause is a reason why samples or records do not count, with their number.
type cause struct {
	Cause string `json:"cause"`
	Count uint64 `json:"count"`
}

// binaryReport is the summary of one binary's profile.
type binaryReport struct {
	Binary            string  `json:"binary"`
	BuildID           string  `json:"build_id"`
	Profile           string  `json:"profile"` // its file, "-" for standard output
	Samples           uint64  `json:"samples"` // samples without branches
	Branches          uint64  `json:"branches"`
	Taken             uint64  `json:"taken"`
	Mispredicted      uint64  `json:"mispredicted"`
	Traces            uint64  `json:"traces"`
	ExecutableBytes   uint64  `json:"executable_bytes"`
	TakenByExecutable float64 `json:"taken_by_executable_bytes"`
	// SufficientAfter is the duration of a sufficient measurement, in seconds; 0
	// if unknown.
	SufficientAfter float64 `json:"sufficient_after_seconds"`
	// UnseenShare estimates the share of future execution that is not in the
	// profile.
	UnseenShare float64 `json:"unseen_share"`
	// Functions is the number of functions in a sample profile.
	Functions int `json:"functions,omitempty"`
	// Optimized is the file that llvm-bolt has written, and Findings its
	// messages.
	Optimized string   `json:"optimized,omitempty"`
	Findings  []string `json:"findings,omitempty"`
	// Comparison compares the optimized program with the original.
	Comparison *comparison `json:"comparison,omitempty"`
	// Next are the commands that optimize the binary with its profile.
	Next     [][]string `json:"next"`
	Warnings []string   `json:"warnings"`

	estimated bool // the counts are estimates
}

// sufficient is the number of taken branches per byte of machine code that make a
// good profile, according to perforator. It counts all machine code of the file,
// whether it runs or not, and so asks too much of a large program that runs little
// of its code.
const sufficient = 1

// maxBinaries limits the binaries in the text, maxRefused the processes that could
// not be stepped.
const maxBinaries, maxRefused = 10, 5

// newReport returns the report of c's counts, measured in the time took (0 if
// unknown), which w wrote to paths.
func newReport(c *bolt.Collector, w *profileWriter, paths map[*bolt.Binary]string, took time.Duration) *report {
	s := c.Stats()
	r := &report{
		Samples:           s.Samples,
		Records:           s.Records,
		Lost:              []cause{},
		LeftOut:           []cause{},
		InsideShare:       s.InsideShare(),
		MispredictedShare: s.MispredictedShare(),
		Warnings:          []string{},
		basic:             w.options.Basic,
		located:           s.Inside+s.Foreign > 0,
	}
	r.leftOut("kernel branch records", s.Kernel)
	r.leftOut("empty branch records", s.Empty)
	r.leftOut("branch records of mispredicted paths", s.WrongPath)
	r.leftOut("branch records of aborted transactions", s.Aborted)
	r.leftOut("duplicate branch records", s.Duplicate)
	r.leftOut("fall-throughs across a jump, call or return", w.impossible())
	for _, b := range c.Binaries() {
		if err := w.refused[b]; err != nil {
			r.warn("no profile: %s", plain.Error(err))
		}
		if path, ok := paths[b]; ok {
			r.Binaries = append(r.Binaries, newBinaryReport(b, w, path, took, s.Estimated))
		}
	}
	slices.SortStableFunc(r.Binaries, func(a, b binaryReport) int {
		return cmp.Compare(b.Branches+b.Samples, a.Branches+a.Samples)
	})
	if w.options.Basic {
		r.warn("without branches, BOLT knows which code runs, but not where it jumps: expect less improvement; record branches if a CPU can")
	}
	if w.llvm.found != "" && w.llvm.version < tracesLLVM {
		r.warn("written in the format for LLVM before %d, since the installed llvm-bolt is %s", tracesLLVM, w.llvm.found)
	}
	return r
}

// newBinaryReport returns the report of b's profile, which w wrote to path.
func newBinaryReport(b *bolt.Binary, w *profileWriter, path string, took time.Duration, estimated bool) binaryReport {
	stats := b.Stats()
	r := binaryReport{
		Binary: b.Name, BuildID: b.BuildID, Profile: cmp.Or(path, "-"),
		Samples: stats.Samples, Branches: stats.Branches, Taken: stats.Taken,
		Mispredicted: stats.Mispredicted, Traces: stats.Traces,
		ExecutableBytes: b.ExecutableBytes, TakenByExecutable: b.Sufficiency(),
		Next:        [][]string{},
		UnseenShare: stats.UnseenShare(),
		Warnings:    []string{},
		estimated:   estimated,
	}
	if estimated { // these measures are for counts of single branches
		r.TakenByExecutable, r.UnseenShare = 0, 0
	}
	if r.Taken > 0 && !estimated {
		r.SufficientAfter = took.Seconds() * sufficient / r.TakenByExecutable
	}
	if r.Branches+r.Samples > 0 && w.options.Samples == "" {
		r.Next = w.llvm.next(b, profileArgument(path, Format), w.options.Basic)
	}
	if !w.options.Basic && !estimated && r.Branches > 0 && r.TakenByExecutable < sufficient {
		r.Warnings = append(r.Warnings, "not sufficient for a good profile: "+r.remedy())
	}
	switch {
	case w.options.Samples != "":
		w.samples[b].describe(&r)
	case !b.Symbols:
		r.Warnings = append(r.Warnings, "stripped: llvm-bolt needs the unstripped file")
	case !b.Relocations:
		r.Warnings = append(r.Warnings, "no relocations: llvm-bolt can reorder blocks, but not functions; link with -Wl,--emit-relocs for the full improvement")
	}
	return r
}

// profileArgument returns the profile at path as an argument of commands.
func profileArgument(path, ending string) string {
	if path == "" || path == "-" {
		return "PROFILE." + ending
	}
	return path
}

func (r *report) lost(what string, n uint64) { r.Lost = addCause(r.Lost, what, n) }

// losses adds losses that profiles of stacks have, too.
func (r *report) losses(l profile.Losses) {
	for _, loss := range describe.Losses(l, describe.NounOf(nil, 0)) {
		r.lost(strings.TrimPrefix(loss.String(), fmt.Sprint(loss.Count, " ")), loss.Count)
	}
}

// lostMappings adds n lost records of mappings.
func (r *report) lostMappings(n uint64) {
	r.lost("mapping records lost: branches may be missing", n)
}

func (r *report) leftOut(why string, n uint64) { r.LeftOut = addCause(r.LeftOut, why, n) }

func addCause(causes []cause, why string, n uint64) []cause {
	if n == 0 {
		return causes
	}
	return append(causes, cause{why, n})
}

// fewInside is the share in the profiled files below which other files are suggested.
const fewInside = 0.2

// suggestOthers adds a warning if most of the code that ran is outside of the files that o
// selects.
func (r *report) suggestOthers(o *ProfileOptions) {
	if o.AllBinaries || o.Kernel || !r.located || r.InsideShare >= fewInside {
		return
	}
	choice := fmt.Sprintf("choose another file with %s", usage.Binary)
	if r.Counting == nil { // which needs one binary
		choice += fmt.Sprintf(", or all with %s", usage.AllBinaries)
	} else if r.InsideShare == 0 {
		return // it has its own warning
	}
	r.warn("most of the %s are outside of the profiled file, for example in libraries: %s", r.what(), choice)
}

// countsSamples reports whether the report is about samples, and not about branches.
func (r *report) countsSamples() bool { return r.basic || r.Counting != nil }

// what returns the noun for what the report counts.
func (r *report) what() string {
	if r.countsSamples() {
		return "samples"
	}
	return "branches"
}

func (r *report) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, fmt.Sprintf(format, args...))
}

// write writes the report as text, or as one line of JSON.
func (r *report) write(w io.Writer, asJSON bool) error {
	var err error
	if asJSON {
		e := json.NewEncoder(w)
		e.SetEscapeHTML(false)
		err = e.Encode(r)
	} else {
		_, err = io.WriteString(w, r.text())
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

func (r *report) text() string {
	var b strings.Builder
	what := r.what()
	if r.countsSamples() {
		fmt.Fprintf(&b, "%s\n", plain.Count(r.Samples, "sample"))
	} else {
		fmt.Fprintf(&b, "%s, %s\n", plain.Count(r.Samples, "sample"), plain.Count(r.Records, "branch record"))
	}
	for _, c := range r.Lost {
		fmt.Fprintf(&b, "  %d %s\n", c.Count, c.Cause)
	}
	for _, c := range r.LeftOut {
		fmt.Fprintf(&b, "  left out: %d %s\n", c.Count, c.Cause)
	}
	if r.Samples+r.Records > 0 {
		fmt.Fprintf(&b, "  %.1f %% of the %s in the profiled files", 100*r.InsideShare, what)
		if !r.basic && r.Stepping == nil && r.Counting == nil { // stepping does not record mispredictions
			fmt.Fprintf(&b, ", %.2f %% of them mispredicted", 100*r.MispredictedShare)
		}
		b.WriteByte('\n')
	}
	if r.Stepping != nil {
		r.Stepping.text(&b)
	}
	if r.Counting != nil {
		r.Counting.text(&b)
	}
	for _, refused := range r.Refused[:min(len(r.Refused), maxRefused)] {
		fmt.Fprintf(&b, "  %s\n", plain.Terminal(refused))
	}
	if more := len(r.Refused) - maxRefused; more > 0 {
		fmt.Fprintf(&b, "  and %s\n", plain.Count(uint64(more), "more refusal"))
	}
	for i := range r.Binaries[:min(len(r.Binaries), maxBinaries)] {
		r.Binaries[i].text(&b, r.basic)
	}
	if more := len(r.Binaries) - maxBinaries; more > 0 {
		fmt.Fprintf(&b, "\nand %s with fewer %s\n", plain.Count(uint64(more), "more profile"), what)
	}
	if len(r.Warnings) > 0 {
		b.WriteByte('\n')
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	if len(r.Binaries) > 0 && len(r.Binaries[0].Next) > 0 {
		next := "next:"
		if len(r.Binaries) > 1 {
			next = "next, for each binary, for example:"
		}
		fmt.Fprintf(&b, "\n%s\n", next)
		for _, argv := range r.Binaries[0].Next {
			fmt.Fprintf(&b, "  %s\n", plain.Command(argv))
		}
	}
	return b.String()
}

// text writes the report of one binary.
func (r *binaryReport) text(b *strings.Builder, basic bool) {
	id := "no build ID"
	if r.BuildID != "" {
		id = "build ID " + r.BuildID
	}
	fmt.Fprintf(b, "\n%s (%s)\n", plain.Terminal(r.Binary), id)
	if r.Profile != "-" && r.Profile != "" {
		fmt.Fprintf(b, "  profile: %s\n", plain.Terminal(r.Profile))
	}
	switch {
	case r.Branches+r.Samples == 0:
		fmt.Fprintf(b, "  nothing was sampled in it\n")
	case basic:
		fmt.Fprintf(b, "  %s at %s\n", plain.Count(r.Samples, "sample"), plain.Count(r.Traces, "different place"))
	case r.estimated:
		fmt.Fprintf(b, "  %s, with estimated counts\n", plain.Count(r.Traces, "different trace"))
	default:
		fmt.Fprintf(b, "  %s of %s\n", plain.Count(r.Branches, "branch record"), plain.Count(r.Traces, "different trace"))
		fmt.Fprintf(b, "  %s taken branches for each byte of machine code (%d or more is sufficient)\n", twoDigits(r.TakenByExecutable), sufficient)
		fmt.Fprintf(b, "  the profile has not seen about %s %% of the execution yet\n", twoDigits(100*r.UnseenShare))
	}
	if r.Functions > 0 {
		fmt.Fprintf(b, "  %s\n", plain.Count(uint64(r.Functions), "function"))
	}
	if r.Optimized != "" {
		fmt.Fprintf(b, "  optimized: %s\n", plain.Terminal(r.Optimized))
		for _, line := range r.Findings {
			fmt.Fprintf(b, "    %s\n", plain.Terminal(line))
		}
		if r.Comparison != nil {
			fmt.Fprintf(b, "    %s\n", r.Comparison.text())
		}
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(b, "  warning: %s\n", w)
	}
}

// remedy returns how much longer to measure.
func (r *binaryReport) remedy() string {
	if r.Taken == 0 {
		return "no branch was taken in it"
	}
	long := ""
	if r.SufficientAfter > 0 {
		long = fmt.Sprintf(" (%s)", roughly(r.SufficientAfter))
	}
	// "1 times as long" would be pointless.
	times := max(sufficient/r.TakenByExecutable, 1.1)
	return fmt.Sprintf("measure %s times as long%s, or merge as many profiles", twoDigits(times), long)
}

// timeLeft returns the remaining time to a sufficient profile, if elapsed led to
// sufficiency; "" if it is reached, or nothing is known.
func timeLeft(sufficiency float64, elapsed time.Duration) string {
	if sufficiency <= 0 || sufficiency >= sufficient {
		return ""
	}
	return roughly(elapsed.Seconds() * (sufficient/sufficiency - 1))
}

// roughly formats a time in a suitable unit.
func roughly(seconds float64) string {
	for _, unit := range []struct {
		name    string
		seconds float64
	}{{"days", 86400}, {"hours", 3600}, {"minutes", 60}} {
		if seconds >= 2*unit.seconds {
			return fmt.Sprintf("%.0f %s", seconds/unit.seconds, unit.name)
		}
	}
	return fmt.Sprintf("%.0f s", max(seconds, 1))
}

// twoDigits formats a positive number with two significant digits, or more before
// the decimal point, and never with an exponent.
func twoDigits(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	rounded, err := strconv.ParseFloat(fmt.Sprintf("%.2g", x), 64)
	if err != nil {
		return fmt.Sprint(x) // infinity or NaN
	}
	return strconv.FormatFloat(rounded, 'f', -1, 64)
}
