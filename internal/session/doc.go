// Package session runs measurements from their options to their results. [Driver]
// prepares a job, launches the command and returns the exit code. [Run] attaches the
// sources of a subject, drains them, names the stacks and gives the profile of each window
// to a [Sink]. The subpackages are other jobs: boltprofile records branches, agent profiles
// continuously, and offline converts profiles of files. No package here defines a flag:
// messages contain a usage.Option instead.
//
// Read driver.go first, then session.go, run.go and sample.go.
package session
