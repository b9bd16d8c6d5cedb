// Package doctor checks whether a machine meets fulgur's requirements. It reports
// what stops fulgur from working, what it will lose, and the remedy for each. It
// measures nothing. Read checks.go first.
//
// The checks are tables, in checks.go and trials.go. They depend on [Facts] only, so
// tests can apply them to the facts of any machine. [Read] gathers facts from files,
// in about a millisecond. [Trials] find out the rest by trying; they are in
// [fulgur/internal/capture/trial] and [fulgur/internal/branches].
//
// A check examines one property of the machine. It finds a [Problem], which stops
// commands or costs them something. [Examine] applies all checks, for fulgur doctor.
// [Preflight] applies them before a run. [Explain] finds the check that explains an
// error.
package doctor
