package bolt

// Stats says what a [Collector] was given and what became of it.
type Stats struct {
	// Samples is the number of branch stacks, Records that of their entries.
	Samples, Records uint64
	// Records that were left out, by cause: entries that the hardware left
	// empty, kernel entries (either end is the kernel's), branches on a
	// path that was only speculated on, transactions aborted, and newest
	// entries that repeat the one before without having happened (see
	// [Duplicates]).
	Empty, Kernel, WrongPath, Aborted, Duplicate uint64
	// Foreign is the number of records with both ends outside of all
	// registered binaries.
	Foreign uint64
	// Inside is the number of records with an end in a registered binary,
	// Mispredicted that of those among them that were mispredicted.
	Inside, Mispredicted uint64
	// DuplicateShare is the share of samples whose two newest entries are
	// the same, EqualShare that of equal neighbours among all others. The
	// first far above the second is the fault of Skylake servers.
	DuplicateShare, EqualShare float64
}

// InsideShare is the share of usable records that have an end in a registered
// binary, from 0 to 1.
func (s Stats) InsideShare() float64 { return share(s.Inside, s.Inside+s.Foreign) }

// MispredictedShare is the share of the records inside that were mispredicted,
// from 0 to 1.
func (s Stats) MispredictedShare() float64 { return share(s.Mispredicted, s.Inside) }

// BinaryStats says what was counted for one binary.
type BinaryStats struct {
	// Branches is the number of records with an end in the binary, Taken
	// that of those that left from it, Mispredicted that of the former that
	// were mispredicted. Duplicates are not taken out here.
	Branches, Taken, Mispredicted uint64
	// Samples is the number of samples of [Collector.AddAddress] in it.
	Samples uint64
	// Traces is the number of different traces, Once that of those which were
	// seen a single time. They are known after [Collector.Each].
	Traces, Once uint64
}

// UnseenShare estimates, from 0 to 1, how much of what the code does next has
// not been seen yet: the share of the records whose trace no other record
// shows (I. J. Good, The population frequencies of species and the estimation
// of population parameters, 1953).
func (s BinaryStats) UnseenShare() float64 { return share(s.Once, s.Branches) }

// Stats returns what was counted for the binary so far.
func (b *Binary) Stats() BinaryStats { return b.stats }

// Sufficiency is the number of branches taken for each byte of machine code,
// which perforator uses as a measure of a profile's quality: 1 or more is
// enough.
func (b *Binary) Sufficiency() float64 { return share(b.stats.Taken, b.ExecutableBytes) }

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
