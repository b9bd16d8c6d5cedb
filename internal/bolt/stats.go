package bolt

// Stats counts the input of a [Collector], by how it was used.
type Stats struct {
	// Samples is the number of branch stacks, and Records the number of their entries.
	Samples, Records uint64
	// The numbers of dropped records by cause: empty entries, kernel entries (at least
	// one end is in the kernel), branches on a mispredicted path, aborted transactions,
	// and newest entries that duplicate the one before (see [Duplicates]).
	Empty, Kernel, WrongPath, Aborted, Duplicate uint64
	// Foreign is the number of records with both ends outside all registered binaries.
	Foreign uint64
	// Inside is the number of records with at least one end in a registered binary, and
	// Mispredicted the number of these that were mispredicted.
	Inside, Mispredicted uint64
	// Estimated is whether the counts of branches are estimates, see [Collector.AddTrace].
	Estimated bool
}

// InsideShare returns the share of usable records with at least one end in a registered
// binary, from 0 to 1.
func (s Stats) InsideShare() float64 { return share(s.Inside, s.Inside+s.Foreign) }

// MispredictedShare returns the share of inside records that were mispredicted, from 0 to 1.
func (s Stats) MispredictedShare() float64 { return share(s.Mispredicted, s.Inside) }

// BinaryStats holds the counts of a binary.
type BinaryStats struct {
	// Branches is the number of records with at least one end in the binary, including
	// duplicates. Taken is the number of these with their source in it, and Mispredicted the
	// number that were mispredicted.
	Branches, Taken, Mispredicted uint64
	// Samples is the number of samples from [Collector.AddAddress] in the binary.
	Samples uint64
	// Traces is the number of distinct traces, and Once the number that occurred once.
	// They are set by [Collector.Each].
	Traces, Once uint64
}

// UnseenShare estimates the probability, from 0 to 1, that the next trace of the code is new.
// It is the share of records whose trace occurred once (I. J. Good, The population
// frequencies of species and the estimation of population parameters, 1953).
func (s BinaryStats) UnseenShare() float64 { return share(s.Once, s.Branches) }

// Stats returns the counts of the binary so far.
func (b *Binary) Stats() BinaryStats { return b.stats }

// Sufficiency returns the number of taken branches per byte of machine code. perforator uses
// it as a measure of a profile's quality: 1 or more is enough.
func (b *Binary) Sufficiency() float64 { return share(b.stats.Taken, b.ExecutableBytes) }

func share(part, whole uint64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}
