// Package profile is the model that every mode of fulgur fills and every encoder reads:
// tasks, mappings, functions, frames, stacks as a prefix tree, samples and losses. It knows
// neither the kernel nor a file format, and imports nothing from fulgur but the reasons for the
// ends of stacks. It also defines the limits of profiles, on which all readers and writers rely.
//
// All tables are slices indexed by small integer IDs. Index 0 means "none" in each table
// that has a none. A Profile is built by a [Builder], which interns, and is read-only
// afterwards.
//
// The subpackages encode and decode formats (encode, decode), write outputs (output), store
// recordings (timeline), describe a profile in sentences (report), and relate it to its binaries
// (code, annotate). None of them measures anything. Read profile.go first, then builder.go, and
// encode/speedscope for the simplest encoder.
package profile
