package describe

import (
	"slices"
	"strings"

	"fulgur/internal/profile"
)

// Noun is the word for a sample of a profile, such as "wait".
type Noun struct{ one, many string }

var (
	// sample is the noun of profiles of samples.
	sample = Noun{"sample", "samples"}
	// fault is the noun of profiles of page faults.
	fault = Noun{"fault", "faults"}
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
	if len(types) == 0 || types[0].Unit != "count" {
		if IsMixed(types) {
			return event // a recording that was read from a file
		}
		return sample
	}
	if types[0].Type == sample.many {
		if noun, ok := recorded(types[1:]); ok {
			return noun
		}
	}
	if noun, ok := nouns[types[0].Type]; ok {
		return noun
	}
	if period <= 1 && slices.Contains(types, profile.ValueType{Type: "minor-faults", Unit: "count"}) {
		return fault // each is a sample
	}
	return sample
}

// recorded returns the noun of a recording with values of the given types besides the number of
// samples. ok is false if there are no waits or requests.
func recorded(types []profile.ValueType) (n Noun, ok bool) {
	var cpu, waits, requests, others bool
	for _, t := range types {
		switch {
		case t == onCPU:
			cpu = true
		case t == offCPU:
			waits = true
		case strings.HasPrefix(t.Type, "block-io"):
			requests = true
		case t.Type != "wall":
			others = true
		}
	}
	switch {
	case !waits && !requests:
		return Noun{}, false
	case others || requests && (cpu || waits):
		return event, true
	case requests:
		return nouns["requests"], true
	case cpu:
		return sampleOrWait, true
	}
	return nouns["waits"], true
}

// NounOfProfile returns [NounOf] for a profile.
func NounOfProfile(p *profile.Profile) Noun { return NounOf(p.ValueTypes, p.Meta.Period) }

// Many returns the plural.
func (n Noun) Many() string { return n.many }

// Count returns an amount in words: "3 waits".
func (n Noun) Count(amount uint64) string { return counted(amount, n.one, n.many) }

// Samples returns the number of samples of a profile, or 0 if its first value does not count them.
func Samples(p *profile.Profile) uint64 {
	if len(p.ValueTypes) == 0 || p.ValueTypes[0].Unit != "count" || isEstimate(p) {
		return 0
	}
	return uint64(max(p.Total(0), 0))
}

// Headline returns the number of samples and the total of a value in words: "3 waits, 1.5s
// off-cpu".
func Headline(p *profile.Profile, value int) string {
	if isEstimate(p) {
		return estimates(p, value)
	}
	noun, all, shown := NounOfProfile(p), Amount(p.Total(0), p.ValueTypes[0]), Amount(p.Total(value), p.ValueTypes[value])
	if p.ValueTypes[0].Type == sample.many && noun != sample {
		all = noun.Count(Samples(p))
	}
	switch {
	case noun == fault:
		return shown // each is a sample
	case value == 0:
		return all
	}
	return all + ", " + shown
}

// isEstimate reports whether p has estimates from sampled allocations.
func isEstimate(p *profile.Profile) bool {
	return p.ValueTypes[0].Type == "alloc_objects" && p.Meta.Period != 1
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
