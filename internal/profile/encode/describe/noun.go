package describe

import (
	"slices"

	"fulgur/internal/profile"
)

// Noun is the word for a sample of a profile, such as "wait".
type Noun struct{ one, many string }

var (
	// sample is the noun of profiles of samples.
	sample = Noun{"sample", "samples"}
	// sampleOrWait is the noun of profiles of samples and waits.
	sampleOrWait = Noun{"sample or wait", "samples and waits"}
	// event is the noun of recordings of samples, waits, requests, faults and other events.
	event = Noun{"event", "events"}
)

// isGeneral reports whether n stands for samples of several kinds, or of an unknown one.
func (n Noun) isGeneral() bool { return n == sample || n == sampleOrWait || n == event }

// nouns are the nouns by the type of the first value.
var nouns = map[string]Noun{
	"waits":         {"wait", "waits"},
	"requests":      {"request", "requests"},
	"hits":          {"hit", "hits"},
	"intervals":     {"interval", "intervals"},
	"softirqs":      {"softirq", "softirqs"},
	"alloc_objects": {"allocation", "allocations"},
}

// NounOf returns the noun of a profile with values of the given types. period is as in
// [profile.Meta].
func NounOf(types []profile.ValueType, period uint64) Noun {
	switch {
	case IsMixed(types) && slices.ContainsFunc(types, isOther):
		return event
	case IsMixed(types):
		return sampleOrWait
	case len(types) == 0 || types[0].Unit != "count":
		return sample
	}
	if noun, ok := nouns[types[0].Type]; ok {
		return noun
	}
	if period <= 1 && slices.Contains(types, profile.ValueType{Type: "minor-faults", Unit: "count"}) {
		return Noun{"fault", "faults"} // each is a sample
	}
	return sample
}

// isOther reports whether a value of a recording is neither of samples nor of waits.
func isOther(t profile.ValueType) bool {
	return t != onCPU && t != offCPU && t.Type != sample.many && t.Type != "wall"
}

// NounOfProfile returns [NounOf] for a profile.
func NounOfProfile(p *profile.Profile) Noun { return NounOf(p.ValueTypes, p.Meta.Period) }

// Many returns the plural.
func (n Noun) Many() string { return n.many }

// Count returns an amount in words: "3 waits".
func (n Noun) Count(amount uint64) string { return counted(amount, n.one, n.many) }

// Samples returns the number of samples of a profile, or 0 if its first value does not count them.
func Samples(p *profile.Profile) uint64 {
	if len(p.ValueTypes) == 0 || p.ValueTypes[0].Unit != "count" {
		return 0
	}
	return uint64(max(p.Total(0), 0))
}

// Headline returns the number of samples and the total of a value in words: "3 waits, 1.5s
// off-cpu".
func Headline(p *profile.Profile, value int) string {
	if p.ValueTypes[0].Type == "alloc_objects" && p.Meta.Period != 1 {
		return estimates(p, value)
	}
	shown := Amount(p.Total(value), p.ValueTypes[value])
	if value == 0 {
		return shown
	}
	if p.ValueTypes[0].Type == sample.many && NounOfProfile(p) != sample {
		return shown // each is a sample
	}
	return Amount(p.Total(0), p.ValueTypes[0]) + ", " + shown
}

// estimates returns [Headline] for allocations that were sampled. A number is rounded to two
// digits, as more suggest a precision that only thousands of samples give.
func estimates(p *profile.Profile, value int) string {
	n, unit := p.Total(0), int64(1)
	for n/unit >= 100 {
		unit *= 10
	}
	shown := Amount((n+unit/2)/unit*unit, p.ValueTypes[0])
	if value != 0 {
		shown += ", " + Amount(p.Total(value), p.ValueTypes[value])
	}
	if n == 0 {
		return shown
	}
	return "estimates from samples: " + shown
}

// Nothing returns a phrase for a profile without samples.
func (n Noun) Nothing() string {
	if n.isGeneral() {
		return "nothing was sampled"
	}
	return "no " + n.many
}
