// Package remote runs fulgur on other machines, and brings the results back.
//
// Two processes talk over the standard input and output of a program of the user, such as ssh: [Run] on
// this side, and [Host.Serve] on the other. Both are fulgur of the same version. Their messages ([peer]) carry
// the command line, its output and files, and each Ctrl-C. If one side hears nothing from the other for a
// while, or its input ends, it gives up: the other side then ends the measurement, and leaves nothing behind.
//
// A [Transport] starts the other side. That of [SSH] copies fulgur to the host, if it is not there. That of
// [Pod] makes a pod with fulgur's image on the node of the pod that is measured.
//
// This side trusts the other as little as a file of unknown origin: text is made safe to print, and files
// have only names that were asked for. All sizes are bounded.
package remote

// Subcommand is the hidden command of fulgur that calls [Host.Serve].
const Subcommand = "on-host"
