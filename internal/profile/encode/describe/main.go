package describe

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"fulgur/internal/message/plain"
	"fulgur/internal/message/usage"
	"fulgur/internal/profile"
)

// Lack is what a run lacks.
type Lack struct {
	profile.Losses
	// Of is the noun for samples.
	Of Noun
	// Samples is the number of samples, 0 if unknown. Due is the number that the whole machine should
	// have given at the run's rate, 0 if there is none.
	Samples, Due uint64
	Unmeasured   []string
	Stripped     profile.StrippedFiles
	// Module is the module with most of the samples in unnamed functions, "" if unknown.
	Module string
}

// LackOf returns what a profile lacks.
func LackOf(p *profile.Profile) Lack {
	l := Lack{
		Losses: p.Losses, Of: NounOfProfile(p), Samples: Samples(p), Due: due(p.Meta),
		Unmeasured: p.Meta.Unmeasured, Stripped: p.Meta.Stripped,
	}
	if p.Losses[profile.LossUnresolved] > 0 && len(p.ValueTypes) > 0 {
		l.Module = worst(p)
	}
	return l
}

// due returns the number of samples that all CPUs of the machine should have given, 0 if there was no
// such rate.
func due(m profile.Meta) uint64 {
	return uint64(float64(m.Frequency) * float64(m.CPUs) * max(m.Duration.Seconds(), 0))
}

// worst returns the module with most samples in unnamed functions.
func worst(p *profile.Profile) string {
	missing := p.MissingNames(false)
	sums := map[profile.MappingID]int64{}
	first := profile.MappingID(0)
	for _, s := range p.Samples {
		if m := missing[s.Stack]; m.Missing && m.Loss == profile.LossUnresolved {
			at := p.Frames[m.Own].Mapping
			if sums[at] += s.Values[0]; sums[at] > sums[first] || first == 0 {
				first = at
			}
		}
	}
	if first == 0 {
		return ""
	}
	return p.ModuleName(first)
}

// Thresholds of [Lack.Main], as shares of the samples.
const (
	// spoilt is the least share for which a loss matters more than those that are less grave.
	spoilt = 0.05
	// biased is the least share of skipped samples that is worth a word.
	biased = 0.02
)

// Skipped returns the share of samples that the kernel skipped, on the whole machine.
func (l Lack) Skipped() float64 {
	n := l.Losses[profile.LossSkipped]
	if n == 0 {
		return 0
	}
	return float64(n) / float64(max(l.Due, n+l.Samples))
}

// IsBiased reports whether the kernel skipped so many samples that shares may be wrong by more than 2 %.
func (l Lack) IsBiased() bool { return l.Skipped() > biased }

// unmeasuredGravity is the gravity of what was not measured.
const unmeasuredGravity = 1

// gravity orders losses: those that change what is counted, then what was not measured, stacks, names.
func gravity(l profile.Loss) int {
	switch l {
	case profile.LossSamples, profile.LossUnsent, profile.LossRing, profile.LossLimited, profile.LossImpossible,
		profile.LossMissed, profile.LossUnfollowed:
		return 0
	case profile.LossSkipped:
		return 2
	case profile.LossUnresolved, profile.LossUnresolvedGenerated:
		return 4
	case profile.LossUnresolvedCallers:
		return 5
	case profile.LossOverflows, profile.LossRetries:
		return 7
	}
	if isPart(l) {
		return 3
	}
	return 6
}

// Main returns the loss that matters most for the reader, in a line, and how many other losses there are.
// The line is empty if there is none.
//
// Losses matter in this order: samples that are in no count; what was not measured; samples that the
// kernel skipped, if they are more than 2 %; stacks without callers; unnamed functions; unnamed callers.
// The first one that spoils 5 % of the samples is the main one, or else the one that spoils most.
func (l Lack) Main() (line string, others int) {
	var all []spoiling
	if len(l.Unmeasured) > 0 {
		all = append(all, spoiling{unmeasuredGravity, 1, plain.Terminal(l.Unmeasured[0])})
	}
	known := l.Losses
	if !l.IsBiased() {
		known[profile.LossSkipped] = 0 // as in nearly every run
	}
	losses := LossesIn(known, l.Of, l.Samples)
	for _, loss := range losses {
		all = append(all, l.spoiling(loss))
	}
	if len(all) == 0 {
		return "", 0
	}
	main := slices.MinFunc(all, func(a, b spoiling) int {
		switch {
		case a.isGrave() && b.isGrave():
			return cmp.Or(cmp.Compare(a.gravity, b.gravity), cmp.Compare(b.share, a.share))
		case a.isGrave():
			return -1
		case b.isGrave():
			return 1
		}
		return cmp.Or(cmp.Compare(b.share, a.share), cmp.Compare(a.gravity, b.gravity))
	})
	if main.gravity != unmeasuredGravity {
		others = -1
	}
	return main.line, others + len(losses)
}

// spoiling is a loss with the share of the samples that it spoils, 0 if that is unknown or does not matter.
type spoiling struct {
	gravity int
	share   float64
	line    string
}

// isGrave reports whether it matters more than less grave losses that spoil more samples.
func (s spoiling) isGrave() bool {
	return s.share >= spoilt || s.gravity == gravity(profile.LossSkipped) && s.share > 0
}

// spoiling returns what a loss spoils.
func (l Lack) spoiling(loss Loss) spoiling {
	s := spoiling{gravity: gravity(loss.cause), line: loss.String()}
	switch {
	case loss.cause == profile.LossSkipped:
		if l.Due > 0 {
			s.line = fmt.Sprintf("%.0f %% of the samples of all CPUs skipped: %s", 100*l.Skipped(), loss.Why())
		}
		s.share = l.Skipped()
	case s.gravity == gravity(profile.LossSamples):
		s.share = float64(loss.Count) / float64(loss.Count+l.Samples)
	case isPart(loss.cause) && l.Samples > 0:
		s.share = float64(loss.Count) / float64(l.Samples)
	case isPart(loss.cause):
		s.share = spoilt // of an unknown number
	}
	if remedy := l.symbols(); loss.cause == profile.LossUnresolved && remedy != "" {
		s.line = loss.What + ": " + remedy
	}
	return s
}

// symbols says how to get the symbols of the module that lacks most names, "" if that is unknown.
func (l Lack) symbols() string {
	for _, f := range l.Stripped.Files {
		if path.Base(f.Path) == l.Module {
			return strings.TrimSuffix(noSymbols(f)+"; "+plain.Terminal(f.Remedy), "; ")
		}
	}
	return ""
}

// More returns a hint at further lines of a longer summary, "" for none.
func More(others int) string {
	if others == 0 {
		return ""
	}
	return fmt.Sprintf("; %s shows %s", usage.Verbose, plain.Count(uint64(others), "more note"))
}
