// Package doctor checks what fulgur needs from a machine: what keeps it from working,
// what it will lose, and the remedy for each. It measures nothing. Read checks.go first.
//
// The knowledge is one table, checks.go: data that judge [Facts] and nothing
// else, so that they can be tried on any machine's. [Read] gathers what files
// tell, in a millisecond; [fulgur/internal/capture/trial] tries the rest out.
//
// The vocabulary: a check looks at one thing of the machine. What it finds
// wrong is a [Problem], which stops commands or costs them something.
// [Examine] applies all checks, for fulgur doctor. [Preflight] applies them
// before a run, and [Explain] finds the one that is behind an error.
package doctor
