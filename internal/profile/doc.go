// Package profile is the model that every mode of fulgur fills and every encoder reads:
// tasks, mappings, functions, frames, stacks as a prefix tree, samples and losses. It
// imports nothing from fulgur and knows neither the kernel nor a file format. It also
// defines the limits of profiles, on which all readers and writers rely.
//
// All tables are slices indexed by small integer IDs. Index 0 means "none" in each table
// that has a none. A Profile is built by a [Builder], which interns, and is read-only
// afterwards.
//
// The subpackages encode and decode formats (encode, decode, perfdata), write outputs
// (output), store recordings (timeline) and relate a profile to its binaries (code,
// annotate). None of them measures anything. Read profile.go first, then builder.go, and
// encode/folded for the simplest encoder.
package profile
